"""Hosts that wait for each other are tried again, then left out, and not named."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from railwright.diagnosis.localise.evidence import observe
from railwright.diagnosis.localise.explain import explain
from railwright.diagnosis.localise.procedure import Outcome
from railwright.locate.host_fabric import build_host_fabric
from railwright.locate.probes import RankProbes
from railwright.locate.signs import find_suspects

NAMES = [f"host{number}" for number in range(4)]
PAIR = ([], ("host1", "host2"), "hung", True)
"""A launch in which two hosts wait for each other."""
ONE = ([], ("host1",), "died", False)
DONE = ([], (), "", False)


@pytest.mark.parametrize(
    ("launches", "left_out", "named", "told"),
    [
        ([PAIR, DONE], [], [], ["again: hung"]),
        ([PAIR, PAIR, DONE], ["host1", "host2"], [], ["again: hung", "without host1, host2: hung"]),
        ([PAIR, ONE, DONE], ["host1"], ["host1"], ["again: hung", "without host1: died"]),
        ([ONE, DONE], ["host1"], ["host1"], ["without host1: died"]),
    ],
)
def test_hosts_that_wait_for_each_other_are_not_named(monkeypatch, launches, left_out, named, told):
    fabric = build_host_fabric(NAMES, ["gpu0"], None)
    said: list[str] = []
    probes = RankProbes(SimpleNamespace(fabric=fabric), SimpleNamespace(), said.append)
    waiting = iter(launches)
    monkeypatch.setattr(probes, "_launch", lambda _phase: next(waiting))
    probes.take([], probes.measure([]))
    evidence = observe(fabric, [])
    outcome = Outcome(evidence, explain(evidence), [], [])
    suspects = find_suspects(outcome, [], [], {}, probes.set_aside, probes.unsure)
    assert (list(probes.set_aside), [one.id for one in suspects], said) == (left_out, named, told)

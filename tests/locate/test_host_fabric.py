"""With known leaf switches a slow leaf is named, and links that are equally slow above all leaves are not a fault."""

from __future__ import annotations

import pytest

from railwright.diagnosis.localise import trial
from railwright.diagnosis.localise.procedure import Rounds
from railwright.diagnosis.localise.records import Fault, Suspect
from railwright.diagnosis.localise.simulate import Weather
from railwright.diagnosis.localise.truth import apply_faults
from railwright.errors import UsageError
from railwright.locate.host_fabric import build_host_fabric, find_uniform_suspects
from railwright.locate.switch_tree import SwitchTree

NAMES = tuple(f"h{number}" for number in range(32))
LEAVES = {name: f"leaf{number // 8}" for number, name in enumerate(NAMES)}
TREE = SwitchTree(LEAVES, ("spine0",))


def suspects(tree: SwitchTree | None, *faults: Fault, oversubscription: float = 1.0) -> tuple[Suspect, ...]:
    fabric = build_host_fabric(NAMES, ("eth0",), tree, oversubscription)
    truth = apply_faults(fabric, list(faults))
    found = trial.run(fabric, "", truth, Weather(), seed=1, rounds=Rounds(), cover=None, with_baselines=False)
    return found.suspects


def fault(kind, name, direction="both", capacity=0.5):
    return Fault(kind=kind, id=name, direction=direction, capacity=capacity)


def test_what_is_slow_is_named_by_its_leaf():
    assert suspects(TREE) == ()
    (up,) = suspects(TREE, fault("link", "leaf1-spine0", "up"))
    assert (up.kind, up.id, up.direction) == ("link", "leaf1-spine0", "up")
    (host,) = suspects(TREE, fault("host", "h9"))
    assert (host.kind, host.id) == ("host", "h9")
    (port,) = suspects(None, fault("nic", "h3:eth0", "up"))
    assert (port.kind, port.id, port.direction) == ("nic", "h3:eth0", "up")


def test_what_all_leaves_have_alike_may_be_meant_so():
    fabric = build_host_fabric(NAMES, ("eth0",), TREE)
    links = [fault("link", f"leaf{number}-spine0") for number in range(4)]
    everywhere = suspects(TREE, *links)
    assert everywhere
    assert find_uniform_suspects(fabric, everywhere) == list(everywhere)
    host = everywhere[0].__class__(kind="host", id="h9", direction="both", capacity=0.2, verdict="slow",
                                   confidence=0.99, tests=4, evidence="")  # fmt: skip
    assert host not in find_uniform_suspects(fabric, [*everywhere, host])
    one_leaf = suspects(TREE, links[0])
    assert one_leaf
    assert find_uniform_suspects(fabric, one_leaf) == []


def test_a_known_oversubscription_is_no_fault():
    assert suspects(TREE, oversubscription=2.0) == ()


def test_hosts_are_found_by_their_short_names_and_one_without_a_leaf_is_refused():
    tree = SwitchTree({"a": "leaf0", "b": "leaf1"}, ())
    fabric = build_host_fabric(("a.example.org", "b"), ("eth0",), tree)
    assert fabric.switches == ("leaf0", "leaf1", "network")
    with pytest.raises(UsageError, match="c has no leaf"):
        build_host_fabric(("a", "b", "c"), ("eth0",), tree)

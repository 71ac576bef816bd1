"""Hosts that wait for each other are tried again, then left out, and not named."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from railwright.benchmarks.sockets import pinned_flows
from railwright.benchmarks.wanted_flow import FlowRequest
from railwright.diagnosis.localise.evidence import observe
from railwright.diagnosis.localise.explain import explain
from railwright.diagnosis.localise.procedure import Outcome
from railwright.locate.host_fabric import build_host_fabric
from railwright.locate.probes import RankProbes
from railwright.locate.signs import find_suspects
from railwright.locate.starved import carried_bytes_per_s

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


@pytest.mark.parametrize(("unread", "sent", "received", "long_lost"), [(0, 700, 300, 6), (400, 0, 0, None)])
def test_nothing_is_said_of_loss_if_the_receiver_did_not_read_all_packets(unread, sent, received, long_lost):
    addresses = ("10.0.0.1", "10.0.0.2")
    place = SimpleNamespace(fabric=build_host_fabric(NAMES[:2], ["gpu0"], None), addresses=addresses, mtu_bytes=9000)
    flow = FlowRequest(number=0, source=0, destination=1, source_address=addresses[0], destination_address=addresses[1])
    told = {"flow": 0, "source_port": 40000, "trouble": "", "packets_sent": 700, "long_refused": 0, "ways": ""}
    heard = {"source_address": addresses[0], "source_port": 40000, "destination_address": addresses[1]}
    heard |= {"received": 300, "long_received": 0, "unread": unread}
    ends = [pinned_flows.BENCHMARK.blank("fabric", settings={"round": 0, **told, "end": "sent"}),
            pinned_flows.BENCHMARK.blank("fabric", settings={"round": 0, **heard, "end": "received"})]  # fmt: skip
    found = [[None]]
    RankProbes(place, SimpleNamespace(), print)._read(ends, [(flow,)], found)
    ((seen,),) = found
    assert (seen.sent, seen.received, seen.long_lost) == (sent, received, long_lost)


def test_a_stream_of_a_starved_process_counts_by_what_the_network_carried():
    addresses = ("10.0.0.1", "10.0.0.2")
    place = SimpleNamespace(fabric=build_host_fabric(NAMES[:2], ["gpu0"], None), addresses=addresses, mtu_bytes=None)
    flow = FlowRequest(number=0, source=0, destination=1, source_address=addresses[0], destination_address=addresses[1])
    told = {"flow": 0, "source_port": 40000, "trouble": "", "packets_sent": 0, "long_refused": 0, "ways": ""}
    stream = {"acked_bytes": 12_000_000, "busy_s": 1.0, "full_s": 0.0, "lasted_s": 2.0}
    sent = pinned_flows._record(0, "sent", (), told | stream)
    received = pinned_flows._record(0, "received", (5e6,), {})
    assert RankProbes(place, SimpleNamespace(), print)._combine_ends(sent, received, flow).bandwidth_bytes_per_s == 12e6


@pytest.mark.parametrize(
    ("busy_s", "full_s", "waited_s", "rate"),
    [
        (1.0, 0.0, 0.0, 100.0),  # the sender did not run for half of the time
        (2.0, 1.0, 1.0, 100.0),  # the receiver did not
        (2.0, 1.0, 0.0, 0.0),  # the receiver ran, and its window is too small
        (1.9, 0.0, 0.0, 0.0),
        (0.4, 0.0, 0.0, 0.0),  # too little to tell
    ],
)
def test_only_time_in_which_a_process_did_not_run_is_left_out(busy_s, full_s, waited_s, rate):
    sent = {"acked_bytes": 100, "busy_s": busy_s, "full_s": full_s, "lasted_s": 2.0}
    assert carried_bytes_per_s(sent, {"waited_s": waited_s}) == rate

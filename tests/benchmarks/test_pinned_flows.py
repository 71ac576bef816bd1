"""The source port of a flow: it takes the wanted path, also if switches drop some of the answers to traces."""

from __future__ import annotations

import pytest

from railwright.benchmarks.sockets import pinned_flows
from railwright.benchmarks.sockets.pinned_flows import NO_WAY, Flows, _choose_port, _SentFlow
from railwright.benchmarks.wanted_flow import FlowRequest

END, OVER = "10.0.0.2", ("leaf0", "spine1", "leaf1")
NAMES = {END: "host1", "10.1": "leaf0", "10.2": "spine1", "10.3": "leaf1", "10.4": "spine0"}
WANTED, OTHER, MUTE = ["10.1", "10.2", "10.3", END], ["10.1", "10.4", "10.3", END], ["10.1", None, None]


@pytest.mark.parametrize(
    ("traces", "port", "trouble", "traced"),
    [
        ([[OTHER, WANTED]], 40_001, "", [2]),
        ([[OTHER, MUTE], [WANTED]], 40_001, "", [2, 1]),
        ([[MUTE, MUTE], [MUTE, OTHER], [WANTED]], 40_000, "", [2, 2, 1]),
        ([[OTHER, OTHER]], None, "no port takes this path", [2]),
        ([[OTHER, MUTE], [MUTE], [MUTE]], None, "no port takes this path", [2, 1, 1]),
        ([[MUTE, MUTE]] * 3, None, NO_WAY, [2, 2, 2]),
    ],
)
def test_ports_that_did_not_answer_are_traced_again(monkeypatch, traces, port, trouble, traced):
    asked: list[int] = []

    def trace(settings):
        asked.append(len(settings["source_ports"]))
        hops = traces[len(asked) - 1]
        return [{"source_port": one, "hops": way} for one, way in zip(settings["source_ports"], hops, strict=True)]

    monkeypatch.setattr(pinned_flows, "trace", trace)
    monkeypatch.setattr(pinned_flows, "_TRACE_PAUSE_S", 0.0)
    fields = {"number": 0, "source": 0, "destination": 1, "source_address": "10.0.0.1", "destination_address": END}
    flow = _SentFlow(FlowRequest(**fields, over=OVER))
    _choose_port(Flows(rounds=(), names=NAMES, source_ports=2), flow)
    assert (flow.port, flow.trouble, asked) == (port, trouble, traced)

"""Both ends of a flow over a simulated wire: everything sent arrives, is timed, compared and answered."""

from __future__ import annotations

import ctypes
import time
from collections import defaultdict, deque
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field

import pytest

from railwright.benchmarks.mpi.flows import _IN_FLIGHT, _LONGEST_BYTES, _SHORTEST_BYTES, _Receiving, _Sending
from railwright.benchmarks.wanted_flow import FlowRequest
from railwright.native.memory import Buffer

FLOW = FlowRequest(number=3, source=0, destination=1, source_address="192.0.2.1", destination_address="192.0.2.2")
SEED = 6


@dataclass
class Wire:
    """Takes messages to their receivers, in order; some may be damaged on the way."""

    damage: Callable[[Buffer], None] = lambda _buffer: None
    sends: dict = field(default_factory=lambda: defaultdict(deque))
    receives: dict = field(default_factory=lambda: defaultdict(deque))
    sizes: list[int] = field(default_factory=list)

    def run(self) -> None:
        while True:
            key = next((key for key in self.sends if self.sends[key] and self.receives[key]), None)
            if key is None:
                return
            out, size, left = self.sends[key].popleft()
            into, most, came = self.receives[key].popleft()
            assert size <= most
            self.sizes.append(size)
            ctypes.memmove(into.address, out.address, size)
            if size:
                self.damage(into)
            left(0)
            came(size)


@dataclass
class EndOfWire:
    wire: Wire
    rank: int

    def send(self, buffer, size_bytes, rank, tag, act):
        self.wire.sends[self.rank, rank, tag].append((buffer, size_bytes, act))

    def receive(self, buffer, most_bytes, rank, tag, act):
        self.wire.receives[rank, self.rank, tag].append((buffer, most_bytes, act))


def flow(wire: Wire) -> _Receiving:
    with ExitStack() as stack:
        out, *into = (stack.enter_context(Buffer(_LONGEST_BYTES)) for _ in range(1 + _IN_FLIGHT))
        out.fill(SEED)
        receiving = _Receiving(EndOfWire(wire, 1), FLOW, SEED, into)
        receiving.start()
        _Sending(EndOfWire(wire, 0), FLOW, out, time.monotonic() + 0.02).start()
        wire.run()
        receiving.found = receiving.check()
        return receiving


def test_all_arrives_and_is_answered():
    wire = Wire()
    one = flow(wire)
    assert not any(wire.sends.values())
    assert not any(wire.receives.values())
    assert sum(wire.sizes) == one.timed_bytes + _SHORTEST_BYTES  # the first message starts the clock
    assert wire.sizes.count(0) == _IN_FLIGHT + 1  # the ends, and the answer
    assert one.rates == pytest.approx([one.timed_bytes / (one.last_at - one.first_at)])
    assert one.found.bytes_wrong == 0
    assert one.found.bytes_checked == sum(one.last_bytes) >= _IN_FLIGHT * _SHORTEST_BYTES


def test_a_damaged_byte_is_detected():
    def damage(buffer: Buffer) -> None:
        (ctypes.c_ubyte * 1).from_address(buffer.address + 1000)[0] ^= 1

    assert flow(Wire(damage)).found.bytes_wrong == _IN_FLIGHT


def test_without_a_second_message_there_is_no_rate():
    assert _Receiving(None, FLOW, SEED, []).rates == ()

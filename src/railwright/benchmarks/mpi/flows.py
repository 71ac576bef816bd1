"""Rounds of MPI messages between pairs of many hosts, for `railwright locate --probe mpi`.

In a round a rank sends and receives at the same time, each flow with four messages in flight, each sized to take a few
milliseconds. The receiver has the clock and answers when all have arrived. Ranks without a flow wait asleep on the
stream to the parent. MPI chooses the route, so no path is pinned.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from railwright.benchmarks.record import sum_checks
from railwright.benchmarks.wanted_flow import (
    FlowRequest,
    FlowRounds,
    FlowsRank,
    plan_rounds,
    probe,
    record_received,
    record_sent,
)
from railwright.native.memory import Buffer
from railwright.native.mpi import library_version
from railwright.native.mpi_messages import Post
from railwright.results.records import Result, Verification
from railwright.units import KIB, MIB

_IN_FLIGHT = 4
_SHORTEST_BYTES, _LONGEST_BYTES = 64 * KIB, 4 * MIB
_MESSAGE_S = 5e-3
"""The time that a message should take, so that rounds over slow links end in time as well."""
_PAUSE_S = 2e-4
"""The pause between polls on hosts that share CPUs: a polling rank would take them from senders."""
_DATA, _ANSWER = 0, 1
_KINDS_OF_TAG = 2


@dataclass
class _Sending:
    """The sender's side of a flow."""

    post: Post
    flow: FlowRequest
    buffer: Buffer
    ends_at: float
    begun: float = field(default_factory=time.monotonic)
    left_bytes: int = 0

    def start(self) -> None:
        """Send the first messages, each of which is followed by the next, and post the receive of the answer."""
        for _ in range(_IN_FLIGHT):
            self._send(_SHORTEST_BYTES)
        self.post.receive(self.buffer, 0, self.flow.destination, _tag(self.flow, _ANSWER), lambda _bytes: None)

    def _send(self, size_bytes: int) -> None:
        def on_sent(_bytes: int) -> None:
            self.left_bytes += size_bytes
            if size_bytes:  # an empty message is the last in its slot
                self._send(self._next_bytes())

        self.post.send(self.buffer, size_bytes, self.flow.destination, _tag(self.flow, _DATA), on_sent)

    def _next_bytes(self) -> int:
        now = time.monotonic()
        rate = self.left_bytes / max(now - self.begun, 1e-6)
        return min(max(int(rate * _MESSAGE_S), _SHORTEST_BYTES), _LONGEST_BYTES) if now < self.ends_at else 0


@dataclass
class _Receiving:
    """The receiver's side of a flow: the first message starts its clock."""

    post: Post
    flow: FlowRequest
    seed: int
    buffers: list[Buffer]
    first_at: float = 0.0
    last_at: float = 0.0
    timed_bytes: int = 0
    ended: int = 0
    last_bytes: list[int] = field(default_factory=lambda: [0] * _IN_FLIGHT)
    """The size of the last message in each buffer."""

    def start(self) -> None:
        """Post a receive for each message that may be in flight."""
        for number, buffer in enumerate(self.buffers):
            buffer.fill(self.seed + 1)  # poison
            self._receive(number)

    def _receive(self, number: int) -> None:
        buffer, source = self.buffers[number], self.flow.source

        def on_received(size_bytes: int) -> None:
            if size_bytes:
                now = time.monotonic()
                self.timed_bytes += size_bytes if self.first_at else 0
                self.first_at, self.last_at = self.first_at or now, now
                self.last_bytes[number] = size_bytes
                self._receive(number)
                return
            self.ended += 1
            if self.ended == _IN_FLIGHT:
                self.post.send(buffer, 0, source, _tag(self.flow, _ANSWER), lambda _bytes: None)

        self.post.receive(buffer, _LONGEST_BYTES, source, _tag(self.flow, _DATA), on_received)

    def check(self) -> Verification:
        """Check the last message in each buffer."""
        held = zip(self.buffers, self.last_bytes, strict=True)
        return sum_checks(buffer.verify(self.seed, size) for buffer, size in held)

    @property
    def rates(self) -> tuple[float, ...]:
        """Return the rate in bytes/s, or nothing for fewer than two messages."""
        return (self.timed_bytes / (self.last_at - self.first_at),) if self.timed_bytes else ()


def _tag(flow: FlowRequest, kind: int) -> int:
    return _KINDS_OF_TAG * flow.number + kind


def _run(rank: FlowsRank) -> Iterator[Result]:
    comm = rank.comm
    post = Post(comm, _PAUSE_S if rank.job.machine.hosts_share_cpus else 0.0)
    for number, flows in enumerate(rank.job.case.rounds):
        rank.step(f"round {number + 1}: messages")
        with contextlib.ExitStack() as stack:
            yield from _run_round(rank, post, number, flows, lambda: stack.enter_context(Buffer(_LONGEST_BYTES)))


def _run_round(
    rank: FlowsRank, post: Post, number: int, flows: tuple[FlowRequest, ...], buffer: Callable[[], Buffer]
) -> Iterator[Result]:
    receiving = [
        _Receiving(post, flow, _seed(number, flow), [buffer() for _ in range(_IN_FLIGHT)])
        for flow in flows
        if flow.destination == rank.index
    ]
    out = [(flow, buffer()) for flow in flows if flow.source == rank.index]
    for flow, filled in out:
        filled.fill(_seed(number, flow))
    for one in receiving:
        one.start()
    rank.meet()  # each message finds its receive already posted
    ends_at = time.monotonic() + rank.job.case.stream_s
    for flow, filled in out:
        _Sending(post, flow, filled, ends_at).start()
    post.deliver()
    rank.meet()
    for flow, _ in out:
        yield record_sent(BENCHMARK, number, flow)
    for one in receiving:
        yield record_received(BENCHMARK, number, one.flow, one.rates, one.check(), {"mpi": library_version()})


def _seed(number: int, flow: FlowRequest) -> int:
    return 2 * (4096 * number + flow.number)


BENCHMARK = probe(
    "mpi_flows",
    "MPI messages between pairs of many hosts at the same time, on the routes that MPI chooses",
    "four messages in flight per flow, timed by the receiver from the first to the last",
    words="railwright locate --probe mpi --hosts host0,host1",
    case=FlowRounds,
    plan=plan_rounds,
    run=_run,
)

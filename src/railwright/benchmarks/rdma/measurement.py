"""A point measured by both ranks over one connection: the timed loops, the data check and the evidence."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from railwright.benchmarks.host_name import host_name
from railwright.benchmarks.rdma import counters
from railwright.benchmarks.rdma.connection import Connection, RdmaRank
from railwright.benchmarks.rdma.options import GPU, Point
from railwright.benchmarks.record import draw_seed, sum_checks
from railwright.errors import CannotJudge
from railwright.native.library import NativeError
from railwright.native.memory import PATTERN
from railwright.native.rdma import Flow, Operation, Pace, Shape
from railwright.results.records import Evidence, Verification
from railwright.topology.devices import Scalar
from railwright.units import KIB

_RETRIES_EXCEEDED, _TIMED_OUT = 12, -1002
"""IBV_WC_RETRY_EXC_ERR, and the end of our own patience."""
PATIENCE_S = 5.0
"""The time without a completion after which the other side counts as dead. A NIC gives up a dead peer within 2 s."""
SAMPLES, SAMPLE_S = 5, 0.25
_MODERATED_TO_BYTES, _MODERATION = 8 * KIB, 100
"""perftest signals each hundredth request of messages up to 8 KiB, and each request above."""
PINGS, _PROBE_PINGS, PINGS_S = 1000, 10, 0.5
"""perftest has 1000 iterations."""


class Measured(NamedTuple):
    """The samples of a loop on rank 0, with the checks and evidence of both ranks."""

    samples: list[float]
    verification: Verification
    evidence: tuple[Evidence, ...]
    settings: dict[str, Scalar]


@dataclass(frozen=True)
class Measurement:
    """An operation at a point. All methods are collective."""

    rank: RdmaRank
    operation: Operation
    connection: Connection
    point: Point

    @property
    def has_latency(self) -> bool:
        """Whether the point has a ping-pong. No CPU can wait for a byte in GPU memory."""
        point = self.point
        alone = point.queue_pairs == 1 and point.direction == "one" and "+" not in point.nics
        return alone and not (self.operation == "write" and point.memory == GPU)

    def stream(self) -> Measured:
        """Time streams of requests. Raises NativeError, also if the other side falls silent."""
        options, connection, size = self.rank.job.options, self.connection, self.point.size_bytes
        every = min(_MODERATION if size <= _MODERATED_TO_BYTES else 1, connection.depth)
        pace = Pace(connection.depth, connection.receive_depth, every)
        is_inline = self._is_inline(options.inline or 0)
        flow = self._flow(is_inline=is_inline, pace=pace)
        seed, meter = self._begin()
        first = min(options.iterations, connection.depth)
        lanes = len(connection.lanes)
        checks: list[Verification] = []

        def run(count: int) -> float:
            self._poison(seed)
            seconds = self._time_stream(flow, count)
            checks.append(self._compare(seed, lanes, min(Shape(size).slots, count), pings=False))
            return seconds

        seconds = run(first)
        wanted = min(options.iterations, int(SAMPLE_S * first / max(seconds, 1e-9)))
        count = int(self.rank.comm.bcast(max(first, wanted)))
        spent = [self.rank.comm.allgather(run(count)) for _ in range(SAMPLES)]
        run(first)  # a device that stopped moving data during the last sample fails here
        ways = 2 if self.point.direction == "both" else 1
        rates = [sum(size * count * lanes / one for one in both[:ways]) for both in spent]
        settings: dict[str, Scalar] = {"iterations": count, "signal_every": every, "inline": is_inline}
        return self._end(meter, rates, sum_checks(checks), settings, size * lanes * (2 * first + SAMPLES * count))

    def latency(self) -> Measured:
        """Time ping-pongs, or single reads. Raises NativeError, also if the other side falls silent."""
        options, size = self.rank.job.options, self.point.size_bytes
        is_inline = self._is_inline(self.connection.inline_bytes if options.inline is None else options.inline)
        flow = self._flow(is_inline=is_inline, pace=Pace(1, self.connection.receive_depth, 1), pings=True)
        seed, meter = self._begin()
        checks: list[Verification] = []

        def run(count: int) -> list[float]:
            self._poison(seed)
            seconds = self._time_pings(flow, count)
            checks.append(self._compare(seed, 1, 1, pings=True))
            return seconds

        each_s = sum(run(_PROBE_PINGS)) / _PROBE_PINGS
        wanted = min(PINGS, int(PINGS_S / max(each_s, 1e-9)))
        count = int(self.rank.comm.bcast(max(_PROBE_PINGS, wanted)))
        samples = run(count)
        run(_PROBE_PINGS)  # as in a stream
        settings: dict[str, Scalar] = {"iterations": count, "warm_up": _PROBE_PINGS, "inline": is_inline}
        return self._end(meter, samples, sum_checks(checks), settings, size * (2 * _PROBE_PINGS + count))

    def _is_inline(self, most_bytes: int) -> bool:
        fits = self.point.size_bytes <= min(most_bytes, self.connection.inline_bytes)
        return fits and self.operation != "read" and self.point.memory != GPU

    def _flow(self, *, is_inline: bool, pace: Pace, pings: bool = False) -> Flow:
        lanes = [self.connection.ordered_lane] if pings else self.connection.lanes
        return Flow(
            lanes,
            self.operation,
            self.point.size_bytes,
            pace,
            inline=is_inline,
            pings=pings,
            patience_s=PATIENCE_S,
        )

    @property
    def _posts(self) -> bool:
        """Whether this rank posts the requests of a stream."""
        return self.rank.index == 0 or self.point.direction == "both"

    def _is_target(self, *, pings: bool) -> bool:
        """Whether data arrives in this rank's memory."""
        if self.operation == "read":
            return self._posts
        return pings or self.rank.index == 1 or self.point.direction == "both"

    def _begin(self) -> tuple[int, counters.PortMeter]:
        """Fill the source with this rank's pattern, and start the counters. Returns the seed of all patterns."""
        seed = int(self.rank.comm.bcast(draw_seed() if self.rank.index == 0 else None))
        self.connection.out.fill(seed + self.rank.index, self._used_bytes)
        return seed, counters.PortMeter(self.connection.names)

    @property
    def _used_bytes(self) -> int:
        return Shape(self.point.size_bytes).area_bytes * len(self.connection.lanes)

    def _poison(self, seed: int) -> None:
        """Fill the target with a pattern that must not remain, before each run: none rests on an earlier one."""
        self.connection.into.fill(seed + 2, self._used_bytes)

    def _time_stream(self, flow: Flow, count: int) -> float:
        is_received = self.operation == "send" and self._is_target(pings=False)
        flow.prepare(count if is_received else 0)
        self.rank.comm.barrier()
        with self._naming_peer():
            return flow.stream(count if self._posts else 0)

    def _time_pings(self, flow: Flow, count: int) -> list[float]:
        flow.prepare(count if self.operation == "send" else 0)
        self.rank.comm.barrier()
        with self._naming_peer():
            return flow.latency(starts=self.rank.index == 0, iterations=count)

    @contextlib.contextmanager
    def _naming_peer(self) -> Iterator[None]:
        """Name the other rank in errors that say that it is gone: often they come before the launcher notices."""
        try:
            yield
        except NativeError as error:
            if error.code not in (_RETRIES_EXCEEDED, _TIMED_OUT):
                raise
            raise CannotJudge(f"rank {1 - self.rank.index} does not answer: {error.message}") from error

    def _compare(self, seed: int, lanes: int, slots: int, *, pings: bool) -> Verification:
        """Compare every place of every queue pair; memory that is no target must keep its own pattern.

        The last byte of a written ping holds a counter, which the loop itself has compared.
        """
        self.rank.comm.barrier()  # the other side's last requests have ended
        expected = seed + (1 - self.rank.index if self._is_target(pings=pings) else 2)
        size, into = self.point.size_bytes, self.connection.into
        compared = size - (pings and self.operation == "write")
        shape, checked = Shape(size), lanes * slots * size
        if compared == shape.stride_bytes and (lanes == 1 or slots == shape.slots):
            return Verification(method=PATTERN, bytes_checked=checked, bytes_wrong=into.count_wrong(expected, checked))
        places = [lane * shape.area_bytes + slot * shape.stride_bytes for lane in range(lanes) for slot in range(slots)]
        wrong = sum(into.count_wrong(expected, compared, place, start=place) for place in places) if compared else 0
        return Verification(method=PATTERN, bytes_checked=checked, bytes_wrong=wrong)

    def _end(
        self,
        meter: counters.PortMeter,
        samples: list[float],
        check: Verification,
        settings: dict[str, Scalar],
        sent_bytes: int,
    ) -> Measured:
        moved = meter.moved()
        name = f"{host_name()} rank {self.rank.index}"
        both = self.rank.comm.allgather((name, check, moved))
        evidence = (
            counters.transport_evidence(self.point.nics, sent_bytes, moved),
            counters.judge({name: counts for name, _, counts in both}),
        )
        return Measured(samples, sum_checks([one for _, one, _ in both]), evidence, settings)

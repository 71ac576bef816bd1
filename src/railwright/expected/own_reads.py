"""The best reads of a drive in a run, with which its other reads are compared if the raw device was not measured.

Alike reads differ only in depth, threads and engine. The best of them is a baseline, because the run has nothing
better.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from typing import NamedTuple

from railwright.limits.limit import Bounds, Constant, Expected, Limit, Source
from railwright.limits.sources import SAME_RUN
from railwright.results.records import Result
from railwright.results.statistics import quantile
from railwright.results.workload import Workload
from railwright.topology.devices import Scalar

_CONCAVE = Source("Railwright docs/limits.md", "direct reads of a file")
READ_SHARE = Constant(0.5, "of the best reads of the run, in proportion to the reads in flight", _CONCAVE)
_METHOD_PARAMETERS = ("depth", "threads", "engine")
"""The parameters in which alike reads differ."""
_SHARED_PARAMETERS = ("size_bytes", "pages", "order")
"""The parameters that alike reads share, if a benchmark varies them."""


class _Read(NamedTuple):
    """Reads of one depth, number of threads and engine."""

    value: float
    in_flight: int
    how: Mapping[str, Scalar]


class OwnReads:
    """The best reads of a run, one for each group of alike reads."""

    def __init__(self, results: Iterable[Result]) -> None:
        """`results` are the sound ones of benchmarks that read files."""
        medians: dict[Hashable, dict[Hashable, list[Result]]] = {}
        for result in results:
            medians.setdefault(_alike_key(result.path, result.quantity, result.parameters), {}).setdefault(
                _method(result), []
            ).append(result)
        self._best = {
            alike: _select_best([_build_read(group) for group in median.values()], alike)
            for alike, median in medians.items()
        }

    def __bool__(self) -> bool:
        return bool(self._best)

    def is_best(self, point: Workload) -> bool:
        """Report whether no read of the run is better than the point."""
        best = self._best.get(_alike_key(point.path, point.quantity, point.varied))
        return best is not None and all(best.how.get(name) == point.varied.get(name) for name in _METHOD_PARAMETERS)

    def bounds(self, point: Workload) -> Bounds | None:
        """Return the bounds from the best alike reads; None if there are no alike reads.

        Throughput is concave in the reads in flight, so with fewer of them it is at least in proportion; the time of
        one read grows at most in proportion to them.
        """
        best = self._best.get(_alike_key(point.path, point.quantity, point.varied))
        if best is None:
            return None
        share = _count_in_flight(point.varied) / best.in_flight
        because = f"the best reads of this run, {best.in_flight} in flight: the raw device is closed"
        limit = Limit(
            quantity=point.quantity, value=best.value, kind="measured_ceiling", because=because, sources=(SAME_RUN,)
        )
        is_latency = point.quantity == "latency_s"
        edge = (
            best.value * max(1.0, share) / READ_SHARE.value
            if is_latency
            else READ_SHARE.value * best.value * min(1.0, share)
        )
        return limit, Expected(
            quantity=point.quantity,
            low=best.value if is_latency else edge,
            high=edge if is_latency else None,
            because="the rate is at least in proportion to the reads in flight; half of it is allowed for the engine",
            sources=(READ_SHARE.source,),
        )


def _alike_key(path: str, quantity: str, varied: Mapping[str, Scalar]) -> Hashable:
    return path, quantity, *(varied.get(name) for name in _SHARED_PARAMETERS)


def _method(result: Result) -> Hashable:
    return tuple(result.parameters.get(name) for name in _METHOD_PARAMETERS)


def _count_in_flight(parameters: Mapping[str, Scalar]) -> int:
    depth, threads = (parameters.get(name, 1) for name in ("depth", "threads"))
    return max(1, int(depth) * int(threads)) if isinstance(depth, int) and isinstance(threads, int) else 1


def _build_read(launches: list[Result]) -> _Read:
    medians = sorted(launch.summary.median for launch in launches if launch.summary is not None)
    first = launches[0].parameters
    return _Read(
        quantile(medians, 0.5),
        _count_in_flight(first),
        {name: first[name] for name in _METHOD_PARAMETERS if name in first},
    )


def _select_best(reads: list[_Read], alike: Hashable) -> _Read:
    is_latency = isinstance(alike, tuple) and alike[1] == "latency_s"
    return (min if is_latency else max)(reads, key=lambda read: read.value)

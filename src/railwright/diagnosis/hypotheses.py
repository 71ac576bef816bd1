"""Which fault would give the curve that was seen: every fault's own curve, and how far the measured one is from it.

The distance is the factor by which the two differ over the sizes, each size weighing as much as its bytes decide its
time: what small messages take depends on much that no fault changes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import NamedTuple

import msgspec
from msgspec.structs import replace

from railwright.diagnosis import exchanges
from railwright.diagnosis.doubts import SINGLE_MESSAGES_FROM
from railwright.diagnosis.foreign import (
    BOTH_WAYS,
    BYTES_DECIDE,
    Machine,
    copy_bounds,
    is_collective,
    operation_of,
    path_of,
)
from railwright.errors import RailwrightError
from railwright.faults.fault import Supposed
from railwright.faults.gpudirect_off import FACT as GPUDIRECT
from railwright.faults.registry import FAULTS
from railwright.limits.case import Case
from railwright.limits.choice import at_size
from railwright.limits.cluster_path import cluster_path_limit
from railwright.limits.collectives import algorithms
from railwright.limits.limit import Limit
from railwright.limits.nccl import TCP_BAND
from railwright.results.readers.foreign_file import ForeignFile
from railwright.results.records import Result, size_of
from railwright.topology.cluster import Cluster
from railwright.topology.devices import EthernetLink
from railwright.topology.gpus import runs

HEALTHY = "healthy"
_MOST_SHOWN = 5
_CLEARLY_BETTER = 0.9
"""A fault is shown if its distance (in logarithms) is at most this share of the healthy machine's."""
_HALF_AS_FAR = 0.5
"""A fault is shown if the table is at most this share as far outside of its band as of the healthy machine's: what the
band of health explains needs no fault."""
_MUCH_FARTHER = 2.0
"""A fault is left out if it is more than this factor farther from the table than the nearest."""
_STAGED_BYTES_PER_S = 16e9
"""What goes through host memory between NIC and GPU at most (NCCL issue 412)."""
_NOT_HIDDEN = 2.0
"""A library that does not overlap the two copies through host memory takes twice as long."""
_MEASURED_ABOVE = 1.02
_CLEARLY_ABOVE = 1.5
"""Bands of collectives are less certain than rates of links."""
_OF_STREAMS = {
    "tcp_fallback": (
        "the data goes over TCP sockets and not over RDMA",
        "rdma link and ibv_devices in the job's container; UCX_LOG_LEVEL=info, or FI_LOG_LEVEL=info and fi_info",
    ),
    "p2p_disabled": (
        "the data does not go from GPU to GPU directly, so that no NVLink is used but host memory or the NICs",
        "nvidia-smi topo -p2p r; UCX_PROTO_INFO=y (cuda_ipc should be in it), or FI_PROVIDER (shm or lnx beside it)",
    ),
}
"""fault -> (what is supposed, how to tell it) for tools that send messages without NCCL."""


class Fitted(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """A hypothesis beside the measured curve."""

    fault: str
    says: str
    distance: float
    """The typical factor between measured and predicted: 1.0 is the same, 2.0 is twice or half."""
    predicted: tuple[tuple[int, float], ...]
    """(size in bytes, algbw or bandwidth in bytes/s); of copies, which have one size, the number of the row for it."""
    tell_apart: str = ""


class Point(NamedTuple):
    """What is predicted at one size, in bytes/s, and how much the size tells of a fault, from 0 to 1."""

    middle: float
    low: float
    high: float
    weight: float

    def beyond(self, measured: float) -> float:
        """How far a value is outside of the band, as a logarithm; 0 inside."""
        return max(0.0, math.log(self.low / measured), math.log(measured / self.high))


Curve = dict[int, Point]
"""Of each size in bytes; of copies, of each row."""


def fit(file: ForeignFile, machine: Machine) -> tuple[Fitted, ...]:
    """The healthy machine first, then the faults that come clearly nearer to the table, the nearest first."""
    case = Case(cluster=machine.cluster, to_memory=_is_copies(file) or _to_memory(file, machine))
    measured = _slow_copies(file, case) if _is_copies(file) else _measured(file, machine.cluster)
    if not measured or not (_is_stream(file) or _is_exchange(file) or _is_copies(file) or is_collective(file)):
        return ()
    nothing = Supposed(fault=HEALTHY, says="nothing is wrong", case=case, tell_apart="")
    healthy, doubt = _fitted(nothing, file, machine, measured)
    if healthy is None:
        return ()
    found = [
        fitted
        for one in _supposed(file, case)
        for fitted, beyond in [_fitted(one, file, machine, measured)]
        if fitted is not None
        and math.log(fitted.distance) <= _CLEARLY_BETTER * math.log(healthy.distance)
        and beyond <= _HALF_AS_FAR * doubt
        and not (_is_copies(file) and _is_refuted(file, one.case, {file.results[row].path for row in measured}))
    ]
    nearest = min((one.distance for one in found), default=1.0)
    near = [one for one in found if one.distance <= _MUCH_FARTHER * nearest]
    return (healthy, *_merged(sorted(near, key=lambda one: one.distance))[:_MOST_SHOWN])


def _is_stream(file: ForeignFile) -> bool:
    return file.subject.kind == "messages"


def _to_memory(file: ForeignFile, machine: Machine) -> bool:
    """Whether messages go between a GPU and the memory of its own host."""
    return _is_stream(file) and machine.cluster.hosts == 1 and file.subject.from_gpu != file.subject.to_gpu


def _is_copies(file: ForeignFile) -> bool:
    return file.subject.kind == "copies"


def _is_exchange(file: ForeignFile) -> bool:
    return file.subject.kind == "exchange"


def _supposed(file: ForeignFile, case: Case) -> Iterator[Supposed]:
    """Every way in which a fault could be there, of the faults that the tool can have, in words that fit the tool."""
    able = (fault for fault in FAULTS if fault.can_be_of(file.subject.transport, operation_of(file)))
    for one in (one for fault in able for one in fault.suppose(case)):
        if _is_stream(file) or _is_exchange(file):
            says, tell_apart = _OF_STREAMS.get(one.fault, (one.says, one.tell_apart))
            one = replace(one, says=says, tell_apart=tell_apart)
        elif _is_copies(file) and (alone := _slow_alone(file, case)):
            one = replace(one, says=f"{one.says} (here {alone} alone)")
        yield one


def _merged(found: list[Fitted]) -> list[Fitted]:
    """Ways of one fault that give the same curve are one: the measurement cannot tell them apart."""
    merged: dict[tuple[str, object], Fitted] = {}
    for one in found:
        key = (one.fault, one.predicted)
        merged[key] = replace(merged[key], says=f"{merged[key].says}, or {one.says}") if key in merged else one
    return list(merged.values())


def _measured(file: ForeignFile, cluster: Cluster) -> dict[int, float]:
    """Size -> bytes/s: of each size the best placement, since a fault slows both; of streams what bytes decide."""
    if _is_exchange(file):
        return exchanges.measured(file) if not exchanges.lacks(file, cluster) else {}
    best: dict[int, float] = {}
    least = 1 if not _is_stream(file) else SINGLE_MESSAGES_FROM if file.subject.one_at_a_time else BYTES_DECIDE
    for result in file.results:
        size = size_of(result.parameters)
        if result.quantity != "bandwidth_bytes_per_s" or result.summary is None:
            continue
        if size is not None and size >= least:
            best[size] = max(best.get(size, 0.0), result.summary.median)
    return {size: value for size, value in best.items() if value > 0}


def _fitted(
    one: Supposed, file: ForeignFile, machine: Machine, measured: dict[int, float]
) -> tuple[Fitted | None, float]:
    """The hypothesis, and how far outside of its band the table is, as a logarithm."""
    try:
        curve = _curve_of(file)(file, machine, one.case, sorted(measured))
    except RailwrightError:
        return None, math.inf  # the machine with this fault cannot run the test at all, so it did not have it
    total = sum(point.weight for point in curve.values())
    if total <= 0:
        return None, math.inf
    squares = sum(point.weight * math.log(measured[size] / point.middle) ** 2 for size, point in curve.items())
    beyond = sum(point.weight * point.beyond(measured[size]) ** 2 for size, point in curve.items())
    fitted = Fitted(
        fault=one.fault,
        says=one.says,
        distance=math.exp(math.sqrt(squares / total)),
        predicted=tuple((size, point.middle) for size, point in sorted(curve.items())),
        tell_apart=one.tell_apart,
    )
    return fitted, math.sqrt(beyond / total)


def _curve_of(file: ForeignFile) -> Callable[[ForeignFile, Machine, Case, list[int]], Curve]:
    if _is_copies(file):
        return _copies_curve
    if _is_stream(file):
        return _stream_curve
    return _exchange_curve if _is_exchange(file) else _collective_curve


def _slow_copies(file: ForeignFile, case: Case) -> dict[int, float]:
    """Row -> bytes/s of the copies below the band of health: of one GPU, it may be, and not of its siblings."""
    rates = {
        row: result.summary.median
        for row, result in enumerate(file.results)
        if result.summary is not None and result.settings.get("arrow") != BOTH_WAYS and result.summary.median > 0
    }
    healthy = {row: _copy_point(file.results[row], case) for row in rates}
    return {row: rates[row] for row, point in healthy.items() if point is not None and rates[row] < point.low}


def _is_refuted(file: ForeignFile, case: Case, slow: set[str]) -> bool:
    """Whether a slow path was faster another time, as through the host, than its link could be with that fault."""
    best: dict[str, Result] = {}
    for result in file.results:
        if result.path in slow and result.summary is not None and result.settings.get("arrow") != BOTH_WAYS:
            before = best.get(result.path)
            if before is None or before.summary is None or result.summary.median > before.summary.median:
                best[result.path] = result
    for result in best.values():
        limit, _ = copy_bounds(result, case.cluster)
        if isinstance(limit, Limit) and result.summary and result.summary.median > _MEASURED_ABOVE * limit.value:
            return True
    return False


def _slow_alone(file: ForeignFile, case: Case) -> str:
    """The GPUs that have slow copies and no others, as a run; empty where that is so of all of them or of none."""
    slow = _slow_copies(file, case)
    ends = {row: {end for end in one.path.split(">") if end.startswith("gpu")} for row, one in enumerate(file.results)}
    fine = set().union(*(gpus for row, gpus in ends.items() if row not in slow))
    alone = set().union(*(ends[row] for row in slow)) - fine
    return runs(sorted(alone)) if fine else ""


def _copies_curve(file: ForeignFile, _machine: Machine, case: Case, rows: list[int]) -> Curve:
    points = {row: _copy_point(file.results[row], case) for row in rows}
    return {row: point for row, point in points.items() if point is not None}


def _copy_point(copy: Result, case: Case) -> Point | None:
    """What one copy reaches where the links decide, less where GPUs of a host do not reach each other."""
    limit, expected = copy_bounds(copy, case.cluster)
    if not isinstance(limit, Limit) or expected is None:
        return None
    low, high = expected.low, limit.value
    if copy.path.startswith("gpu") and ">gpu" in copy.path:
        high = min(high, case.gpu_cap_bytes_per_s)
        low = min(low, high / _NOT_HIDDEN)
    return Point(math.sqrt(low * high), low, high, 1.0)


def _collective_curve(file: ForeignFile, _machine: Machine, case: Case, sizes: list[int]) -> Curve:
    found = algorithms(case, file.test, explained=False)
    curve: Curve = {}
    for size in sizes:
        likely, rate, _ = at_size(case.cluster, file.test, found, size)
        large = likely.algbw_bytes_per_s.middle
        if rate.expected_low is None or rate.expected_high is None or large is None:
            continue
        middle = math.sqrt(rate.expected_low * rate.expected_high)
        curve[size] = Point(middle, rate.expected_low, rate.expected_high, min(1.0, middle / large))
    fastest = max(curve.values(), key=lambda point: point.high, default=None)
    # What a fault leaves at most no size can exceed.
    return {} if fastest and _fastest(file) > _CLEARLY_ABOVE * fastest.high else curve


def _exchange_curve(file: ForeignFile, _machine: Machine, case: Case, sizes: list[int]) -> Curve:
    """Of MPI's collectives: what NCCL would reach there, and as little as healthy libraries do."""
    found = algorithms(case, file.subject.operation, explained=False)
    curve: Curve = {}
    for size in sizes:
        _, rate, _ = at_size(case.cluster, file.subject.operation, found, None)
        high = rate.expected_high or rate.limit
        low = min(rate.expected_low or high, exchanges.DOUBTFUL_TO * rate.limit)
        curve[size] = Point(math.sqrt(low * high), low, high, 1.0)
    return curve


def _stream_curve(file: ForeignFile, machine: Machine, case: Case, sizes: list[int]) -> Curve:
    """Large messages run at the path's rate. Sizes below a quarter of the largest are left out.

    What a fault leaves at most no size can exceed, be it ever so small: a table with one that does has not this fault.
    """
    row = cluster_path_limit(case.cluster, path_of(file, machine))
    if not isinstance(row.limit, Limit):
        return {}
    low = row.expected.low if row.expected else row.limit.value
    high = min(row.limit.value, case.port_cap_bytes_per_s)
    rate = min((low + row.limit.value) / 2, high)
    low = min(low, high)
    if row.kind != "NET":
        high = min(high, case.gpu_cap_bytes_per_s)
        low, rate = min(low, high / _NOT_HIDDEN), min(rate, high)
    elif _over_sockets(case):
        low, high = min(low, TCP_BAND[0].value), min(high, TCP_BAND[1].value)
        rate = min(rate, math.sqrt(low * high))
    elif _is_staged(case) and (file.subject.from_gpu or file.subject.to_gpu):
        low, high = min(low, TCP_BAND[1].value), min(high, _STAGED_BYTES_PER_S)
        low, rate = low / _NOT_HIDDEN, min(rate, math.sqrt(low * high))
    both = 2 if file.subject.both_ways else 1
    if _fastest(file) > both * high * _MEASURED_ABOVE:
        return {}
    point = Point(rate * both, low * both, high * both, 1.0)
    return {size: point for size in sizes if size * 4 >= sizes[-1]}


def _over_sockets(case: Case) -> bool:
    protocols = [link.protocol for link in case.cluster.host.links]
    return any(isinstance(protocol, EthernetLink) and not protocol.rdma for protocol in protocols)


def _is_staged(case: Case) -> bool:
    return any(host.facts.get(GPUDIRECT) is False for host in case.cluster.host.of_kind("host"))


def _fastest(file: ForeignFile) -> float:
    """The highest rate of any size, in bytes/s."""
    rates = (one.summary.median for one in file.results if one.summary and one.quantity == "bandwidth_bytes_per_s")
    return max(rates, default=0.0)

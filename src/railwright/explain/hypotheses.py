"""Fits faults to a measured curve: predicts the curve of each fault, and its distance from the measurement.

The distance is the typical factor between the two: e to the root mean square of the logarithms of measured over
predicted. Each size of an NCCL collective is weighted by its predicted rate as a share of the rate at very large sizes,
because the time of small messages depends on much that no fault changes.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from msgspec.structs import replace

from railwright.errors import RailwrightError
from railwright.expected.expect import expect
from railwright.expected.machine import Machine
from railwright.expected.messages import BYTES_DECIDE, SINGLE_MESSAGES_FROM
from railwright.expected.mpi_collectives import total_bytes
from railwright.explain.fitted import Fitted
from railwright.explain.next_commands import word_for_tool
from railwright.explain.rows import can_affect, is_collective, row_workload
from railwright.faults.fault import EVERY_TRANSPORT, Hypothesis
from railwright.faults.registry import FAULTS
from railwright.limits.case import Case
from railwright.limits.limit import Limit
from railwright.results.readers.foreign_file import ForeignFile
from railwright.results.records import Result
from railwright.results.workload import Collective, Copy, Message
from railwright.topology.gpus import format_runs

HEALTHY = "healthy"
_MAX_SHOWN = 5
_MAX_SHARE_OF_DISTANCE = 0.9
"""A fault is shown only if the logarithm of its distance is at most this share of the healthy machine's."""
_MAX_SHARE_OUTSIDE = 0.5
"""A fault is shown only if the table's distance outside its band, a logarithm, is at most this share of the distance
outside the healthy band: values that the healthy band explains need no fault."""
_MAX_DISTANCE_RATIO = 2.0
"""A fault is left out if its distance is more than this multiple of the nearest fault's."""
_MEASURED_ABOVE = 1.02
"""A rate above this multiple of the highest that a fault allows excludes the fault."""
_CLEARLY_ABOVE = 1.5
"""The same for collectives, whose bands are less certain than rates of links."""
_EXCHANGES_FROM = 2**20
"""The size in bytes from which bytes decide the time of an MPI collective on any network."""
_ALL_BYTES = 2**40
"""A size at which only bytes decide the rate."""
_BYTES_DECIDE = 0.5
"""Share of that rate: a stream of messages that is predicted to stay below it reveals nothing about links."""


class Point(NamedTuple):
    """The prediction at one size in bytes/s, and the size's weight from 0 to 1."""

    middle: float
    low: float
    high: float
    weight: float

    def distance_outside(self, measured: float) -> float:
        """Return the distance of a value from the band as a logarithm; 0 inside."""
        return max(0.0, math.log(self.low / measured), math.log(measured / self.high))


Rows = Mapping[int, tuple[Result, float]]
"""The significant rows with their rates in bytes/s, by size in bytes, or by row number for copies."""
Curve = dict[int, Point]
"""The prediction for each of the rows."""


def fit(file: ForeignFile, machine: Machine) -> tuple[Fitted, ...]:
    """Return the healthy machine first, then the faults that fit the table clearly better, the nearest first."""
    case = Case(cluster=machine.cluster, to_memory=_is_copies(file) or _ends_in_memory(file, machine))
    rows = _select_rows(file, machine)
    if not rows:
        return ()
    nothing = Hypothesis(fault=HEALTHY, says="nothing is wrong", case=case, tell_apart="")
    healthy, doubt = _fit_hypothesis(nothing, file, machine, rows)
    if healthy is None:
        return ()
    found = [
        fitted
        for supposed in _list_hypotheses(file, machine, case)
        for fitted, beyond in [_fit_hypothesis(supposed, file, machine, rows)]
        if fitted is not None
        and math.log(fitted.distance) <= _MAX_SHARE_OF_DISTANCE * math.log(healthy.distance)
        and beyond <= _MAX_SHARE_OUTSIDE * doubt
        and not (_is_copies(file) and _is_refuted(file, machine, supposed.case, {row.path for row, _ in rows.values()}))
    ]
    nearest = min((fitted.distance for fitted in found), default=1.0)
    near = [fitted for fitted in found if fitted.distance <= _MAX_DISTANCE_RATIO * nearest]
    return (healthy, *_merge_variants(sorted(near, key=lambda fitted: fitted.distance))[:_MAX_SHOWN])


def _is_stream(file: ForeignFile) -> bool:
    return isinstance(file.workload, Message)


def _ends_in_memory(file: ForeignFile, machine: Machine) -> bool:
    """Report whether messages go between a GPU and the memory of its own host."""
    workload = file.workload
    return isinstance(workload, Message) and machine.cluster.hosts == 1 and workload.from_gpu != workload.to_gpu


def _is_copies(file: ForeignFile) -> bool:
    return isinstance(file.workload, Copy)


def _is_by_mpi(file: ForeignFile) -> bool:
    return isinstance(file.workload, Collective) and file.workload.by == "mpi"


def _list_hypotheses(file: ForeignFile, machine: Machine, case: Case) -> Iterator[Hypothesis]:
    """Yield the hypotheses of all faults that can affect the tool, worded for the tool."""
    able = [fault for fault in FAULTS if can_affect(fault, file)]
    if _is_copies(file):  # copies have no transport, so only a fault of the machine itself slows them
        able = [fault for fault in able if fault.transports == EVERY_TRANSPORT]
    only_slow = _find_slow_gpus(file, machine) if _is_copies(file) else ""
    for supposed in (hypothesis for fault in able for hypothesis in fault.suppose(case)):
        worded = word_for_tool(supposed, file, machine.cluster.host)
        yield replace(worded, says=f"{worded.says} (here only {only_slow})") if only_slow else worded


def _merge_variants(found: list[Fitted]) -> list[Fitted]:
    """Merge variants of one fault with the same curve, which the measurement cannot distinguish.

    Of variants in the same words, which a tool's wording can give, the first stays.
    """
    distinct: dict[tuple[str, str], Fitted] = {}
    for fitted in found:
        distinct.setdefault((fitted.fault, fitted.says), fitted)
    merged: dict[tuple[str, object], Fitted] = {}
    for fitted in distinct.values():
        key = (fitted.fault, fitted.predicted)
        merged[key] = replace(merged[key], says=f"{merged[key].says}, or {fitted.says}") if key in merged else fitted
    return list(merged.values())


def _select_rows(file: ForeignFile, machine: Machine) -> Rows:
    """Select the significant rows: the best placement per size, large sizes of streams, slow copies."""
    if _is_copies(file):
        return _select_slow_copies(file, machine)
    if not (_is_stream(file) or _is_by_mpi(file) or is_collective(file)):
        return {}
    best: dict[int, tuple[Result, float]] = {}
    for result in file.results:
        size, rate = _size_and_rate(result, file)
        if size >= _min_bytes(file) and rate > best.get(size, (result, 0.0))[1]:
            best[size] = result, rate
    largest = max(best, default=0)
    return {size: row for size, row in best.items() if not _is_stream(file) or size * 4 >= largest}


def _min_bytes(file: ForeignFile) -> int:
    workload = file.workload
    if isinstance(workload, Message):
        return SINGLE_MESSAGES_FROM if workload.one_at_a_time else BYTES_DECIDE
    return _EXCHANGES_FROM if _is_by_mpi(file) else 1


def _size_and_rate(result: Result, file: ForeignFile) -> tuple[int, float]:
    """Return bytes and bytes/s of a row, of the whole operation if it is a latency; (0, 0) without a rate."""
    workload = row_workload(result, file)
    value = result.summary.median if result.summary is not None else 0.0
    if isinstance(workload, Collective) and workload.by == "mpi":
        size = total_bytes(workload) if workload.quantity == "latency_s" and value > 0 else 0
        return size, size / value if size else 0.0
    return (workload.size_bytes or 0, value) if _is_rate(result) else (0, 0.0)


def _is_rate(row: Result) -> bool:
    return row.quantity == "bandwidth_bytes_per_s"


def _fit_hypothesis(
    supposed: Hypothesis, file: ForeignFile, machine: Machine, rows: Rows
) -> tuple[Fitted | None, float]:
    """Return the fitted hypothesis, and the table's distance from its band as a logarithm."""
    try:
        curve = _predict_curve(file, suppose_case(machine, supposed.case), rows)
    except RailwrightError:
        return None, math.inf  # a machine with this fault cannot run the test, so the fault is excluded
    total = sum(point.weight for point in curve.values())
    if total <= 0:
        return None, math.inf
    squares = sum(point.weight * math.log(rows[size][1] / point.middle) ** 2 for size, point in curve.items())
    beyond = sum(point.weight * point.distance_outside(rows[size][1]) ** 2 for size, point in curve.items())
    fitted = Fitted(
        fault=supposed.fault,
        says=supposed.says,
        distance=math.exp(math.sqrt(squares / total)),
        predicted=tuple((size, point.middle) for size, point in sorted(curve.items())),
        tell_apart=supposed.tell_apart,
    )
    return fitted, math.sqrt(beyond / total)


def suppose_case(machine: Machine, case: Case) -> Machine:
    """Return the machine of a hypothesis, without the job's environment."""
    return dataclasses.replace(machine, cluster=case.cluster, case=case, environment={}, is_explained=False)


def _predict_curve(file: ForeignFile, machine: Machine, rows: Rows) -> Curve:
    """Return the expected rates of the rows.

    No size can exceed the highest rate that a fault allows: if a row does, the result is empty and excludes the fault.
    """
    points = {size: _predict_point(row, file, machine) for size, (row, _) in rows.items()}
    curve = {size: point for size, point in points.items() if point is not None}
    if _is_copies(file) or _is_by_mpi(file) or not curve:
        return curve
    highest = max(point.high for point in curve.values())
    fastest = max(row.summary.median for row in file.results if row.summary is not None and _is_rate(row))
    if fastest > highest * (_MEASURED_ABOVE if _is_stream(file) else _CLEARLY_ABOVE):
        return {}
    large = _predict_point(max(rows.items())[1][0], file, machine, size_bytes=_ALL_BYTES)
    full_rate = large.middle if large is not None else highest
    if _is_stream(file):  # below that share the message's overhead decides, and a slow link hardly shows
        return curve if max(point.middle for point in curve.values()) >= _BYTES_DECIDE * full_rate else {}
    return {size: point._replace(weight=min(1.0, point.middle / full_rate)) for size, point in curve.items()}


def _predict_point(row: Result, file: ForeignFile, machine: Machine, size_bytes: int = 0) -> Point | None:
    """Return the expected rates of a row, optionally at another size."""
    workload = row_workload(row, file)
    workload = replace(workload, size_bytes=size_bytes) if size_bytes else workload
    limit, band = expect(workload, machine)
    if not isinstance(limit, Limit) or band is None:
        return None
    low, high = band.low, limit.value
    if isinstance(workload, Collective | Message):
        high = band.high or limit.value
    if isinstance(workload, Collective) and workload.by == "mpi":
        size = total_bytes(workload)
        low, high = size / (band.doubtful_to or band.high or limit.value), size / band.low
    return Point(math.sqrt(low * high), low, high, 1.0)


def _select_slow_copies(file: ForeignFile, machine: Machine) -> Rows:
    """Return the copies below the healthy band, which may be those of a single GPU."""
    rows = {
        number: (row, row.summary.median)
        for number, row in enumerate(file.results)
        if row.summary is not None and _is_one_way(row) and row.summary.median > 0
    }
    healthy = {number: _predict_point(row, file, machine) for number, (row, _) in rows.items()}
    return {
        number: rows[number] for number, point in healthy.items() if point is not None and rows[number][1] < point.low
    }


def _is_one_way(row: Result) -> bool:
    return row.settings.get("direction") != "both"


def _is_refuted(file: ForeignFile, machine: Machine, case: Case, slow: set[str]) -> bool:
    """Report whether a slow path was faster in another row than its link could be with this fault."""
    best: dict[str, tuple[Result, float]] = {}
    for row in file.results:
        if row.path in slow and row.summary is not None and _is_one_way(row):
            best[row.path] = max((row, row.summary.median), best.get(row.path, (row, 0.0)), key=lambda pair: pair[1])
    for row, rate in best.values():
        limit, _ = expect(row_workload(row, file), suppose_case(machine, replace(case, gpu_cap_bytes_per_s=math.inf)))
        if isinstance(limit, Limit) and rate > _MEASURED_ABOVE * limit.value:
            return True
    return False


def _find_slow_gpus(file: ForeignFile, machine: Machine) -> str:
    """Return the GPUs that have only slow copies; empty if all GPUs do or none does."""
    slow = _select_slow_copies(file, machine)
    ends = {
        number: {end for end in row.path.split(">") if end.startswith("gpu")} for number, row in enumerate(file.results)
    }
    fine = set().union(*(gpus for number, gpus in ends.items() if number not in slow))
    only_slow = set().union(*(ends[number] for number in slow)) - fine
    return format_runs(sorted(only_slow)) if fine else ""

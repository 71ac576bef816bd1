"""Linpack's records of matrix products and solves, for CPUs and GPUs."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from msgspec.structs import replace

from railwright.benchmarks.job import Case
from railwright.benchmarks.linpack import problem
from railwright.benchmarks.linpack.options import Point
from railwright.benchmarks.record import complete, failed_if
from railwright.native import linpack
from railwright.results.records import Result, Verification
from railwright.topology.devices import Scalar


class Product(Case, frozen=True, kw_only=True):
    """The varied parameters of a dgemm record."""

    part: str
    threads: int = 0
    host: str = ""
    hosts: str = ""


DGEMM, SUSTAINED = "dgemm", "sustained dgemm"


def product_case(case: Point, part: str = DGEMM) -> Product:
    """Return the case of a dgemm before a solve."""
    return Product(part=part, threads=case.threads, host=case.host, hosts=case.hosts)


class ProductTimes(NamedTuple):
    """A rank's measurements of its products."""

    seconds: Sequence[float]
    wrong_rows: int
    host: str


def product_record(
    blank: Result,
    order: int,
    kept: Mapping[str, Scalar],
    ranks: Sequence[ProductTimes],
    method: str = linpack.PATTERN,
) -> Result:
    """Record dgemm on all ranks at the slowest rank's time in each sample; failed if a row of a product is wrong."""
    slowest = [max(at_once) for at_once in zip(*(one.seconds for one in ranks), strict=True)]
    checked = len(ranks) * problem.DOUBLE_BYTES * order**2
    wrong = sum(one.wrong_rows for one in ranks) * problem.DOUBLE_BYTES * order
    check = Verification(method=method, bytes_checked=checked, bytes_wrong=wrong)
    wrong_on = next((index for index, one in enumerate(ranks) if one.wrong_rows), None)
    reason = "" if wrong_on is None else f"{ranks[wrong_on].wrong_rows} rows of a product are wrong on rank {wrong_on}"
    settings = {**kept, "order": order, **_describe_slowest(ranks)}
    blank = replace(failed_if(blank, reason), settings=settings, verification=check)
    return blank if reason else complete(blank, [len(ranks) * 2.0 * order**3 / second for second in slowest])


def _describe_slowest(ranks: Sequence[ProductTimes]) -> dict[str, Scalar]:
    """Describe the slowest rank and its time over the median rank's; empty for a single rank."""
    if len(ranks) < 2:
        return {}
    each = [statistics.median(one.seconds) for one in ranks]
    slowest = max(range(len(each)), key=each.__getitem__)
    return {
        "slowest_rank": slowest,
        "slowest_host": ranks[slowest].host,
        "slowest_times_median": round(each[slowest] / statistics.median_low(each), 3),
    }


def solve_record(
    blank: Result, order: int, seconds: float, singular_at: int, norms: problem.Norms | None, threshold: float
) -> Result:
    """Record a solve; failed if a pivot was zero or the residual is too large. `blank` has the other settings."""
    settings = {**blank.settings, "duration_s": seconds, "matrix_bytes": problem.DOUBLE_BYTES * order**2}
    blank = replace(blank, settings=settings)
    if singular_at:
        return failed_if(blank, f"pivot {singular_at} of {order} was found to be 0: the factors are wrong")
    rate = problem.operations(order) / seconds
    if norms is None:
        return complete(blank, [rate])
    residual = problem.scaled_residual(norms, order)
    is_right = residual < threshold
    vector = problem.DOUBLE_BYTES * order
    check = Verification(method="HPL scaled residual", bytes_checked=vector, bytes_wrong=0 if is_right else vector)
    said = residual if residual < float("inf") else "not a number"  # JSON has no infinity
    blank = replace(blank, settings=settings | {"scaled_residual": said, "threshold": threshold}, verification=check)
    if not is_right:
        shown = said if isinstance(said, str) else f"{said:.3g}"
        return failed_if(blank, f"the scaled residual must be below {threshold:g}, got {shown}")
    return complete(blank, [rate])

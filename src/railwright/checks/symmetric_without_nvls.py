"""Symmetric buffers (`ncclCommWindowRegister`) where NVLS is off: large reductions and gathers take longer by them.

NCCL then reduces in kernels of its own for symmetric memory, which without the NVSwitches' help are slower than rings.
"""

from __future__ import annotations

from collections.abc import Iterator
from operator import itemgetter

from railwright.checks.check import Check, Facts, Findings
from railwright.checks.finding import Certainty, Finding, OfBenchmark, OfParameter
from railwright.expected.nccl_collectives import nvls_is_off
from railwright.limits.limit import Constant
from railwright.limits.sources import SYMMETRIC_MEASURED
from railwright.results.declarations import workload_of
from railwright.results.records import Evidence, Result
from railwright.results.workload import Collective
from railwright.units import MIB, format_duration, format_size

_LONGER_FROM = {
    operation: Constant(size_bytes, "bytes", SYMMETRIC_MEASURED)
    for operation, size_bytes in (("all_reduce", 64 * MIB), ("reduce_scatter", 64 * MIB), ("all_gather", 256 * MIB))
}
"""From there at least 7 % longer than with plain buffers; below 16 MiB it is up to a third shorter."""
_LONGER_BY = 0.05
"""Our choice: well above what two runs of one operation of such a size differ by."""
_COSTS = (
    "of 8 GiB all_reduce took 1.35, reduce_scatter 1.47 and all_gather 1.25 times as long as with plain buffers; below"
    " 16 MiB they took down to 0.7 times as long (measured on 2 H200, NCCL 2.28.9)"
)


def _signs(facts: Facts) -> Findings:
    found: dict[str, list[Result]] = {}
    for operation, result in _large(facts):
        found.setdefault(operation, []).append(result)
    for operation, those in found.items():
        others = ((one, _other(one, facts.results)) for one in those)
        compared = [(_median(one) / _median(other), one, other) for one, other in others if other is not None]
        if not compared:
            says = f"symmetric buffers without NVLS make a large {operation} slower than plain ones do"
            yield _finding(those[0], says, certainty="possible")
            continue
        ratio, one, other = max(compared, key=itemgetter(0))
        if ratio > 1 + _LONGER_BY:
            kind = _buffers(other)
            times = " and ".join(format_duration(_median(each)) for each in (one, other))
            yield _finding(
                one,
                f"{operation} of {format_size(int(one.parameters['size_bytes']))} takes {ratio:.2f} times as long with"
                f" symmetric buffers, without NVLS, as with {kind} ones",
                Evidence(claim="buffers", value=f"{times} (symmetric, {kind})", seen="both measured in this run"),
            )


def _finding(one: Result, says: str, *evidence: Evidence, certainty: Certainty = "seen") -> Finding:
    return CHECK.finding(
        (OfBenchmark(one.benchmark), OfParameter("buffers", "symmetric")), says, *evidence, certainty=certainty
    )


def _large(facts: Facts) -> Iterator[tuple[str, Result]]:
    """Times of symmetric buffers without NVLS, of the operations and sizes that are the slower for it."""
    for one in facts.results:
        workload = workload_of(one, facts.declarations)
        operation = workload.operation if isinstance(workload, Collective) and workload.by == "nccl" else ""
        least, size = _LONGER_FROM.get(operation), one.parameters.get("size_bytes")
        if least is None or not isinstance(size, int) or size < least.value:
            continue
        is_time = one.quantity == "latency_s" and one.summary is not None
        if is_time and _buffers(one) == "symmetric" and nvls_is_off(one.settings.get("nvls", ""), facts.environment):
            yield operation, one


def _other(one: Result, results: tuple[Result, ...]) -> Result | None:
    """The same point with plain buffers, else with registered ones; of any launch."""
    kinds = {_buffers(each): each for each in reversed(results) if _median(each) > 0 and _is_twin(one, each)}
    return kinds.get("plain") or kinds.get("registered")


def _is_twin(one: Result, other: Result) -> bool:
    """Whether they differ in nothing but their buffers."""
    alike = (one.benchmark, one.quantity, one.path) == (other.benchmark, other.quantity, other.path)
    names = (one.parameters.keys() | other.parameters.keys()) - {"buffers"}
    return alike and all(one.parameters.get(name) == other.parameters.get(name) for name in names)


def _buffers(result: Result) -> str:
    return str(result.parameters.get("buffers", "plain"))


def _median(result: Result) -> float:
    return result.summary.median if result.summary else 0.0


CHECK = Check(
    name="symmetric_without_nvls",
    summary="symmetric buffers are used where NVLS is off",
    costs=_COSTS,
    remedy="register large buffers with ncclCommRegister, or leave them plain, where NVLS is off; symmetric ones"
    " for what is below 16 MiB",
    signs=_signs,
    needs_results=True,
)

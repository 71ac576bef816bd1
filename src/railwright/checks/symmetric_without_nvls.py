"""Symmetric buffers (`ncclCommWindowRegister`) with NVLS off, which make large reductions and gathers slower.

NCCL then uses its kernels for symmetric memory, which are slower than rings without reduction in the NVSwitches.
"""

from __future__ import annotations

from collections.abc import Iterator
from operator import itemgetter

from railwright.checks.check import Check, Facts, Findings
from railwright.checks.finding import BenchmarkPlace, Certainty, Finding, ParameterPlace
from railwright.expected.nccl_collectives import nvls_is_off
from railwright.limits.limit import Constant
from railwright.limits.sources import SYMMETRIC_MEASURED
from railwright.results.declarations import find_workload
from railwright.results.records import Evidence, Result
from railwright.results.workload import Collective
from railwright.units import MIB, format_duration, format_size

_SLOWER_FROM = {
    operation: Constant(size_bytes, "bytes", SYMMETRIC_MEASURED)
    for operation, size_bytes in (("all_reduce", 64 * MIB), ("reduce_scatter", 64 * MIB), ("all_gather", 256 * MIB))
}
"""Sizes from which symmetric buffers take at least 7 % longer than plain ones. Below 16 MiB they can be 30 % faster."""
_SLOWER_BY = 0.05
"""Our choice: well above the variation between two runs of one operation of such a size."""
_COSTS = (
    "at 8 GiB all_reduce took 1.35, reduce_scatter 1.47 and all_gather 1.25 times as long as with plain buffers; below"
    " 16 MiB they took as little as 0.7 times as long (measured on 2 H200, NCCL 2.28.9)"
)


def _signs(facts: Facts) -> Findings:
    found: dict[str, list[Result]] = {}
    for operation, result in _list_large_results(facts):
        found.setdefault(operation, []).append(result)
    for operation, results in found.items():
        pairs = ((result, _find_twin(result, facts.results)) for result in results)
        compared = [(_median(result) / _median(other), result, other) for result, other in pairs if other is not None]
        if not compared:
            says = f"symmetric buffers without NVLS make a large {operation} slower than plain buffers"
            yield _build_finding(results[0], says, certainty="possible")
            continue
        ratio, result, other = max(compared, key=itemgetter(0))
        if ratio > 1 + _SLOWER_BY:
            kind = _buffers(other)
            times = " and ".join(format_duration(_median(each)) for each in (result, other))
            yield _build_finding(
                result,
                f"{operation} of {format_size(int(result.parameters['size_bytes']))} takes {ratio:.2f} times as long"
                f" with symmetric buffers, without NVLS, as with {kind} ones",
                Evidence(claim="buffers", value=f"{times} (symmetric, {kind})", seen="both measured in this run"),
            )


def _build_finding(result: Result, says: str, *evidence: Evidence, certainty: Certainty = "seen") -> Finding:
    return CHECK.finding(
        (BenchmarkPlace(result.benchmark), ParameterPlace("buffers", "symmetric")), says, *evidence, certainty=certainty
    )


def _list_large_results(facts: Facts) -> Iterator[tuple[str, Result]]:
    """Yield latencies with symmetric buffers and without NVLS, for the affected operations and sizes."""
    for result in facts.results:
        workload = find_workload(result, facts.declarations)
        operation = workload.operation if isinstance(workload, Collective) and workload.by == "nccl" else ""
        least, size = _SLOWER_FROM.get(operation), result.parameters.get("size_bytes")
        if least is None or not isinstance(size, int) or size < least.value:
            continue
        is_time = result.quantity == "latency_s" and result.summary is not None
        if (
            is_time
            and _buffers(result) == "symmetric"
            and nvls_is_off(result.settings.get("nvls", ""), facts.environment)
        ):
            yield operation, result


def _find_twin(result: Result, results: tuple[Result, ...]) -> Result | None:
    """Return the same point of any launch with plain buffers, or else with registered buffers."""
    kinds = {_buffers(each): each for each in reversed(results) if _median(each) > 0 and _is_twin(result, each)}
    return kinds.get("plain") or kinds.get("registered")


def _is_twin(result: Result, other: Result) -> bool:
    """Report whether the results differ only in their buffers."""
    alike = (result.benchmark, result.quantity, result.path) == (other.benchmark, other.quantity, other.path)
    names = (result.parameters.keys() | other.parameters.keys()) - {"buffers"}
    return alike and all(result.parameters.get(name) == other.parameters.get(name) for name in names)


def _buffers(result: Result) -> str:
    return str(result.parameters.get("buffers", "plain"))


def _median(result: Result) -> float:
    return result.summary.median if result.summary else 0.0


CHECK = Check(
    name="symmetric_without_nvls",
    summary="symmetric buffers are used where NVLS is off",
    right="symmetric buffers are used only where NVLS is on",
    costs=_COSTS,
    remedy="register large buffers with ncclCommRegister or leave them plain if NVLS is off; use symmetric buffers"
    " below 16 MiB",
    signs=_signs,
    needs_results=True,
)

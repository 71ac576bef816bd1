"""References that are far from what machines of their class have.

Nothing in a run stands above its references, so a machine that is slow in all it does would be called fast. Where the
class of a processor is known from machines that were measured, a tenth of the least that those had is told of. It is a
hint and no verdict: classes are wide.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from railwright.checks.finding import Finding, OfBenchmark
from railwright.diagnosis.verdicts.verdict import format_quantity
from railwright.limits.limit import Constant, Quantity, Source
from railwright.results.declarations import Declarations, declared_for
from railwright.results.records import Evidence, Result, size_of
from railwright.results.workload import Baseline
from railwright.topology.devices import DeviceKind, Topology
from railwright.units import MIB

FAR_OFF = 0.1
"""Our choice: far beyond what machines of one class differ by."""

_XEON, _HOPPER = ("Xeon",), ("H100", "H200")
_TWO_H200 = Source("Railwright docs/measured/2xh200", "paths through host memory, and its records")
_LOADS = Source("Railwright docs/measured", "loads of a GPU's own memory in the records of 1 H100 and of 2 and 8 H200")
XEON_COPY = Constant(5.46e9, "bytes/s, the slowest of 18 copies of 64 MiB by one thread", _TWO_H200)
XEON_LINE = Constant(85.2e-9, "s, the slowest of 3 machines", _TWO_H200)
HOPPER_LOAD = Constant(143.5e-9, "s, the slowest of 21", _LOADS)


class _Usual(NamedTuple):
    """The least that a class of processors had of one reference."""

    supply: Baseline
    quantity: Quantity
    kind: DeviceKind
    names: tuple[str, ...]
    """Words of the class in the names of its devices."""
    least: Constant
    from_bytes: int = 0
    """The smallest size that it is of."""


_KNOWN = (
    _Usual("thread copy", "bandwidth_bytes_per_s", "cpu", _XEON, XEON_COPY, 64 * MIB),
    _Usual("cache line", "latency_s", "cpu", _XEON, XEON_LINE),
    _Usual("gpu load", "latency_s", "gpu", _HOPPER, HOPPER_LOAD),
)


def look(results: Iterable[Result], declarations: Declarations, topology: Topology) -> tuple[Finding, ...]:
    """What is a tenth of the least that its class had, even in the best launch and at the best size."""
    sound = [one for one in results if one.outcome == "measured" and one.summary is not None]
    return tuple(_far_off(sound, declarations, topology))


def _far_off(results: list[Result], declarations: Declarations, topology: Topology) -> Iterator[Finding]:
    for usual in _KNOWN:
        if not _is_of(usual, topology):
            continue
        best = _best([one for one in results if _supplies(one, usual, declarations)], usual)
        if best is None or best.summary is None or not _is_far(best.summary.median, usual):
            continue
        seen = format_quantity(usual.quantity, best.summary.median)
        least = format_quantity(usual.quantity, usual.least.value)
        yield Finding(
            fault="far_from_its_class",
            where=(OfBenchmark(best.benchmark),),
            certainty="possible",
            says=f"{seen} at best, where {' and '.join(usual.names)} that were measured had {least} at worst: what is"
            " held against it may be slow, too",
            remedy="railwright audit; then the same measurement on a machine of this kind that is known to be healthy",
            evidence=(Evidence(claim="class", value=f"{usual.kind} {usual.names[0]}", seen=usual.least.source.title),),
        )


def _is_of(usual: _Usual, topology: Topology) -> bool:
    """Whether all devices of the kind are of the class."""
    names = [device.name for device in topology.of_kind(usual.kind)]
    return bool(names) and all(any(word in name for word in usual.names) for name in names)


def _supplies(result: Result, usual: _Usual, declarations: Declarations) -> bool:
    declared = declared_for(result, declarations)
    source, _, target = result.path.partition(">")
    return (
        declared is not None
        and (declared.supplies, declared.quantity) == (usual.supply, usual.quantity)
        and source == target
        and (size_of(result.parameters) or 0) >= usual.from_bytes
    )


def _best(results: list[Result], usual: _Usual) -> Result | None:
    pick = min if usual.quantity == "latency_s" else max
    return pick(results, key=lambda one: one.summary.median if one.summary else 0.0, default=None)


def _is_far(value: float, usual: _Usual) -> bool:
    if usual.quantity == "latency_s":
        return value >= usual.least.value / FAR_OFF
    return value <= usual.least.value * FAR_OFF

"""Baselines that are far worse than those of other machines of their class.

A run has nothing to compare its baselines with, so a machine that is slow in everything would pass. If machines with
the same class of processor were measured, a baseline at most a tenth as good as their worst is reported. That is a hint
and not a verdict, because classes are wide.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from railwright.checks.finding import BenchmarkPlace, Finding
from railwright.diagnosis.verdicts.verdict import format_quantity
from railwright.limits.limit import Constant, Quantity, Source
from railwright.results.declarations import Declarations, find_declaration
from railwright.results.records import Evidence, Result, find_size
from railwright.results.workload import Baseline
from railwright.topology.devices import DeviceKind, Topology
from railwright.units import MIB

FAR_OFF = 0.1
"""Our choice: far beyond the variation between machines of one class."""

_XEON, _HOPPER = ("Xeon",), ("H100", "H200")
_TWO_H200 = Source("Railwright docs/measured/2xh200", "paths through host memory, and its records")
_LOADS = Source(
    "Railwright docs/measured", "loads from a GPU's own memory in the records of 1 H100 and of 2 and 8 H200"
)
XEON_COPY = Constant(5.46e9, "bytes/s, the slowest of 18 copies of 64 MiB by one thread", _TWO_H200)
XEON_LINE = Constant(85.2e-9, "s, the slowest of 3 machines", _TWO_H200)
HOPPER_LOAD = Constant(143.5e-9, "s, the slowest of 21", _LOADS)


class _WorstKnown(NamedTuple):
    """The worst value of a baseline among measured machines of a class of processors."""

    supply: Baseline
    quantity: Quantity
    kind: DeviceKind
    names: tuple[str, ...]
    """Words that identify the class in device names."""
    least: Constant
    from_bytes: int = 0
    """The smallest size that it applies to."""


_KNOWN = (
    _WorstKnown("thread copy", "bandwidth_bytes_per_s", "cpu", _XEON, XEON_COPY, 64 * MIB),
    _WorstKnown("cache line", "latency_s", "cpu", _XEON, XEON_LINE),
    _WorstKnown("gpu load", "latency_s", "gpu", _HOPPER, HOPPER_LOAD),
)


def find_unusual(results: Iterable[Result], declarations: Declarations, topology: Topology) -> tuple[Finding, ...]:
    """Report baselines at most a tenth as good as the worst of their class, even in the best launch and size."""
    sound = [result for result in results if result.outcome == "measured" and result.summary is not None]
    return tuple(_find_far_off(sound, declarations, topology))


def _find_far_off(results: list[Result], declarations: Declarations, topology: Topology) -> Iterator[Finding]:
    for usual in _KNOWN:
        if not _is_class(usual, topology):
            continue
        best = _best_result([result for result in results if _supplies_baseline(result, usual, declarations)], usual)
        if best is None or best.summary is None or not _is_far(best.summary.median, usual):
            continue
        seen = format_quantity(usual.quantity, best.summary.median)
        worst = format_quantity(usual.quantity, usual.least.value)
        yield Finding(
            fault="far_from_its_class",
            where=(BenchmarkPlace(best.benchmark),),
            certainty="possible",
            says=f"{seen} at best, but measured {' and '.join(usual.names)} had {worst} at worst: points compared"
            " with this baseline may be slow, too",
            remedy="railwright audit; then the same measurement on a healthy machine of this kind",
            evidence=(Evidence(claim="class", value=f"{usual.kind} {usual.names[0]}", seen=usual.least.source.title),),
        )


def _is_class(usual: _WorstKnown, topology: Topology) -> bool:
    """Report whether all devices of the kind are of the class."""
    names = [device.name for device in topology.of_kind(usual.kind)]
    return bool(names) and all(any(word in name for word in usual.names) for name in names)


def _supplies_baseline(result: Result, usual: _WorstKnown, declarations: Declarations) -> bool:
    declared = find_declaration(result, declarations)
    source, _, target = result.path.partition(">")
    return (
        declared is not None
        and (declared.supplies, declared.quantity) == (usual.supply, usual.quantity)
        and source == target
        and (find_size(result.parameters) or 0) >= usual.from_bytes
    )


def _best_result(results: list[Result], usual: _WorstKnown) -> Result | None:
    pick = min if usual.quantity == "latency_s" else max
    return pick(results, key=lambda result: result.summary.median if result.summary else 0.0, default=None)


def _is_far(value: float, usual: _WorstKnown) -> bool:
    if usual.quantity == "latency_s":
        return value >= usual.least.value / FAR_OFF
    return value <= usual.least.value * FAR_OFF

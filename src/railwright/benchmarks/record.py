"""How a benchmark makes its records: from a blank one to what was measured, and what was not."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from msgspec.structs import replace

from railwright.limits.limit import Quantity
from railwright.results.records import Result
from railwright.results.statistics import summarise
from railwright.topology.devices import Scalar


def measured(
    blank: Result,
    samples: Sequence[float],
    quantity: Quantity | None = None,
    varied: dict[str, Scalar] | None = None,
    **more: Any,  # noqa: ANN401 - fields of Result
) -> Result:
    """The record with its samples; `varied` is added to its parameters."""
    return replace(
        blank,
        quantity=quantity or blank.quantity,
        parameters=blank.parameters | (varied or {}),
        samples=tuple(samples),
        summary=summarise(samples),
        **more,
    )


def waived(blank: Result, reason: str, varied: dict[str, Scalar] | None = None) -> Result:
    """The record of what could not run here; `varied` is added to its parameters."""
    return replace(blank, outcome="waived", reason=reason, parameters=blank.parameters | (varied or {}))


def failed_if(blank: Result, reason: str) -> Result:
    """The record as failed where there is a reason; as it is without one."""
    return replace(blank, outcome="failed", reason=reason) if reason else blank


def joined(cpus: Sequence[int]) -> str:
    """CPUs as they stand in a record: `0,2`."""
    return ",".join(map(str, cpus))


def wrong_on_ranks(counts: Sequence[int], what: str) -> str:
    """`4 bytes on rank 1, 8 bytes on rank 2`, the first three in full; empty where nothing is wrong on any rank."""
    wrong = [f"{count} {what} on rank {rank}" for rank, count in enumerate(counts) if count]
    more = f" and on {len(wrong) - 3} more ranks" if len(wrong) > 3 else ""
    return f"{', '.join(wrong[:3])}{more}"

"""Completes a benchmark's blank records with results, failures or reasons for not running."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from msgspec.structs import replace

from railwright.busbw import busbw_factor
from railwright.limits.limit import Quantity
from railwright.results.records import Result, Verification
from railwright.results.statistics import summarise
from railwright.topology.devices import Scalar


def complete(
    blank: Result,
    samples: Sequence[float],
    quantity: Quantity | None = None,
    varied: dict[str, Scalar] | None = None,
    **more: Any,  # noqa: ANN401 - fields of Result
) -> Result:
    """Complete a record with its samples; `varied` is added to its parameters."""
    return replace(
        blank,
        quantity=quantity or blank.quantity,
        parameters=blank.parameters | (varied or {}),
        samples=tuple(samples),
        summary=summarise(samples),
        **more,
    )


_MOST_SAMPLES = 4096
_SEED_BYTES = 6


def sample_stride(count: int) -> int:
    """Return the stride at which a record keeps samples, so that it holds at most 4096."""
    return -(-count // _MOST_SAMPLES)


def latencies(blank: Result, seconds: Sequence[float], **more: Any) -> Result:  # noqa: ANN401
    """Complete a record with every n-th latency and the summary of all of them."""
    kept = complete(blank, seconds[:: sample_stride(len(seconds))], "latency_s", **more)
    return replace(kept, summary=summarise(seconds))


def draw_seed() -> int:
    """Draw a pattern seed unique to this launch, so that neither old nor deduplicated data passes for new."""
    return int.from_bytes(os.urandom(_SEED_BYTES), "big")


def rates(blank: Result, operation: str, ranks: int, size_bytes: int, seconds: Sequence[float]) -> Iterator[Result]:
    """Yield the algbw and busbw records of a collective, as nccl-tests defines them."""
    algorithm, bus = [size_bytes / duration for duration in seconds], float(busbw_factor(operation, ranks))
    yield complete(blank, algorithm, varied={"rate": "algbw"})
    yield complete(blank, [bus * rate for rate in algorithm], varied={"rate": "busbw"})


def sum_checks(checks: Iterable[Verification]) -> Verification:
    """Add up the data checks of several targets or ranks."""
    collected = tuple(checks)
    checked, wrong = sum(check.bytes_checked for check in collected), sum(check.bytes_wrong for check in collected)
    return Verification(method=collected[0].method, bytes_checked=checked, bytes_wrong=wrong)


def waived(blank: Result, reason: str, varied: dict[str, Scalar] | None = None) -> Result:
    """Complete the record of a case that could not run here; `varied` is added to its parameters."""
    return replace(blank, outcome="waived", reason=reason, parameters=blank.parameters | (varied or {}))


def failed_if(blank: Result, reason: str) -> Result:
    """Mark a record as failed if there is a reason; otherwise return it unchanged."""
    return replace(blank, outcome="failed", reason=reason) if reason else blank


def format_cpus(cpus: Sequence[int]) -> str:
    """Format CPUs for a record: `0,2`."""
    return ",".join(map(str, cpus))


def format_wrong(counts: Sequence[int], what: str) -> str:
    """Format wrong counts by rank: `4 bytes on rank 1, 8 bytes on rank 2`.

    Lists three ranks and counts the rest. Returns an empty string if nothing is wrong.
    """
    wrong = [f"{count} {what} on rank {rank}" for rank, count in enumerate(counts) if count]
    more = f" and on {len(wrong) - 3} more ranks" if len(wrong) > 3 else ""
    return f"{', '.join(wrong[:3])}{more}"

"""How a benchmark makes its records: from a blank one to what was measured, and what was not."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from msgspec.structs import replace

from railwright.busbw import factor
from railwright.limits.limit import Quantity
from railwright.results.records import Result, Verification
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


_MOST_SAMPLES = 4096
_SEED_BYTES = 6


def every_nth(count: int) -> int:
    """A record keeps every n-th of so many samples."""
    return -(-count // _MOST_SAMPLES)


def latencies(blank: Result, seconds: Sequence[float], **more: Any) -> Result:  # noqa: ANN401
    """The record with every n-th latency, and the summary of all of them."""
    kept = measured(blank, seconds[:: every_nth(len(seconds))], "latency_s", **more)
    return replace(kept, summary=summarise(seconds))


def drawn_seed() -> int:
    """The seed of a pattern that no other launch has, so that neither old data nor deduplicated data passes for new."""
    return int.from_bytes(os.urandom(_SEED_BYTES))


def rates(blank: Result, operation: str, ranks: int, size_bytes: int, seconds: Sequence[float]) -> Iterator[Result]:
    """The records of both rates of a collective, as nccl-tests has them."""
    algorithm, bus = [size_bytes / second for second in seconds], float(factor(operation, ranks))
    yield measured(blank, algorithm, varied={"rate": "algbw"})
    yield measured(blank, [bus * rate for rate in algorithm], varied={"rate": "busbw"})


def summed(checks: Iterable[Verification]) -> Verification:
    """One data check of several targets, or of several ranks."""
    every = tuple(checks)
    checked, wrong = sum(one.bytes_checked for one in every), sum(one.bytes_wrong for one in every)
    return Verification(method=every[0].method, bytes_checked=checked, bytes_wrong=wrong)


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

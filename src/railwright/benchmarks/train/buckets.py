"""Division of a model's gradients into buckets, each a single all-reduce. Pure arithmetic.

Gradients are in the order in which a backward pass completes them, the last layer's first. They are contiguous in that
order, so that a bucket is a range of elements.
"""

from __future__ import annotations

import bisect
import itertools
from collections.abc import Sequence
from typing import NamedTuple

from railwright.errors import UsageError
from railwright.units import format_size, parse_size

SINGLE = "single"
TENSOR = "tensor"
MOST_BUCKETS = 4096
_LEAST_BUCKET_BYTES = 1024
_SLICE_ELEMENTS = 64
"""The alignment of slices, so that a matrix in one is aligned for tensor cores."""


class Bucket(NamedTuple):
    """A range of gradient elements summed by one all-reduce."""

    first: int
    elements: int

    @property
    def end(self) -> int:
        """The first element behind the bucket."""
        return self.first + self.elements


def parse_bucket(text: str) -> int | str:
    """Parse `25M` as bytes, or `single` (one for all gradients) or `tensor` (one for each). Raises UsageError."""
    name = text.strip()
    if name in (SINGLE, TENSOR):
        return name
    size = parse_size(name)
    if size < _LEAST_BUCKET_BYTES:
        raise UsageError(f"a bucket must be at least {format_size(_LEAST_BUCKET_BYTES)}, got {format_size(size)}",
                         hint=f"give a size like 25M, {SINGLE} or {TENSOR}")  # fmt: skip
    return size


def parse_buckets(text: str) -> tuple[str, ...]:
    """Parse `25M,single` into distinct kinds as they are printed: `25M`, `single`. Raises UsageError."""
    kinds = [parse_bucket(part) for part in text.split(",")]
    return tuple(dict.fromkeys(kind if isinstance(kind, str) else format_bucket(kind) for kind in kinds))


def format_bucket(size_bytes: int) -> str:
    """Format `25M`, `512K` or `1500`, which `parse_bucket` reads as the same size."""
    for letter, factor in (("G", 1 << 30), ("M", 1 << 20), ("K", 1 << 10)):
        if size_bytes % factor == 0:
            return f"{size_bytes // factor}{letter}"
    return str(size_bytes)


def cut(kind: str, gradients: Sequence[int], element_bytes: int, *, divisible: bool) -> tuple[Bucket, ...]:
    """Divide gradients of these sizes into buckets.

    A bucket of whole tensors is closed as soon as it reaches its size, as in PyTorch's DistributedDataParallel.
    `divisible` cuts through gradients, so that every bucket but the last has exactly its size. Raises UsageError for
    more than MOST_BUCKETS such buckets.
    """
    total, asked = sum(gradients), parse_bucket(kind)
    if asked == SINGLE:
        counts = [total]
    elif asked == TENSOR:
        counts = list(gradients)
    else:
        most = max(1, int(asked) // element_bytes)
        if total // most > MOST_BUCKETS and divisible:
            raise UsageError(f"buckets of {kind} make {total // most} parts, more than {MOST_BUCKETS}",
                             hint="choose larger buckets")  # fmt: skip
        counts = _divide_evenly(total, most) if divisible else _close_buckets(gradients, most)
    starts = itertools.accumulate(counts[:-1], initial=0)
    return tuple(Bucket(first, count) for first, count in zip(starts, counts, strict=True))


def _divide_evenly(total: int, most: int) -> list[int]:
    return [min(most, total - first) for first in range(0, total, most)]


def _close_buckets(gradients: Sequence[int], enough: int) -> list[int]:
    counts, held = [], 0
    for count in gradients:
        held += count
        if held >= enough:
            counts.append(held)
            held = 0
    return [*counts, held] if held else counts


def last_parts(buckets: Sequence[Bucket], parts: Sequence[int]) -> tuple[int, ...]:
    """Return, for each bucket, the number from 0 of the part whose elements complete it."""
    ends = list(itertools.accumulate(parts))
    return tuple(bisect.bisect_left(ends, bucket.end) for bucket in buckets)


def slices(total: int, wanted: int) -> tuple[int, ...]:
    """Divide `total` elements into at most `wanted` nearly equal slices; all but the last are multiples of 64."""
    unit = _SLICE_ELEMENTS
    starts = sorted({total * index // wanted // unit * unit for index in range(wanted)})
    return tuple(end - start for start, end in itertools.pairwise((*starts, total)))

"""What the program that asks NVML tells of itself: which counters it keeps in the memory that it shares with us."""

from __future__ import annotations

import msgspec

from railwright.sampling.sources import Source

GPU_MEMORY = "nvml"
"""The `path` of a source whose number is there, at its `field`; of a `late` one its ring."""
MOST_NUMBERS = 16384


class GpusFound(msgspec.Struct, frozen=True, kw_only=True):
    """The counters that NVML has an answer to."""

    sources: tuple[Source, ...] = ()
    missing: dict[str, str] = {}
    problem: str = ""
    """Why there are none."""
    often_s: float = 0.0
    """CPU seconds that asking once for all that is wanted often takes."""
    seldom_s: float = 0.0
    """And for all the others."""

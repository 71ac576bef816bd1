"""The report of the program that reads NVML: the counters that it keeps in shared memory."""

from __future__ import annotations

import msgspec

from railwright.sampling.sources import Source

GPU_MEMORY = "nvml"
"""The `path` of a source in the shared memory; `field` is the index of its number, or of its ring if it is `late`."""
MAX_NUMBERS = 16384


class GpusFound(msgspec.Struct, frozen=True, kw_only=True):
    """The counters that NVML provides."""

    sources: tuple[Source, ...] = ()
    missing: dict[str, str] = {}
    problem: str = ""
    """The reason if there are none."""
    often_s: float = 0.0
    """CPU seconds to read all frequent sources once."""
    seldom_s: float = 0.0
    """CPU seconds to read all other sources once."""

"""Options of sample reading, and the parameters that its launches vary."""

from __future__ import annotations

import math

from railwright.benchmarks.job import Case
from railwright.benchmarks.options import Options, choice, option, whole_number
from railwright.errors import UsageError
from railwright.units import parse_size

OWN = "none"
"""The value for which the benchmark makes samples instead of using the user's folder."""
LIBRARY, DIRECT, BOUNCE, GDS = "h5py", "direct", "bounce", "gds"
READERS = (LIBRARY, DIRECT, BOUNCE, GDS)
ON_GPU = (BOUNCE, GDS)
BYTES_PER_VALUE = 4
_MOST_RANKS, _MOST_SAMPLES, _MOST_DIMENSIONS = 512, 100_000, 8
_MOST_VALUES = 2**31
_FASTEST = 1e6
_MOST_PACES = 8


def _parse_shape(text: str) -> tuple[int, ...]:
    """Parse `768x1152x16`. Raises UsageError."""
    parts = text.split("x")
    are_numbers = all(len(part) < 11 and part.isascii() and part.isdecimal() for part in parts)
    if len(parts) > _MOST_DIMENSIONS or not are_numbers:
        raise UsageError(f"must be whole numbers, got {text[:40]!r}", hint="write it like 768x1152x16")
    shape = tuple(map(int, parts))
    if not 0 < math.prod(shape) <= _MOST_VALUES:
        raise UsageError(f"a sample must have 1 to {_MOST_VALUES} values, got {math.prod(shape)}")
    return shape


def _parse_paces(text: str) -> tuple[float, ...]:
    """Parse samples per second, each above 0. Raises UsageError."""
    found = []
    for part in text.split(","):
        try:
            pace = float(part)
        except ValueError:
            pace = math.nan
        if not 0.001 <= pace <= _FASTEST:
            hint = f"give a number from 0.001 to {_FASTEST:g}"
            raise UsageError(f"must be samples per second, got {part.strip()[:40]!r}", hint=hint)
        found.append(pace)
    if len(found) > _MOST_PACES:
        raise UsageError(f"at most {_MOST_PACES} paces are allowed, got {len(found)}")
    return tuple(dict.fromkeys(found))


class SampleOptions(Options, frozen=True):
    """Options of the ranks' samples and readers, and of the consumer's pace."""

    files: str = option(OWN, f"a folder of your HDF5 files, one sample in each, or {OWN} to make files", str)
    dataset: str = option("climate/data", "the dataset of each file that is the sample", str)
    directory: str = option(".", "a folder on the file system to measure, for generated files", str)
    shape: tuple[int, ...] = option("768x1152x16", "the shape of a generated sample of float32", _parse_shape)
    samples: int = option("16", "samples per rank", whole_number(_MOST_SAMPLES))
    reader: tuple[str, ...] = option(
        ",".join(READERS),
        f"{LIBRARY} (to host memory), {DIRECT} (past the page cache), {BOUNCE} (to a GPU, through pinned memory), "
        f"{GDS} (GPUDirect Storage), or several",
        choice(*READERS),
    )
    cache: tuple[str, ...] = option(
        "cold", f"for {LIBRARY}: cold (not in the page cache), hot, or both", choice("cold", "hot")
    )
    pace: tuple[float, ...] = option("16", "samples a second that each rank's consumer takes, like 16,64", _parse_paces)
    prefetch: int = option("2", "samples that are read ahead", whole_number(1024))
    io_threads: int = option("4", "concurrent reads of one sample", whole_number(256))
    block: int = option("1M", "size of one read, except h5py's", parse_size)
    passes: int = option("3", "passes over all samples at each point", whole_number(1000))
    ranks: int = option("1", "ranks without --hosts; each reads samples of its own", whole_number(_MOST_RANKS))

    @property
    def folder(self) -> str:
        """The folder on the file system that is measured."""
        return self.directory if self.files == OWN else self.files

    @property
    def sample_bytes(self) -> int:
        """The size of a generated sample."""
        return math.prod(self.shape) * BYTES_PER_VALUE


class SampleCase(Case, frozen=True, kw_only=True):
    """The reader that a launch varies."""

    reader: str

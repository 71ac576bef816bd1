"""The samples of a rank: generated files in a folder of the run, or the rank's share of the user's files."""

from __future__ import annotations

import contextlib
import os
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from railwright.benchmarks.benchmark import Rank
from railwright.benchmarks.files.direct_file import SEED
from railwright.benchmarks.files.shared_folder import shared_folder
from railwright.benchmarks.samples import hdf5_files
from railwright.benchmarks.samples.hdf5_files import Sample
from railwright.benchmarks.samples.options import OWN, SampleCase, SampleOptions
from railwright.benchmarks.samples.readers import Reader, read_at
from railwright.benchmarks.together import open_on_all_ranks
from railwright.errors import CannotJudge
from railwright.native.memory import PATTERN, Buffer
from railwright.topology.sources.available_memory import available_memory_bytes
from railwright.units import format_size

SampleRank = Rank[SampleOptions, SampleCase]

_ENDINGS = (".h5", ".hdf5", ".hdf", ".he5")


@dataclass(frozen=True)
class Source:
    """A rank's samples and their expected content."""

    samples: tuple[Sample, ...]
    seeds: tuple[int, ...]
    """The pattern seed of each generated sample."""
    checksums: tuple[int, ...]
    """The CRC-32 of each of the user's samples."""

    @property
    def size_bytes(self) -> int:
        """The size of all samples."""
        return sum(sample.size_bytes for sample in self.samples)

    @property
    def method(self) -> str:
        """The method of the data check."""
        return PATTERN if self.seeds else "the CRC-32 of each sample against a plain read of it"

    def wrong_bytes(self, reader: Reader, sample: Sample, slot: int) -> int:
        """Count the wrong bytes in a slot; a wrong checksum counts them all."""
        number = self.samples.index(sample)
        if self.seeds:
            return reader.wrong_bytes(sample, slot, self.seeds[number])
        return 0 if reader.checksum(sample, slot) == self.checksums[number] else sample.size_bytes


def list_users_files(folder: str) -> list[Path]:
    """List a folder's HDF5 files by name. Raises CannotJudge, OSError."""
    found = sorted(path for path in Path(folder).iterdir() if path.suffix.lower() in _ENDINGS and path.is_file())
    if not found:
        raise CannotJudge(f"{folder} has no HDF5 file", hint=f"files end in {', '.join(_ENDINGS)}")
    return found


def open_source(rank: SampleRank, stack: contextlib.ExitStack) -> Source:
    """Return a rank's samples. Collective. Raises Unavailable on all ranks if one has none."""
    options = rank.job.options
    if options.files != OWN:
        rank.step(f"reading the metadata of the files in {options.files}")
        return open_on_all_ranks(rank, lambda: _open_users_samples(rank, stack))
    rank.step(f"making {options.samples} samples in {options.directory}")
    folder = stack.enter_context(shared_folder(rank, options.directory))
    return open_on_all_ranks(rank, lambda: _make_samples(rank, stack, folder))


def _make_samples(rank: SampleRank, stack: contextlib.ExitStack, folder: int) -> Source:
    options = rank.job.options
    first = SEED + rank.index * options.samples
    seeds = tuple(range(first, first + options.samples))
    samples = []
    with Buffer(options.sample_bytes) as buffer:
        for number, seed in enumerate(seeds):
            path = f"/proc/self/fd/{folder}/f{number}"
            hdf5_files.make(path, options.dataset, options.shape, buffer, seed)
            samples.append(_open_sample(path, stack, options.dataset))
            os.fsync(samples[-1].fd)
    return Source(tuple(samples), seeds, ())


def _open_users_samples(rank: SampleRank, stack: contextlib.ExitStack) -> Source:
    options = rank.job.options
    try:
        paths = list_users_files(options.files)
    except OSError as error:
        raise CannotJudge(f"{options.files} cannot be read: {error.strerror}") from error
    own = paths[rank.index :: rank.size][: options.samples]
    if not own:
        raise CannotJudge(f"{options.files} has {len(paths)} HDF5 files, fewer than the {rank.size} ranks")
    samples = tuple(_open_sample(str(path), stack, options.dataset) for path in own)
    _check_alike(samples, (options.prefetch + 2) * rank.job.ranks_on_cpus)
    return Source(samples, (), tuple(_checksum(sample, options.dataset) for sample in samples))


def _open_sample(path: str, stack: contextlib.ExitStack, dataset: str) -> Sample:
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        stack.callback(os.close, fd)
    except OSError as error:
        raise CannotJudge(f"{path} cannot be read: {error.strerror}") from error
    try:
        direct_fd = os.open(path, os.O_RDONLY | os.O_DIRECT | os.O_CLOEXEC)
        stack.callback(os.close, direct_fd)
    except OSError:
        direct_fd = -1
    return hdf5_files.inspect_file(path, fd, direct_fd, dataset)


def _check_alike(samples: Sequence[Sample], copies: int) -> None:
    """Raise CannotJudge for samples of different kinds, or if the copies do not fit in memory."""
    first = samples[0]
    other = next((sample for sample in samples if sample.like != first.like), None)
    if other is not None:
        kinds = [f"{'x'.join(map(str, shape))} of {kind}" for kind, shape in (first.like, other.like)]
        raise CannotJudge(f"samples of one kind are needed: {first.path} has {kinds[0]}, {other.path} has {kinds[1]}")
    free = available_memory_bytes()
    if free is not None and copies * first.size_bytes > free:
        need = f"{copies} of {format_size(first.size_bytes)} at once"
        raise CannotJudge(f"samples do not fit in the free memory: {need}, but {format_size(free)} is free")


def _checksum(sample: Sample, dataset: str) -> int:
    """Return the CRC-32 of a plain read if the sample is contiguous, else of h5py's read."""
    with Buffer(sample.size_bytes) as buffer:
        values = hdf5_files.view(buffer, 0, sample.size_bytes)
        if sample.at < 0:
            hdf5_files.read_into(sample, dataset, values)
        else:
            read_at(sample, sample.fd, memoryview(values), sample.at)
        return zlib.crc32(values)

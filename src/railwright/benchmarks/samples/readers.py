"""Readers of samples into slots of memory: h5py, reads past the page cache, and routes to a GPU.

A slot holds the sample and the remainders of the file blocks at its ends.
"""

from __future__ import annotations

import array
import contextlib
import os
import zlib
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from railwright.benchmarks.samples import hdf5_files
from railwright.benchmarks.samples.hdf5_files import Sample
from railwright.benchmarks.samples.options import SampleOptions
from railwright.errors import CannotJudge
from railwright.native import cufile
from railwright.native.cuda import Device, DeviceBuffer, PinnedBuffer
from railwright.native.cufile import CuFile
from railwright.native.memory import Buffer

POISON = 0xA5
_ALIGNMENT = 4096


def first_block(sample: Sample) -> int:
    """Return the offset of the file block in which the sample begins."""
    return sample.at - sample.at % _ALIGNMENT


def slot_bytes(samples: Sequence[Sample]) -> int:
    """Return the size of a slot: the largest sample with the file blocks at both of its ends, in whole blocks."""
    most = max(sample.size_bytes for sample in samples) + 2 * _ALIGNMENT
    return most + -most % _ALIGNMENT


class _InHostMemory:
    """Slots of host memory."""

    def __init__(self, stack: contextlib.ExitStack, slots: int, size_bytes: int) -> None:
        self._slots = [stack.enter_context(Buffer(size_bytes)) for _ in range(slots)]
        self._views = [hdf5_files.view(slot, 0, size_bytes) for slot in self._slots]

    def poison(self) -> None:
        """Overwrite all slots with poison."""
        for view in self._views:
            view.fill(POISON)

    def wrong_bytes(self, sample: Sample, slot: int, seed: int) -> int:
        """Count the bytes of the sample in the slot that differ from the pattern."""
        return self._slots[slot].count_wrong(seed, sample.size_bytes, start=self._start(sample))

    def checksum(self, sample: Sample, slot: int) -> int:
        """Return the CRC-32 of the sample in the slot."""
        start = self._start(sample)
        return zlib.crc32(self._views[slot][start : start + sample.size_bytes])

    def _start(self, sample: Sample) -> int:
        raise NotImplementedError


class LibraryReader(_InHostMemory):
    """h5py, which opens each file anew, as a loader does; the page cache may hold it."""

    def __init__(self, stack: contextlib.ExitStack, slots: int, size_bytes: int, dataset: str) -> None:
        super().__init__(stack, slots, size_bytes)
        self._dataset = dataset

    def read(self, sample: Sample, slot: int) -> None:
        """Read the sample to the start of the slot."""
        hdf5_files.read_into(sample, self._dataset, self._views[slot][: sample.size_bytes])

    def _start(self, sample: Sample) -> int:
        del sample
        return 0


class DirectReader(_InHostMemory):
    """Several reads at once past the page cache, at the sample's place in its file."""

    def __init__(self, stack: contextlib.ExitStack, slots: int, size_bytes: int, options: SampleOptions) -> None:
        super().__init__(stack, slots, size_bytes)
        self._block = options.block
        self._pool = stack.enter_context(ThreadPoolExecutor(options.io_threads))

    def read(self, sample: Sample, slot: int) -> None:
        """Read the file blocks that hold the sample into the slot."""
        view, begin = memoryview(self._views[slot]), first_block(sample)
        length = sample.at + sample.size_bytes - begin
        length += -length % _ALIGNMENT

        def read_block(at: int) -> None:
            wanted = min(self._block, length - at)
            read_at(sample, sample.direct_fd, view[at : at + wanted], begin + at)

        for _ in self._pool.map(read_block, range(0, length, self._block)):
            pass

    def _start(self, sample: Sample) -> int:
        return sample.at - first_block(sample)


def read_at(sample: Sample, fd: int, into: memoryview, at: int) -> None:
    """Read bytes of the file; the last block may reach beyond its end.

    Raises CannotJudge if the file ends within the sample.
    """
    got, needed = 0, min(len(into), sample.at + sample.size_bytes - at)
    while got < needed:
        try:
            now = os.preadv(fd, [into[got:]], at + got)
        except OSError as error:
            raise CannotJudge(f"{sample.path} cannot be read: {error.strerror}") from error
        if not now:
            raise CannotJudge(f"{sample.path} ends at {at + got}, within the sample")
        got += now


class GpuReader:
    """Reads to a GPU, through Railwright's pinned buffers or by cuFile. Partial blocks go through host memory."""

    def __init__(
        self,
        stack: contextlib.ExitStack,
        device: Device,
        slots: int,
        size_bytes: int,
        options: SampleOptions,
        cpus: Sequence[int],
    ) -> None:
        self._block, self._slot_bytes = options.block, size_bytes
        self._cpus = tuple(cpus[worker % len(cpus)] for worker in range(options.io_threads))
        self._buffer = stack.enter_context(DeviceBuffer(device, slots * size_bytes))
        self._rest = stack.enter_context(Buffer(max(options.block, _ALIGNMENT)))
        self._through: CuFile | PinnedBuffer

    def use_pinned(self, stack: contextlib.ExitStack) -> None:
        """Read through Railwright's own pinned buffers from now on."""
        self._through = stack.enter_context(PinnedBuffer(self._buffer.device, self._block * len(self._cpus)))

    def use_cufile(self, stack: contextlib.ExitStack, folder: Path, samples: Sequence[Sample]) -> None:
        """Read by GPUDirect Storage alone from now on. Raises CannotJudge or NativeError if cuFile refuses."""
        first, *others = samples
        self._through = driver = stack.enter_context(CuFile(folder, "gds", first.direct_fd, self._buffer))
        for sample in others:
            driver.register(sample.direct_fd)

    def operations(self, sample: Sample) -> int:
        """Return the number of reads of whole blocks for a sample."""
        return (sample.at + sample.size_bytes - first_block(sample)) // self._block

    def read(self, sample: Sample, slot: int) -> None:
        """Read the file blocks that hold the sample into the slot."""
        begin, whole = first_block(sample), self.operations(sample)
        offsets = array.array("q", (begin + self._block * number for number in range(whole)))
        shift = slot * self._slot_bytes - begin
        if whole:
            cufile.gpu_pass(
                *((sample.direct_fd,), self._buffer, self._through, offsets, self._block, self._cpus),
                write=False, shift=shift,
            )  # fmt: skip
        at = begin + whole * self._block
        left = sample.at + sample.size_bytes - at
        if left:
            read_at(sample, sample.fd, memoryview(hdf5_files.view(self._rest, 0, left)), at)
            self._buffer.copy_from(self._rest.address, left, at + shift)

    def poison(self) -> None:
        """Overwrite all slots with poison."""
        self._buffer.set_bytes(POISON)

    def wrong_bytes(self, sample: Sample, slot: int, seed: int) -> int:
        """Count the bytes of the sample in the slot that differ from the pattern, on the GPU."""
        return self._buffer.count_wrong(seed, sample.size_bytes, start=self._start(sample, slot))

    def checksum(self, sample: Sample, slot: int) -> int:
        """Return the CRC-32 of the sample in the slot, copied to the host."""
        with Buffer(sample.size_bytes) as copied:
            self._buffer.copy_to(copied.address, sample.size_bytes, self._start(sample, slot))
            return zlib.crc32(hdf5_files.view(copied, 0, sample.size_bytes))

    def _start(self, sample: Sample, slot: int) -> int:
        return slot * self._slot_bytes + sample.at - first_block(sample)


Reader = LibraryReader | DirectReader | GpuReader
"""Reads samples into slots and checks their bytes there."""

"""Samples in HDF5 files by h5py: making them, and checking a file's metadata against its size.

Only ranks import this module, because it loads h5py.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeVar

import h5py
import numpy as np

from railwright.benchmarks.samples.options import BYTES_PER_VALUE
from railwright.errors import CannotJudge
from railwright.native.memory import Buffer

VERSION: str = f"h5py {h5py.__version__}, HDF5 {h5py.version.hdf5_version}"
_ALIGNMENT = 4096
_LAYOUTS = {h5py.h5d.CHUNKED: "chunks", h5py.h5d.COMPACT: "the header", h5py.h5d.VIRTUAL: "other files"}

Answer = TypeVar("Answer")


class Sample(NamedTuple):
    """A sample: a dataset of a file."""

    path: str
    """The file's path for h5py: HDF5 opens no file without a name."""
    fd: int
    """The file, open for reads through the page cache."""
    direct_fd: int
    """The file, open for reads past the page cache; -1 if the file system refuses that."""
    size_bytes: int
    at: int
    """The offset of its contiguous bytes in the file; -1 if they are not contiguous."""
    elsewhere: str
    """A description of its layout if it is not contiguous."""
    like: tuple[str, tuple[int, ...]]
    """The type and shape of the dataset."""


def make(path: str, dataset: str, shape: Sequence[int], buffer: Buffer, seed: int) -> None:
    """Write a new file with a sample of `seed`'s pattern. Raises CannotJudge for a full disk and similar errors."""
    size = int(np.prod(shape, dtype=np.int64)) * BYTES_PER_VALUE
    buffer.fill(seed, size)
    values = view(buffer, 0, size).view("<f4").reshape(shape)

    def write() -> None:
        # The data begins at a block of the file system, so that reads past the page cache can begin there.
        with h5py.File(path, "x", locking=False, alignment_threshold=_ALIGNMENT,
                       alignment_interval=_ALIGNMENT) as file:  # fmt: skip
            file.create_dataset(dataset, data=values)

    call_h5py("a test file", write)


def view(buffer: Buffer, start: int, size_bytes: int) -> Any:  # noqa: ANN401 - numpy's array
    """Return bytes of a buffer as an array."""
    kind = ctypes.c_ubyte * size_bytes
    return np.ctypeslib.as_array(kind.from_address(buffer.address + start))


def inspect_file(path: str, fd: int, direct_fd: int, dataset: str) -> Sample:
    """Inspect a file. Raises CannotJudge if it is truncated or inconsistent, or does not itself hold the dataset."""
    return call_h5py(path, lambda: _inspect_file(path, fd, direct_fd, dataset))


def _inspect_file(name: str, fd: int, direct_fd: int, dataset: str) -> Sample:
    with h5py.File(name, "r", locking=False) as file:
        found = file.get(dataset)
        if not isinstance(found, h5py.Dataset):
            known = [key for key, value in _list_first_members(file) if isinstance(value, h5py.Dataset)]
            hint = f"it has {', '.join(known)}: dataset=..." if known else "name one by dataset=..."
            raise CannotJudge(f"{name} has no dataset {dataset!r}", hint=hint)
        if found.file.filename != file.filename or found.is_virtual or found.external:
            raise CannotJudge(f"{dataset} of {name} lies in other files, which are not read")
        if found.dtype.hasobject or found.dtype.itemsize == 0 or not found.size:
            raise CannotJudge(f"{dataset} of {name} has no values of a fixed size, but {found.shape} of {found.dtype}")
        size = int(found.size) * found.dtype.itemsize
        layout = found.id.get_create_plist().get_layout()
        at = found.id.get_offset() if layout == h5py.h5d.CONTIGUOUS else None
        end = os.fstat(fd).st_size
        if layout == h5py.h5d.CONTIGUOUS and at is None:
            raise CannotJudge(f"{dataset} of {name} was never written")
        if at is not None and at + size > end:
            raise CannotJudge(f"{name} is cut off: {dataset} ends at {at + size}, and the file at {end}")
        like = (str(found.dtype), tuple(map(int, found.shape)))
        return Sample(name, fd, direct_fd, size, -1 if at is None else at, _LAYOUTS.get(layout, "pieces"), like)


def _list_first_members(file: Any) -> list[tuple[str, Any]]:  # noqa: ANN401
    """List the first few members of the file and its groups by path."""
    found: list[tuple[str, Any]] = []
    for key in list(file)[:8]:
        value = file.get(key)
        found.append((key, value))
        if isinstance(value, h5py.Group):
            found += [(f"{key}/{inner}", value.get(inner)) for inner in list(value)[:8]]
    return found[:16]


def read_into(sample: Sample, dataset: str, values: Any) -> None:  # noqa: ANN401
    """Read the sample by h5py, including the open, as a loader does. Raises CannotJudge."""

    def read() -> None:
        kind, shape = sample.like
        with h5py.File(sample.path, "r", locking=False) as file:
            file[dataset].read_direct(values.view(kind).reshape(shape))

    call_h5py(sample.path, read)


def call_h5py(name: str, ask: Callable[[], Answer]) -> Answer:
    """Return the result of a call to h5py. Raises its errors as CannotJudge with one line of text."""
    try:
        return ask()
    except (OSError, RuntimeError, ValueError, KeyError, TypeError) as error:
        said = " ".join(str(error).split())[:200]
        raise CannotJudge(f"{name} cannot be read or written: {said}") from error

"""Operations on many files of one folder (`tree.c`): create, stat, read, verify and remove, by one thread."""

from __future__ import annotations

from ctypes import POINTER, Structure, byref, c_double, c_int, c_int64, c_uint64, cast
from typing import Literal, NamedTuple

from railwright.native.library import check_result, fields, function, seconds_array, system_error

Operation = Literal["write", "stat", "read", "check", "delete"]
OPERATIONS: tuple[Operation, ...] = ("write", "stat", "read", "check", "delete")
STAMPED = "every byte against splitmix64 and, in each sector's first word, its file and block"
_SHORT = -1201


class _Tree(Structure):
    """The layout of `struct rw_tree` in tree.c."""

    _fields_ = (
        *fields(c_int, "folder", "operation", "direct", "sync"),
        *fields(c_int64, "files", "bytes", "block"),
        ("seed", c_uint64),
        ("ends", POINTER(c_double)),
        ("start", c_double),
        *fields(c_int64, "wrong", "at"),
    )


class Files(NamedTuple):
    """The number and shape of a rank's files."""

    number: int
    size_bytes: int
    block_bytes: int
    """The size of a read or write."""
    direct: bool = False
    sync: bool = False
    """Whether each written file is synced by fsync before it is closed."""

    def operations(self, operation: Operation) -> int:
        """Return the number of timed operations of a pass: one per block for data, otherwise one per file."""
        if operation in ("stat", "delete"):
            return self.number
        return self.number * max(1, -(-self.size_bytes // self.block_bytes))


class Walk(NamedTuple):
    """The result of an operation on all files."""

    ends_s: list[float]
    """The seconds from the start of the first operation to the end of each."""
    wrong_bytes: int

    @property
    def elapsed_s(self) -> float:
        """The time from the first start to the last end."""
        return self.ends_s[-1]


def walk(folder: int, operation: Operation, files: Files, seed: int) -> Walk:
    """Run an operation on the files of an open folder, in order. `write` creates files and overwrites none.

    Raises NativeError with the errno and the file.
    """
    ends = seconds_array(files.operations(operation))
    one = _Tree(
        folder=folder,
        operation=OPERATIONS.index(operation),
        direct=int(files.direct),
        sync=int(files.sync),
        files=files.number,
        bytes=files.size_bytes,
        block=files.block_bytes,
        seed=seed,
        ends=cast(ends, POINTER(c_double)),
    )
    code = function("rw_tree", c_int, POINTER(_Tree))(byref(one))
    check_result(
        f"{operation} of file f{one.at - 1}", code, "it ends too early" if code == _SHORT else system_error(code)
    )
    return Walk(list(ends), one.wrong)

"""MPI as the ranks use it: mpi4py sets up, the timed calls are in `mpi.c`.

The thread level is `single`, because MPI's own locks cost 0.1 us a message at `multiple`; it is part of every record.
"""

from __future__ import annotations

import ctypes
import os
from ctypes import POINTER, Structure, c_double, c_int, c_ssize_t, c_void_p
from pathlib import Path
from typing import TYPE_CHECKING

from railwright.errors import CannotJudge
from railwright.native import library
from railwright.native.library import fields, function, seconds_array
from railwright.native.memory import Buffer

if TYPE_CHECKING:
    from mpi4py.MPI import Comm, Intracomm

THREAD_LEVEL = "single"

_MPICH_SEGMENT = "/dev/shm/mpich_shm_"  # noqa: S108 - MPICH's name, read only to be removed


class _Mpi(Structure):
    """Laid out as `struct rw_mpi` in mpi.c."""

    _fields_ = (
        *fields(c_ssize_t, "comm", "byte"),
        ("status_ignore", c_void_p),
        *fields(c_int, "rank", "request_bytes"),
    )


def initialise() -> Intracomm:
    """MPI_Init, once per process; the world communicator, for `first_use`.

    Raises CannotJudge where no MPI can be loaded.
    """
    import mpi4py

    mpi4py.rc.thread_level = THREAD_LEVEL
    try:
        from mpi4py import MPI
    except (ImportError, RuntimeError) as error:
        reason = str(error).splitlines()[-1]
        hint = "install the `openmpi` package, or name one in MPI4PY_LIBMPI"
        raise CannotJudge(f"no MPI library can be loaded: {reason}", hint=hint) from error
    return MPI.COMM_WORLD


def first_use(comm: Intracomm) -> None:
    """Attach all ranks to each other, and take the names of what they share away. First all must have left MPI_Init.

    Open MPI 5 relies on a fence of its launcher for that, and under Slurm's srun (22.05) a rank may pass it while
    another is inside; what it sends then ends the other by a segmentation fault in
    `mca_pml_ob1_recv_frag_callback_match` (open-mpi/ompi, issue 12495).
    """
    comm.Barrier()
    _unlink_segments()


def _unlink_segments() -> None:
    """Take the names of MPICH's shared memory away once all ranks are attached, so that a kill leaves none behind."""
    for path in _mapped_files():
        if path.startswith(_MPICH_SEGMENT):
            Path(path).unlink(missing_ok=True)


def _mapped_files() -> list[str]:
    with Path("/proc/self/maps").open(encoding="utf-8") as maps:
        return sorted({"/" + line.rstrip("\n").partition("/")[2] for line in maps if "/" in line})


def library_version() -> str:
    """The first line of what the MPI library says of itself: `Open MPI v5.0.11`."""
    from mpi4py import MPI

    first = MPI.Get_library_version().strip("\0\n ").splitlines()[0]
    return " ".join(first.split(",")[0].replace("Version:", " ").split())


def thread_level() -> str:
    """The level that the MPI library granted: `single` as asked, or a higher one."""
    from mpi4py import MPI

    names = {MPI.THREAD_SINGLE: "single", MPI.THREAD_FUNNELED: "funneled", MPI.THREAD_SERIALIZED: "serialized"}
    return names.get(MPI.Query_thread(), "multiple")


def has_mpich_abi() -> bool:
    """Whether the library has the ABI of MPICH and not Open MPI's: an int handle (4 bytes) is its mark."""
    from mpi4py import MPI

    return MPI._sizeof(MPI.Comm) == ctypes.sizeof(c_int)


def bind(binder: str) -> None:
    """Bind a loop library's functions, by its C function `binder`, to the libmpi that mpi4py loaded.

    Raises CannotJudge where that library cannot be found, NativeError where it lacks a function.
    """
    library.checked("MPI", function(binder, c_int, c_void_p)(ctypes.CDLL(library_path())._handle))


def checked(code: int) -> None:
    """Raises NativeError for what a loop returned, in the MPI library's own words where the error is MPI's."""
    from mpi4py import MPI

    library.checked("MPI", code, MPI.Get_error_string(code) if code > 0 else "")


def library_path() -> str:
    """The libmpi that mpi4py loaded, so that the loop calls the very same one.

    Where the launcher named it, that one: a profiling library in front of MPI's maps both into the process.
    """
    named = os.environ.get("MPI4PY_LIBMPI")
    mapped = _mapped_files()
    if named and (path := str(Path(named).resolve())) in mapped:
        return path
    for path in mapped:
        if Path(path).name.startswith("libmpi.so"):
            return path
    raise CannotJudge(
        "the MPI library is not among this process's shared objects", hint="a statically linked MPI cannot be timed"
    )


class PointToPoint:
    """The point-to-point loops between ranks 0 and 1 of a communicator."""

    def __init__(self, comm: Comm) -> None:
        from mpi4py import MPI

        bind("rw_mpi_bind")
        self._comm = comm
        self._mpi = _Mpi(
            comm=MPI._handleof(comm),
            byte=MPI._handleof(MPI.BYTE),
            status_ignore=1 if has_mpich_abi() else 0,  # the value of MPI_STATUS_IGNORE in each ABI
            rank=comm.rank,
            request_bytes=MPI._sizeof(MPI.Request),
        )

    def latency(self, out: Buffer, into: Buffer, size_bytes: int, *, warm: int, iterations: int) -> list[float]:
        """Half the round trip of each iteration, in seconds; meaningful on rank 0. Collective over both ranks."""
        seconds = seconds_array(iterations)
        loop = function(
            "rw_mpi_latency", c_int, POINTER(_Mpi), c_void_p, c_void_p, c_int, c_int, c_int, POINTER(c_double)
        )
        checked(loop(ctypes.byref(self._mpi), out.address, into.address, size_bytes, warm, iterations, seconds))
        return list(seconds)

    def window(
        self,
        out: Buffer,
        into: Buffer,
        size_bytes: int,
        *,
        window: int,
        warm: int,
        iterations: int,
        both_ways: bool = False,
    ) -> list[float]:
        """Seconds of each window of `window` messages, meaningful on rank 0. Collective.

        From rank 0 with a one-byte answer, or `both_ways` at once with none.
        """
        seconds = seconds_array(iterations)
        name = "rw_mpi_bidirectional" if both_ways else "rw_mpi_bandwidth"
        loop = function(name, c_int, POINTER(_Mpi), c_void_p, c_void_p, c_int, c_int, c_int, c_int, POINTER(c_double))
        checked(loop(ctypes.byref(self._mpi), out.address, into.address, size_bytes, window, warm, iterations, seconds))
        return list(seconds)

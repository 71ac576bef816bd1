"""MPI for the ranks: mpi4py sets up, `mpi.c` has the timed calls.

The thread level is `single`, because the locks of MPI cost 0.1 us per message at `multiple`. Every record holds it.
"""

from __future__ import annotations

import ctypes
import os
from ctypes import POINTER, Structure, c_double, c_int, c_ssize_t, c_void_p
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from railwright.errors import CannotJudge
from railwright.native import library
from railwright.native.library import fields, function, seconds_array

if TYPE_CHECKING:
    from mpi4py.MPI import Comm, Intracomm

THREAD_LEVEL = "single"
_MPICH_CUDA = 0
"""MPIX_GPU_SUPPORT_CUDA of MPICH."""

_MPICH_SEGMENT = "/dev/shm/mpich_shm_"  # noqa: S108 - MPICH's name, read only to be removed


class _Mpi(Structure):
    """The layout of `struct rw_mpi` in mpi.c."""

    _fields_ = (
        *fields(c_ssize_t, "comm", "byte"),
        ("status_ignore", c_void_p),
        *fields(c_int, "rank", "request_bytes"),
    )


def initialise() -> Intracomm:
    """Call MPI_Init once per process. Returns the world communicator, for `first_use`.

    Raises CannotJudge if no MPI can be loaded.
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
    """Connect all ranks and unlink the names of their shared memory. All ranks must have left MPI_Init first.

    Open MPI 5 relies on a fence of its launcher for that. Under Slurm's srun (22.05) a rank may pass the fence while
    another is inside; its message then crashes the other with a segmentation fault in
    `mca_pml_ob1_recv_frag_callback_match` (open-mpi/ompi, issue 12495).
    """
    comm.Barrier()
    _unlink_segments()


def _unlink_segments() -> None:
    """Unlink MPICH's shared memory once all ranks are attached, so that a killed rank leaves none behind."""
    for path in _mapped_files():
        if path.startswith(_MPICH_SEGMENT):
            Path(path).unlink(missing_ok=True)


def _mapped_files() -> list[str]:
    with Path("/proc/self/maps").open(encoding="utf-8") as maps:
        return sorted({"/" + line.rstrip("\n").partition("/")[2] for line in maps if "/" in line})


def library_version() -> str:
    """Return the first line of the MPI library's version: `Open MPI v5.0.11`."""
    from mpi4py import MPI

    first = MPI.Get_library_version().strip("\0\n ").splitlines()[0]
    return " ".join(first.split(",")[0].replace("Version:", " ").split())


def thread_level() -> str:
    """Return the level that the MPI library granted: `single` as requested, or a higher one."""
    from mpi4py import MPI

    names = {MPI.THREAD_SINGLE: "single", MPI.THREAD_FUNNELED: "funneled", MPI.THREAD_SERIALIZED: "serialized"}
    return names.get(MPI.Query_thread(), "multiple")


def has_mpich_abi() -> bool:
    """Report whether the library has the ABI of MPICH rather than Open MPI. Its handles are ints (4 bytes)."""
    from mpi4py import MPI

    return MPI._sizeof(MPI.Comm) == ctypes.sizeof(c_int)


def bind(binder: str) -> None:
    """Bind the functions of a loop library, by its C function `binder`, to the libmpi that mpi4py loaded.

    Raises CannotJudge if that library cannot be found, and NativeError if it lacks a function.
    """
    library.check_result("MPI", function(binder, c_int, c_void_p)(ctypes.CDLL(library_path())._handle))


def check_result(code: int) -> None:
    """Check the return value of a loop. Raises NativeError, with the MPI library's text for an MPI error."""
    from mpi4py import MPI

    library.check_result("MPI", code, MPI.Get_error_string(code) if code > 0 else "")


def library_path() -> str:
    """Return the path of the libmpi that mpi4py loaded, so that the loops call the same one.

    The library that the launcher named takes precedence, because a profiling library in front of MPI maps both.
    """
    named = os.environ.get("MPI4PY_LIBMPI")
    mapped = _mapped_files()
    if named and (path := str(Path(named).resolve())) in mapped:
        return path
    for path in mapped:
        if Path(path).name.startswith("libmpi.so"):
            return path
    raise CannotJudge(
        "the MPI library must be a shared object of this process", hint="a statically linked MPI cannot be timed"
    )


def takes_gpu_memory() -> bool:
    """Report whether the MPI library says that it takes buffers in CUDA memory. One that says nothing does not."""
    loaded = ctypes.CDLL(library_path())
    if hasattr(loaded, "MPIX_Query_cuda_support"):  # Open MPI
        return bool(loaded.MPIX_Query_cuda_support())
    supported = c_int(0)
    if hasattr(loaded, "MPIX_GPU_query_support"):  # MPICH
        loaded.MPIX_GPU_query_support(_MPICH_CUDA, ctypes.byref(supported))
    return bool(supported.value)


class _At(Protocol):
    """Host or GPU memory."""

    address: int


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

    def latency(self, out: _At, into: _At, size_bytes: int, *, warm: int, iterations: int) -> list[float]:
        """Return half the round trip of each iteration, in seconds; meaningful on rank 0.

        Collective over both ranks.
        """
        seconds = seconds_array(iterations)
        loop = function(
            "rw_mpi_latency", c_int, POINTER(_Mpi), c_void_p, c_void_p, c_int, c_int, c_int, POINTER(c_double)
        )
        check_result(loop(ctypes.byref(self._mpi), out.address, into.address, size_bytes, warm, iterations, seconds))
        return list(seconds)

    def window(
        self,
        out: _At,
        into: _At,
        size_bytes: int,
        *,
        window: int,
        warm: int,
        iterations: int,
        both_ways: bool = False,
    ) -> list[float]:
        """Return the seconds of each window of `window` messages; meaningful on rank 0. Collective.

        Messages go from rank 0 with a one-byte reply, or `both_ways` at once with none.
        """
        seconds = seconds_array(iterations)
        name = "rw_mpi_bidirectional" if both_ways else "rw_mpi_bandwidth"
        loop = function(name, c_int, POINTER(_Mpi), c_void_p, c_void_p, c_int, c_int, c_int, c_int, POINTER(c_double))
        check_result(
            loop(ctypes.byref(self._mpi), out.address, into.address, size_bytes, window, warm, iterations, seconds)
        )
        return list(seconds)

"""cuSOLVERMp for Linpack: LU and substitution of a matrix distributed in blocks over GPUs, with NCCL.

Structures and values follow cusolverMp.h 0.8.0. Only ranks may use this module, because the library loads CUDA and
NCCL. NCCL must be loaded before it, so that both share one copy.
"""

from __future__ import annotations

import ctypes
import time
from contextlib import ExitStack
from ctypes import byref, c_int, c_int32, c_int64, c_size_t, c_uint32, c_uint64, c_void_p
from typing import TYPE_CHECKING, NamedTuple

from railwright.errors import CannotJudge
from railwright.installation import find_installation
from railwright.native.cuda import Device, DeviceBuffer, Stream
from railwright.native.library import Closing, NativeError
from railwright.native.memory import Buffer
from railwright.native.vendor_libraries import candidates

if TYPE_CHECKING:
    from mpi4py.MPI import Intracomm

_LIBRARY = "libcusolverMp.so.0"
_WHEELS = ("nvidia-cusolvermp-cu13==0.8.0.3126", "nvidia-nccl-cu13")
_OLDEST = 702
"""Version 0.7.2, the first to make grids from NCCL communicators."""
_ROW_MAJOR, _DOUBLE, _NO_TRANSPOSE = 1, 1, 0
"""cusolverMpGridMapping_t, cudaDataType_t, cublasOperation_t."""
_DEFAULT_MATH = 1
"""cusolverMathMode_t: the precision of the types themselves; 2 and 4 emulate FP32 and FP64."""
_STATUS = {1: "not initialised", 2: "allocation failed", 3: "invalid value", 4: "architecture mismatch",
           6: "execution failed", 7: "internal error", 9: "not supported"}  # fmt: skip
_INT64_BYTES, _INT_BYTES = 8, 4


class Solved(NamedTuple):
    """The outcome of a factorization and its substitution."""

    seconds: float
    singular_at: int
    """The first zero pivot, counted from 1; 0 if there is none."""


def _next_step() -> str:
    return f"{find_installation().add(*_WHEELS)}, or give solver=PATH"


class Library:
    """The loaded library. Raises CannotJudge if it is missing or too old."""

    def __init__(self, named: str = "") -> None:
        self.path = candidates(_LIBRARY, named=named)[0]
        try:
            self._library = ctypes.CDLL(self.path)
        except OSError as error:
            raise CannotJudge(f"cuSOLVERMp cannot be loaded: {error}; {_next_step()}") from error
        if not hasattr(self._library, "cusolverMpSetMathMode"):
            raise CannotJudge(f"{self.path} cannot report its math mode: {_next_step()}")

    def call(self, name: str, *arguments: object) -> None:
        """Call a function of the library. Raises NativeError with a description."""
        if status := getattr(self._library, name)(*arguments):
            raise NativeError(name, status, f"{_STATUS.get(status, 'error')} (cuSOLVER status {status})")


class Solver(Closing):
    """A solver on one GPU, which can join a grid of GPUs. A context manager.

    Raises CannotJudge if the library is too old or does not compute in FP64.
    """

    def __init__(self, library: Library, device: Device, stream: Stream) -> None:
        device.make_current()
        self._library, self._device, self._stream = library, device, stream
        self._held = ExitStack()
        self._handle, self._grid = c_void_p(), c_void_p()
        library.call("cusolverMpCreate", byref(self._handle), c_int(device.ordinal), c_void_p(stream.handle))
        self._held.callback(library.call, "cusolverMpDestroy", self._handle)
        version = c_int()
        library.call("cusolverMpGetVersion", self._handle, byref(version))
        self.version = f"{version.value // 1000}.{version.value // 100 % 10}.{version.value % 100}"
        if version.value < _OLDEST:
            raise CannotJudge(f"cuSOLVERMp {self.version} is older than 0.7.2: {_next_step()}")
        self.math_mode = self._pin_math()

    def join(self, comm: int, grid: tuple[int, int]) -> None:
        """Join a grid of rows x columns, in row-major order, over an NCCL communicator. Collective."""
        rows, columns = (c_int32(number) for number in grid)
        self._library.call(
            "cusolverMpCreateDeviceGrid", self._handle, byref(self._grid), c_void_p(comm), rows, columns, _ROW_MAJOR
        )
        self._held.callback(self._library.call, "cusolverMpDestroyGrid", self._grid)

    def close(self) -> None:
        """Release the library's handles and the memory."""
        self._held.close()

    def _pin_math(self) -> str:
        """Select native FP64 and check that the library confirms it. Raises CannotJudge otherwise."""
        self._library.call("cusolverMpSetMathMode", self._handle, c_int(_DEFAULT_MATH))
        mode = c_int()
        self._library.call("cusolverMpGetMathMode", self._handle, byref(mode))
        if mode.value != _DEFAULT_MATH:
            raise CannotJudge(f"cuSOLVERMp must compute in FP64 (math mode 1), got math mode {mode.value}")
        return "FP64 (cusolverMpGetMathMode 1)"

    def _describe(self, rows: int, columns: int, block: int, lead: int) -> c_void_p:
        made = c_void_p()
        sizes = [c_int64(number) for number in (rows, columns, block, block)]
        first = (c_uint32(0), c_uint32(0))
        self._library.call(
            "cusolverMpCreateMatrixDesc", byref(made), self._grid, c_int(_DOUBLE), *sizes, *first, c_int64(lead)
        )
        self._held.callback(self._library.call, "cusolverMpDestroyMatrixDesc", made)
        return made

    def prepare(self, order: int, block: int, lead: int, matrix: DeviceBuffer, right_side: DeviceBuffer) -> int:
        """Describe A and b and allocate the workspace. Returns its bytes on the GPU. Raises NativeError."""
        one, n, kind = c_int64(1), c_int64(order), c_int(_DOUBLE)
        pivots, self._info, self._status = (
            self._held.enter_context(DeviceBuffer(self._device, size))
            for size in (_INT64_BYTES * (lead + block), _INT_BYTES, _INT_BYTES)
        )
        a, b, swaps = (c_uint64(buffer.address) for buffer in (matrix, right_side, pivots))
        of_a, of_b = self._describe(order, order, block, lead), self._describe(order, 1, block, lead)
        self._factors = (n, n, a, one, one, of_a, swaps, kind)
        self._substitution = (_NO_TRANSPOSE, n, one, a, one, one, of_a, swaps, b, one, one, of_b, kind)
        sizes = [self._work("cusolverMpGetrf_bufferSize", self._factors),
                 self._work("cusolverMpGetrs_bufferSize", self._substitution)]  # fmt: skip
        on_device, on_host = (max(one[place] for one in sizes) for place in (0, 1))
        work = self._held.enter_context(DeviceBuffer(self._device, max(on_device, 1)))
        host_work = self._held.enter_context(Buffer(max(on_host, 1)))
        self._space = (c_uint64(work.address), c_size_t(on_device), c_void_p(host_work.address), c_size_t(on_host))
        return on_device + pivots.size_bytes

    def _work(self, name: str, arguments: tuple[object, ...]) -> tuple[int, int]:
        on_device, on_host = c_size_t(), c_size_t()
        self._library.call(name, self._handle, *arguments, byref(on_device), byref(on_host))
        return on_device.value, on_host.value

    def solve(self, comm: Intracomm) -> Solved:
        """Solve A x = b in place, timed as in HPL.

        Collective. Raises NativeError, and CannotJudge for a wrong argument.
        """
        for buffer in (self._info, self._status):
            buffer.set_bytes(0)
        self._device.synchronize()
        comm.Barrier()
        start = time.perf_counter()
        self._library.call("cusolverMpGetrf", self._handle, *self._factors, *self._space, c_uint64(self._info.address))
        self._library.call(
            "cusolverMpGetrs", self._handle, *self._substitution, *self._space, c_uint64(self._status.address)
        )
        self._stream.synchronize()
        seconds = time.perf_counter() - start
        infos = [int.from_bytes(one.read(_INT_BYTES), "little", signed=True) for one in (self._info, self._status)]
        for name, info in zip(("cusolverMpGetrf", "cusolverMpGetrs"), infos, strict=True):
            if info < 0:
                raise CannotJudge(f"{name} rejects its argument {-info}")
        return Solved(seconds, max(infos[0], 0))

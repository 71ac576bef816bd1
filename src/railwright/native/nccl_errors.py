"""Errors of the loops of `nccl.c` and `train*.c`, with the error text of the library that failed."""

from __future__ import annotations

from collections.abc import Callable

from railwright.native import cuda
from railwright.native.library import NativeError

# As in nccl_errors.h: a value at or below a library's base is the base minus the library's own number.
_OURS = {-1020: "another rank of this process failed", -1021: "MPI_Barrier failed"}
_NCCL_ERROR, _CUBLAS_ERROR = -2000, -2100

_INTERNAL, _INVALID_ARGUMENT, _INVALID_USAGE, _REMOTE = 3, 4, 5, 6
_OF_CUBLAS = {
    1: "not initialised", 3: "allocation failed", 7: "invalid value", 8: "the GPU is not supported",
    11: "mapping error", 13: "execution failed", 14: "internal error", 15: "not supported", 16: "licence error",
}  # fmt: skip


class NcclError(NativeError):
    """An error of NCCL; `result` is NCCL's own number."""

    def __init__(self, what: str, result: int, meaning: str) -> None:
        super().__init__(what, result, meaning)
        self.result = result
        self.is_consequence = result == _REMOTE

    @property
    def refused(self) -> bool:
        """Whether NCCL rejected the request as unsupported, rather than failed."""
        no_way = self.result == _INTERNAL and "algorithm/protocol" in self.message  # before 2.24
        return no_way or self.result in (_INVALID_ARGUMENT, _INVALID_USAGE)


def check_result(what: str, code: int, nccl_says: Callable[[int], str] = "NCCL error {}".format) -> None:
    """Check the return value of a loop. Raises NativeError; `nccl_says` gives NCCL's text for its results."""
    if code <= _CUBLAS_ERROR:
        status = _CUBLAS_ERROR - code
        meaning = f"{_OF_CUBLAS.get(status, 'error')} (cuBLAS status {status})"
        raise NativeError(f"cuBLAS {what}", code, meaning)
    if code <= _NCCL_ERROR:
        raise NcclError(what, _NCCL_ERROR - code, nccl_says(_NCCL_ERROR - code))
    if code in _OURS:
        raise NativeError(what, code, _OURS[code])
    cuda.check_result(what, code)

"""The compute phase of a training step without a framework (`train_load.c`): cuBLAS, or our own kernel without it.

A layer of p parameters is a matrix W. For t tokens the forward pass is W x X, and the backward pass is W^T x dY and
dY x X^T: 6 p t floating-point operations in all, as in every dense layer. The last product is the gradient. It is
written where NCCL reduces it.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from ctypes import POINTER, Structure, byref, c_double, c_int, c_int64, c_uint, c_uint64, c_void_p
from pathlib import Path
from typing import Literal

from railwright.errors import CannotJudge
from railwright.native.cuda import Device, DeviceBuffer, Stream
from railwright.native.library import Closing, NativeError, fields, function, seconds_array
from railwright.native.memory import Buffer
from railwright.native.nccl_errors import check_result
from railwright.native.vendor_libraries import candidates

Kind = Literal["none", "gemm", "burn"]
_KINDS: tuple[Kind, ...] = ("none", "gemm", "burn")

CUDA_TYPES = {"fp32": 0, "fp16": 2, "bf16": 14}
"""cudaDataType_t."""
ELEMENT_BYTES = {"fp32": 4, "fp16": 2, "bf16": 2}

_LIBRARIES = ("libcublas.so.13", "libcublas.so.12")
_CUBLAS_DEFAULT_MATH = 0
"""cublasMath_t. The environment may still enable emulation: see gpu_options.launches."""
_BURN_THREADS = 512
_LARGEST_BUFFER_BYTES = 1 << 30
_TOKEN_STEP = 8
"""Tensor cores prefer dimensions that are multiples of 8."""
_FIRST_TOKENS = 256
_FIRST_LOOPS = 4096
_MOST_REPEATS = 1 << 24
_CALIBRATIONS = 5
_CLOSE_ENOUGH = 0.1
_NUMBERS_BYTES = 1 << 20


class _Layer(Structure):
    """The layout of `struct rw_layer` in train.h."""

    _fields_ = (("first", c_int64), ("rows", c_int64), ("columns", c_int64))


class LoadStruct(Structure):
    """The layout of `struct rw_load` in train.h."""

    _fields_ = (
        *fields(c_int, "kind", "layer_count"),
        ("layers", POINTER(_Layer)),
        *fields(c_int64, "repeats", "tokens", "element_bytes"),
        ("cublas", c_void_p),
        ("type", c_int),
        *fields(c_uint, "grid", "block"),
        ("burn", c_void_p),
        *fields(c_uint64, "weights", "input", "output_gradient", "output"),
    )


class Cublas(Closing):
    """cuBLAS for one device and stream. A context manager. Raises CannotJudge if no cuBLAS works."""

    def __init__(self, device: Device, stream: Stream) -> None:
        device.make_current()
        self.handle, self.version, self._library = _open()
        check_result("stream", function("rw_cublas_stream", c_int, c_void_p, c_void_p)(self.handle, stream.handle))

    def multiply_doubles(
        self, order: int, a: DeviceBuffer, b: DeviceBuffer, product: DeviceBuffer, *, columns: int = 0, lead: int = 0
    ) -> None:
        """Enqueue product = a b of square column-major matrices in FP64, or of the first `columns` of b.

        Columns are `lead` elements apart, by default `order`. Raises NativeError.
        """
        one, zero, size, wide = c_double(1.0), c_double(0.0), c_int(order), c_int(columns or order)
        apart = c_int(lead or order)
        addresses = [c_uint64(buffer.address) for buffer in (a, b, product)]
        status = self._library.cublasDgemm_v2(
            c_void_p(self.handle), 0, 0, size, wide, size, byref(one), addresses[0], apart, addresses[1], apart,
            byref(zero), addresses[2], apart,
        )  # fmt: skip
        if status:
            raise NativeError("cublasDgemm", status, f"cuBLAS status {status}")

    @property
    def library_handle(self) -> int:
        """The loader's handle of the library."""
        return self._library._handle

    def use_default_math(self) -> None:
        """Select the precision of the types themselves, without emulation. Raises NativeError."""
        if status := self._library.cublasSetMathMode(c_void_p(self.handle), _CUBLAS_DEFAULT_MATH):
            raise NativeError("cublasSetMathMode", status, f"cuBLAS status {status}")

    def close(self) -> None:
        """Destroy its handle."""
        function("rw_cublas_close", c_int, c_void_p)(self.handle)


def _open() -> tuple[int, str, ctypes.CDLL]:
    """Return the handle, version and library of the first cuBLAS that works. Raises CannotJudge.

    A major version that is too new for the driver does not.
    """
    reasons: list[str] = []
    for name in candidates(*_LIBRARIES):
        if Path(name).is_absolute():  # the loader would not find the dependencies in the library's wheel
            with suppress(OSError):  # the library itself then reports the problem
                ctypes.CDLL(name.replace("libcublas.", "libcublasLt."), mode=ctypes.RTLD_GLOBAL)
        try:
            library = ctypes.CDLL(name)
        except OSError as error:
            reasons.append(str(error))
            continue
        handle, version = c_void_p(), c_int()
        start = function("rw_cublas_open", c_int, c_void_p, POINTER(c_void_p), POINTER(c_int))
        try:
            check_result(f"in {name}", start(library._handle, byref(handle), byref(version)))
        except NativeError as error:
            reasons.append(error.message)
            continue
        assert handle.value is not None
        code = version.value
        return handle.value, f"{code // 10000}.{code // 100 % 100}.{code % 100}", library
    raise CannotJudge(f"no cuBLAS can be used: {reasons[0]}", hint="install the nvidia-cublas package")


def shape(parameters: int) -> tuple[int, int]:
    """Return rows and columns of a nearly square matrix of about `parameters`, multiples of 8 if it has 64 or more."""
    step = _TOKEN_STEP if parameters >= _TOKEN_STEP**2 else 1
    rows = max(step, math.isqrt(parameters) // step * step)
    return rows, max(step, parameters // rows // step * step)


class Load(Closing):
    """A compute phase over layers of the given numbers of parameters. A context manager that holds its GPU memory."""

    def __init__(
        self,
        kind: Kind,
        layers: Sequence[int],
        dtype: str,
        device: Device,
        *,
        rank: int = 0,
        cublas: Cublas | None = None,
    ) -> None:
        self.kind, self.device, self.dtype, self._rank = kind, device, dtype, rank
        self._shapes = [shape(count) for count in layers]
        self._layers = (_Layer * len(layers))()
        first = 0
        for index, count in enumerate(layers):
            self._layers[index] = _Layer(first, *self._shapes[index])
            first += count
        self.struct = LoadStruct(
            kind=_KINDS.index(kind), layer_count=len(layers), layers=self._layers, repeats=1, tokens=_FIRST_TOKENS,
            element_bytes=ELEMENT_BYTES[dtype], type=CUDA_TYPES[dtype], block=_BURN_THREADS,
            grid=device.multiprocessors,
        )  # fmt: skip
        if kind == "gemm":
            assert cublas is not None
            self.struct.cublas = cublas.handle
        if kind == "burn":
            self.struct.burn, self.struct.repeats = device.kernel("burn"), _FIRST_LOOPS
        self._held = ExitStack()
        self._allocate()

    def close(self) -> None:
        """Free the memory."""
        self._held.close()

    @property
    def flops(self) -> float:
        """The floating-point operations of a forward and backward pass; 0 if they are not counted."""
        if self.kind != "gemm":
            return 0.0
        products = sum(rows * columns for rows, columns in self._shapes)
        tokens, repeats = self.size
        return 6.0 * products * tokens * repeats

    def _max_tokens(self) -> int:
        widest = max(max(one) for one in self._shapes)
        limit = int(_LARGEST_BUFFER_BYTES // (widest * ELEMENT_BYTES[self.dtype]) // _TOKEN_STEP * _TOKEN_STEP)
        return max(_TOKEN_STEP, limit)

    def _allocate(self) -> None:
        """Free the previous memory and allocate memory for the current number of tokens."""
        self._held.close()
        if self.kind == "none":
            return
        if self.kind == "burn":
            self.struct.output = self._held.enter_context(DeviceBuffer(self.device, 8)).address
            return
        each = ELEMENT_BYTES[self.dtype]
        rows, columns = (max(one[side] for one in self._shapes) for side in (0, 1))
        weights = max(rows_ * columns_ for rows_, columns_ in self._shapes) * each
        tokens = self.struct.tokens
        self.struct.weights = self._numbers(weights, 1)
        self.struct.input = self._numbers(columns * tokens * each, 2)
        self.struct.output_gradient = self._numbers(rows * tokens * each, 3)
        output = DeviceBuffer(self.device, max(rows, columns) * tokens * each)
        self.struct.output = self._held.enter_context(output).address

    def _numbers(self, size_bytes: int, seed: int) -> int:
        """Allocate GPU memory with small numbers, which repeat after each MiB."""
        buffer = self._held.enter_context(DeviceBuffer(self.device, size_bytes))
        seed += 16 * self._rank  # the gradients of every rank must differ
        write = function("rw_load_numbers", c_int, c_void_p, c_int64, c_int, c_uint64)
        copy = function("rw_cuda_copy", c_int, c_void_p, c_uint64, c_uint64, ctypes.c_size_t)
        with Buffer(_NUMBERS_BYTES) as staging:
            write(staging.address, _NUMBERS_BYTES, CUDA_TYPES[self.dtype], seed)
            held = min(_NUMBERS_BYTES, size_bytes)
            check_result("numbers", copy(self.device.context, buffer.address, staging.address, held))
        while held < size_bytes:  # doubled on the GPU
            more = min(held, size_bytes - held)
            check_result("numbers", copy(self.device.context, buffer.address + held, buffer.address, more))
            held += more
        return buffer.address

    def set(self, tokens: int, repeats: int) -> None:
        """Set tokens and repeats, as another rank has calibrated them."""
        self.struct.repeats = repeats
        if tokens != self.struct.tokens:
            self.struct.tokens = tokens
            self._allocate()

    @property
    def size(self) -> tuple[int, int]:
        """The tokens and repeats."""
        return self.struct.tokens, self.struct.repeats

    def time(self, gradients: int, stream: Stream, samples: int = 3) -> list[float]:
        """Return the seconds of each pass by the GPU's clock. `gradients` is the address for the layers' gradients."""
        seconds = seconds_array(samples)
        loop = function("rw_load_time", c_int, POINTER(LoadStruct), c_uint64, c_void_p, c_int, POINTER(c_double))
        check_result("compute phase", loop(byref(self.struct), gradients, stream.handle, samples, seconds))
        return list(seconds)

    def calibrate(self, wanted_s: float, gradients: int, stream: Stream) -> None:
        """Choose tokens, and repeats beyond the available memory, for a pass of about `wanted_s`."""
        for _ in range(_CALIBRATIONS if self.kind != "none" else 0):
            took = min(self.time(gradients, stream))
            if abs(took - wanted_s) <= _CLOSE_ENOUGH * wanted_s:
                return
            tokens, repeats = self.size
            self.set(*self._scale(tokens * repeats * wanted_s / max(took, 1e-9)))

    def _scale(self, work: float) -> tuple[int, int]:
        """Return tokens and repeats whose product is about `work`, within their limits."""
        if self.kind == "burn":
            return self.struct.tokens, round(min(max(1.0, work / self.struct.tokens), _MOST_REPEATS))
        limit = self._max_tokens()
        repeats = min(max(1, math.ceil(work / limit)), _MOST_REPEATS)
        return min(limit, max(_TOKEN_STEP, round(work / repeats / _TOKEN_STEP) * _TOKEN_STEP)), repeats

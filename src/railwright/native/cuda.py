"""GPUs through the CUDA driver (`cuda.c`): devices, their memory, pinned host memory, streams, kernels.

Only ranks may use this module, because the first call loads the driver's library, which can hang. PCI addresses name
the devices, so that CUDA's numbering does not matter.
"""

from __future__ import annotations

import ctypes
import functools
from ctypes import POINTER, Structure, byref, c_char, c_char_p, c_int, c_size_t, c_uint, c_uint64, c_void_p
from pathlib import Path
from typing import Any

from railwright.errors import CannotJudge
from railwright.native.library import Closing, NativeError, fields, function
from railwright.native.memory import PATTERN, Buffer
from railwright.results.records import Verification
from railwright.units import format_size

KERNELS = Path(__file__).with_name("kernels.ptx")
COMPUTE_THREADS = 512
"""The default number of threads per block, which divides the capacity of every GPU's multiprocessor."""

_NO_CUDA, _MISSING_SYMBOL, _OUT_OF_MEMORY, _INVALID_DEVICE = -1010, -1001, 2, 101
_LOG_BYTES = 8192
_ADDRESS_BYTES = 32


def explain_missing_gpu() -> str:
    """Explain why this process cannot use a GPU.

    Returns an empty string if it can. Loads the driver: for ranks only.
    """
    code = function("rw_cuda_bind", c_int)()
    if code == _NO_CUDA:
        return "no NVIDIA driver: libcuda.so.1 cannot be loaded"
    if code == _MISSING_SYMBOL:
        name = function("rw_cuda_missing", c_char_p)().decode()
        return f"the NVIDIA driver is too old: its libcuda.so.1 has no {name}"
    return f"the NVIDIA driver cannot be used: {_error_text(code)}" if code else ""


def check_result(what: str, code: int) -> None:
    """Check the result of a driver call or a loop. Raises NativeError with the driver's error text."""
    if code:
        raise NativeError(what, code, _error_text(code) if code > 0 else "")


def _error_text(code: int) -> str:
    text = function("rw_cuda_error_text", c_char_p, c_int)(code)
    return f"{text.decode(errors='replace')} (CUDA error {code})" if text else f"CUDA error {code}"


def _require_gpu() -> None:
    reason = explain_missing_gpu()
    if reason:
        raise CannotJudge(reason, hint="check whether `nvidia-smi` works here")


def driver_version() -> str:
    """Return the newest CUDA version that the driver supports, such as `13.0`. Raises CannotJudge."""
    _require_gpu()
    version = c_int()
    check_result("driver version", function("rw_cuda_driver_version", c_int, POINTER(c_int))(byref(version)))
    return f"{version.value // 1000}.{version.value % 1000 // 10}"


def device_count() -> int:
    """Return the number of GPUs visible to this process. Raises CannotJudge."""
    _require_gpu()
    count = c_int()
    check_result("number of GPUs", function("rw_cuda_device_count", c_int, POINTER(c_int))(byref(count)))
    return count.value


def device_addresses() -> list[str]:
    """Return the PCI address of each GPU visible to this process, in CUDA's order. Raises CannotJudge."""
    ask = function("rw_cuda_device_address", c_int, c_int, c_char_p, c_int)
    found = []
    for ordinal in range(device_count()):
        text = ctypes.create_string_buffer(_ADDRESS_BYTES)
        check_result("address of a GPU", ask(ordinal, text, _ADDRESS_BYTES))
        found.append(text.value.decode())
    return found


class _Device(Structure):
    """The layout of `struct rw_cuda_device` in cuda.c."""

    _fields_ = (
        ("context", c_void_p),
        *fields(c_int, "ordinal", "multiprocessors", "copy_engines", "capability_major", "capability_minor"),
        ("name", c_char * 100),
    )


class Device(Closing):
    """A GPU with its primary context, which NCCL, UCX and torch share. A context manager.

    Opening it makes its context current in the calling thread.
    """

    def __init__(self, address: str) -> None:
        _require_gpu()
        seen = _Device()
        code = function("rw_cuda_open", c_int, c_char_p, POINTER(_Device))(address.encode(), byref(seen))
        if code == _INVALID_DEVICE:
            hint = "CUDA_VISIBLE_DEVICES may hide it, or the container may lack access to it"
            raise CannotJudge(f"CUDA shows no GPU at {address}", hint=hint)
        check_result(f"GPU at {address}", code)
        self.address = address
        self.context: int = seen.context
        self.ordinal: int = seen.ordinal
        self.name: str = seen.name.decode(errors="replace")
        self.multiprocessors: int = seen.multiprocessors
        self._kernels: dict[str, int] = {}
        self._module: int | None = None
        self._counter: DeviceBuffer | None = None

    def close(self) -> None:
        """Release the context. Its memory must have been freed before."""
        if self._counter is not None:
            self._counter.close()
            self._counter = None
        if self._module is not None:
            function("rw_cuda_unload", c_int, c_void_p, c_void_p)(self.context, self._module)
            self._module = None
            self._kernels.clear()
        function("rw_cuda_close", c_int, c_int)(self.ordinal)

    def make_current(self) -> None:
        """Make its context current in the calling thread. Raises NativeError."""
        check_result(f"use {self.name}", function("rw_cuda_use", c_int, c_void_p)(self.context))

    def synchronize(self) -> None:
        """Wait for all work of the GPU. Raises NativeError for an error in that work."""
        check_result(f"work on {self.name}", function("rw_cuda_synchronize", c_int, c_void_p)(self.context))

    def free_bytes(self) -> int:
        """Return the free memory as the driver reports it (cuMemGetInfo). Raises NativeError."""
        available, total = c_size_t(), c_size_t()
        ask = function("rw_cuda_memory", c_int, c_void_p, POINTER(c_size_t), POINTER(c_size_t))
        check_result(f"free memory of {self.name}", ask(self.context, byref(available), byref(total)))
        return available.value

    def can_access(self, other: Device) -> bool:
        """Report whether this GPU can directly access the memory of another one."""
        can = c_int()
        ask = function("rw_cuda_can_access", c_int, c_int, c_int, POINTER(c_int))
        check_result("peer access", ask(self.ordinal, other.ordinal, byref(can)))
        return bool(can.value)

    def enable_peer(self, other: Device) -> None:
        """Allow this GPU direct access to the memory of another one. Raises NativeError."""
        enable = function("rw_cuda_enable_peer", c_int, c_void_p, c_void_p)
        check_result(f"peer access from {self.address} to {other.address}", enable(self.context, other.context))

    def kernel(self, name: str) -> int:
        """Return the handle (CUfunction) of one of our kernels.

        The driver compiles it at first use. Raises NativeError.
        """
        if self._module is None:
            self._module = self._compile()
        if name not in self._kernels:
            found = c_void_p()
            find = function("rw_cuda_function", c_int, c_void_p, c_char_p, POINTER(c_void_p))
            check_result(f"kernel {name}", find(self._module, name.encode(), byref(found)))
            assert found.value is not None
            self._kernels[name] = found.value
        return self._kernels[name]

    def _compile(self) -> int:
        module, log = c_void_p(), ctypes.create_string_buffer(_LOG_BYTES)
        load = function("rw_cuda_load", c_int, c_void_p, c_char_p, c_void_p, c_size_t, POINTER(c_void_p))
        code = load(self.context, _ptx(), ctypes.addressof(log), _LOG_BYTES, byref(module))
        if code:
            messages = " ".join(log.value.decode(errors="replace").split())[:300]
            raise NativeError(f"kernels for {self.name}", code, f"{_error_text(code)}: {messages}" if messages else "")
        assert module.value is not None
        return module.value

    def counter(self) -> DeviceBuffer:
        """Return the eight bytes on the GPU to which kernels add their counts."""
        if self._counter is None:
            self._counter = DeviceBuffer(self, 8)
        return self._counter

    def count(self, kernel: str, *arguments: Any, grid: int = 0) -> int:  # noqa: ANN401 - see launch
        """Reset the counter, run a kernel whose last argument is the counter, wait, and return the count."""
        counter = self.counter()
        counter.set_bytes(0)
        launch(self, kernel, grid or 4 * self.multiprocessors, COMPUTE_THREADS, *arguments, counter.address)
        self.synchronize()
        return int.from_bytes(counter.read(8), "little")


@functools.cache
def _ptx() -> bytes:
    try:
        return KERNELS.read_bytes()
    except OSError as error:
        raise CannotJudge(f"the GPU kernels are not installed: {error}", hint="reinstall the package") from error


def launch(device: Device, name: str, grid: int, block: int, *arguments: Any, stream: Stream | None = None) -> None:  # noqa: ANN401 - any ctypes value
    """Enqueue one of our kernels on a stream (None for the default stream).

    Ints are passed as 64 bits and floats as 32, as every kernel of kernels.cu expects; ctypes values are passed
    unchanged. Raises NativeError.
    """
    values = [_argument(one) for one in arguments]
    pointers = (c_void_p * max(1, len(values)))(*(ctypes.addressof(value) for value in values))
    start = function("rw_cuda_launch", c_int, c_void_p, c_void_p, c_uint, c_uint, c_void_p, c_void_p)
    handle = None if stream is None else stream.handle
    check_result(f"kernel {name}", start(device.context, device.kernel(name), grid, block, handle, pointers))


def _argument(value: Any) -> Any:  # noqa: ANN401 - any ctypes value
    if isinstance(value, int):
        return c_uint64(value % 2**64)
    return ctypes.c_float(value) if isinstance(value, float) else value


class DeviceBuffer(Closing):
    """Memory of a GPU (cuMemAlloc) with the pattern of `memory.Buffer`. A context manager."""

    def __init__(self, device: Device, size_bytes: int) -> None:
        address = c_uint64()
        allocate = function("rw_cuda_alloc", c_int, c_void_p, c_size_t, POINTER(c_uint64))
        code = allocate(device.context, size_bytes, byref(address))
        if code == _OUT_OF_MEMORY:
            what = f"cannot allocate {format_size(size_bytes)} on {device.name} at {device.address}"
            raise CannotJudge(what, hint="choose smaller sizes, or check with nvidia-smi which processes use the GPU")
        check_result(f"{format_size(size_bytes)} on {device.name}", code)
        self.device = device
        self.address: int = address.value
        self.size_bytes = size_bytes

    def close(self) -> None:
        """Free the memory. A second call has no effect."""
        if self.address:
            function("rw_cuda_free", c_int, c_void_p, c_uint64)(self.device.context, self.address)
            self.address = 0

    def fill(self, seed: int, size_bytes: int | None = None, position: int = 0) -> None:
        """Write the pattern of `seed` that starts at byte `position` (a multiple of 8), and wait."""
        size = self.size_bytes if size_bytes is None else size_bytes
        grid = 4 * self.device.multiprocessors
        launch(self.device, "fill", grid, COMPUTE_THREADS, self.address, size, seed, position)
        self.device.synchronize()

    def count_wrong(self, seed: int, size_bytes: int | None = None, position: int = 0, start: int = 0) -> int:
        """Count the bytes from `start` on that differ from the pattern that starts at byte `position`."""
        size = self.size_bytes - start if size_bytes is None else size_bytes
        return self.device.count("count_wrong", self.address + start, size, seed, position)

    def verify(self, seed: int, size_bytes: int) -> Verification:
        """Check the first `size_bytes` on the GPU."""
        return Verification(method=PATTERN, bytes_checked=size_bytes, bytes_wrong=self.count_wrong(seed, size_bytes))

    def set_bytes(self, value: int, size_bytes: int | None = None) -> None:
        """Set every byte to `value`, and wait."""
        size = self.size_bytes if size_bytes is None else size_bytes
        work = function("rw_cuda_set", c_int, c_void_p, c_uint64, c_int, c_size_t)
        check_result("set GPU memory", work(self.device.context, self.address, value, size))

    def export_dmabuf(self) -> int:
        """Return the descriptor of a DMA buffer of the memory, which the caller closes.

        The memory must consist of whole pages. Raises NativeError if the driver or the kernel cannot export it.
        """
        descriptor = c_int(-1)
        export = function("rw_cuda_export", c_int, c_void_p, c_uint64, c_size_t, POINTER(c_int))
        what = f"DMA buffer of {self.device.name}'s memory"
        check_result(what, export(self.device.context, self.address, self.size_bytes, byref(descriptor)))
        return descriptor.value

    def copy_from(self, address: int, size_bytes: int, position: int = 0) -> None:
        """Copy host memory at `address` to `position`, and wait."""
        self._copy("write GPU memory", self.address + position, address, size_bytes)

    def copy_to(self, address: int, size_bytes: int, position: int = 0) -> None:
        """Copy the bytes at `position` to host memory at `address`, and wait."""
        self._copy("read GPU memory", address, self.address + position, size_bytes)

    def _copy(self, what: str, target: int, source: int, size_bytes: int) -> None:
        work = function("rw_cuda_copy", c_int, c_void_p, c_uint64, c_uint64, c_size_t)
        check_result(what, work(self.device.context, target, source, size_bytes))

    def read(self, size_bytes: int, position: int = 0) -> bytes:
        """Return the bytes at `position`. Suits small amounts."""
        into = ctypes.create_string_buffer(size_bytes)
        self.copy_to(ctypes.addressof(into), size_bytes, position)
        return into.raw

    def write(self, data: bytes, position: int = 0) -> None:
        """Copy bytes of the host to `position`. Suits small amounts."""
        kept = ctypes.create_string_buffer(data, len(data))
        self.copy_from(ctypes.addressof(kept), len(data), position)


class PinnedBuffer(Buffer):
    """Pinned host memory, which GPUs access directly: a Buffer that is pinned after allocation.

    It lies near the calling thread's CPU, or on the NUMA node `node`. `device_address` is its address on GPUs, the same
    as on the host for almost every machine.
    """

    def __init__(self, device: Device, size_bytes: int, *, huge: bool = True, node: int | None = None) -> None:
        super().__init__(size_bytes, huge=huge, node=node)
        mapped = c_uint64()
        pin = function("rw_cuda_register", c_int, c_void_p, c_void_p, c_size_t, POINTER(c_uint64))
        code = pin(device.context, self.address, size_bytes, byref(mapped))
        if code:
            super().close()
            what = f"cannot pin {format_size(size_bytes)} of host memory: {_error_text(code)}"
            raise CannotJudge(what, hint="check `ulimit -l`, or choose smaller sizes")
        self.device = device
        self.device_address: int = mapped.value

    def close(self) -> None:
        """Unpin and free the memory."""
        function("rw_cuda_unregister", c_int, c_void_p, c_void_p)(self.device.context, self.address)
        super().close()


class Stream(Closing):
    """A stream that does not wait for the default stream. A context manager."""

    def __init__(self, device: Device) -> None:
        handle = c_void_p()
        code = function("rw_cuda_stream_open", c_int, c_void_p, POINTER(c_void_p))(device.context, byref(handle))
        check_result(f"stream on {device.name}", code)
        assert handle.value is not None
        self.device = device
        self.handle: int = handle.value

    def close(self) -> None:
        """Destroy the stream."""
        function("rw_cuda_stream_close", c_int, c_void_p, c_void_p)(self.device.context, self.handle)

    def synchronize(self) -> None:
        """Wait for all work on the stream. Raises NativeError for an error in that work."""
        check_result(
            f"work on {self.device.name}", function("rw_cuda_stream_synchronize", c_int, c_void_p)(self.handle)
        )

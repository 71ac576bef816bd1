"""GPUs through the CUDA driver (`cuda.c`): devices, memory on them, pinned host memory, streams, kernels.

Only ranks may use this module: the driver's library is loaded at the first call, and can hang.
A device is named by its PCI address, so that nothing depends on the order in which CUDA numbers devices.
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
"""Threads of a block, where a kernel does not care: a whole number of blocks fits every GPU's multiprocessor."""

_NO_CUDA, _MISSING_SYMBOL, _OUT_OF_MEMORY, _INVALID_DEVICE = -1010, -1001, 2, 101
_LOG_BYTES = 8192
_ADDRESS_BYTES = 32


def problem() -> str:
    """Why this process can use no GPU, empty where it can. Loads the driver's library: for ranks only."""
    code = function("rw_cuda_bind", c_int)()
    if code == _NO_CUDA:
        return "no NVIDIA driver: libcuda.so.1 cannot be loaded"
    if code == _MISSING_SYMBOL:
        name = function("rw_cuda_missing", c_char_p)().decode()
        return f"the NVIDIA driver is too old: its libcuda.so.1 has no {name}"
    return f"the NVIDIA driver cannot be used: {_error_text(code)}" if code else ""


def checked(what: str, code: int) -> None:
    """Raises NativeError for what a driver call or a loop returned, in the driver's own words."""
    if code:
        raise NativeError(what, code, _error_text(code) if code > 0 else "")


def _error_text(code: int) -> str:
    text = function("rw_cuda_error_text", c_char_p, c_int)(code)
    return f"{text.decode(errors='replace')} (CUDA error {code})" if text else f"CUDA error {code}"


def _require() -> None:
    reason = problem()
    if reason:
        raise CannotJudge(reason, hint="see whether `nvidia-smi` works here")


def driver_version() -> str:
    """The newest CUDA that the driver can serve, like `13.0`. Raises CannotJudge."""
    _require()
    version = c_int()
    checked("driver version", function("rw_cuda_driver_version", c_int, POINTER(c_int))(byref(version)))
    return f"{version.value // 1000}.{version.value % 1000 // 10}"


def device_count() -> int:
    """How many GPUs CUDA shows to this process. Raises CannotJudge."""
    _require()
    count = c_int()
    checked("number of GPUs", function("rw_cuda_device_count", c_int, POINTER(c_int))(byref(count)))
    return count.value


def device_addresses() -> list[str]:
    """The PCI address of each GPU that CUDA shows to this process, in its order. Raises CannotJudge."""
    ask = function("rw_cuda_device_address", c_int, c_int, c_char_p, c_int)
    found = []
    for ordinal in range(device_count()):
        text = ctypes.create_string_buffer(_ADDRESS_BYTES)
        checked("address of a GPU", ask(ordinal, text, _ADDRESS_BYTES))
        found.append(text.value.decode())
    return found


class _Device(Structure):
    """Laid out as `struct rw_cuda_device` in cuda.c."""

    _fields_ = (
        ("context", c_void_p),
        *fields(c_int, "ordinal", "multiprocessors", "copy_engines", "capability_major", "capability_minor"),
        ("name", c_char * 100),
    )


class Device(Closing):
    """One GPU with its primary context, which NCCL, UCX and torch share. A context manager.

    Opening it makes its context the calling thread's current one.
    """

    def __init__(self, address: str) -> None:
        _require()
        seen = _Device()
        code = function("rw_cuda_open", c_int, c_char_p, POINTER(_Device))(address.encode(), byref(seen))
        if code == _INVALID_DEVICE:
            hint = "CUDA_VISIBLE_DEVICES may hide it, or the container was not given it"
            raise CannotJudge(f"CUDA shows no GPU at {address}", hint=hint)
        checked(f"GPU at {address}", code)
        self.address = address
        self.context: int = seen.context
        self.ordinal: int = seen.ordinal
        self.name: str = seen.name.decode(errors="replace")
        self.multiprocessors: int = seen.multiprocessors
        self._kernels: dict[str, int] = {}
        self._module: int | None = None
        self._counter: DeviceBuffer | None = None

    def close(self) -> None:
        """Give the context back; its memory must have been freed before."""
        if self._counter is not None:
            self._counter.close()
            self._counter = None
        if self._module is not None:
            function("rw_cuda_unload", c_int, c_void_p, c_void_p)(self.context, self._module)
            self._module = None
            self._kernels.clear()
        function("rw_cuda_close", c_int, c_int)(self.ordinal)

    def make_current(self) -> None:
        """Make its context the calling thread's current one. Raises NativeError."""
        checked(f"use {self.name}", function("rw_cuda_use", c_int, c_void_p)(self.context))

    def synchronize(self) -> None:
        """Wait for all of the GPU's work, and raise NativeError for what went wrong in it."""
        checked(f"work on {self.name}", function("rw_cuda_synchronize", c_int, c_void_p)(self.context))

    def free_bytes(self) -> int:
        """How much of its memory nobody has allocated, as the driver says now (cuMemGetInfo). Raises NativeError."""
        available, total = c_size_t(), c_size_t()
        ask = function("rw_cuda_memory", c_int, c_void_p, POINTER(c_size_t), POINTER(c_size_t))
        checked(f"free memory of {self.name}", ask(self.context, byref(available), byref(total)))
        return available.value

    def can_access(self, other: Device) -> bool:
        """Whether this GPU can read and write the other one's memory directly."""
        can = c_int()
        ask = function("rw_cuda_can_access", c_int, c_int, c_int, POINTER(c_int))
        checked("peer access", ask(self.ordinal, other.ordinal, byref(can)))
        return bool(can.value)

    def enable_peer(self, other: Device) -> None:
        """Let this GPU read and write the other one's memory directly. Raises NativeError."""
        enable = function("rw_cuda_enable_peer", c_int, c_void_p, c_void_p)
        checked(f"peer access from {self.address} to {other.address}", enable(self.context, other.context))

    def kernel(self, name: str) -> int:
        """The handle (CUfunction) of one of our kernels, compiled by the driver at first use. Raises NativeError."""
        if self._module is None:
            self._module = self._compile()
        if name not in self._kernels:
            found = c_void_p()
            find = function("rw_cuda_function", c_int, c_void_p, c_char_p, POINTER(c_void_p))
            checked(f"kernel {name}", find(self._module, name.encode(), byref(found)))
            assert found.value is not None
            self._kernels[name] = found.value
        return self._kernels[name]

    def _compile(self) -> int:
        module, log = c_void_p(), ctypes.create_string_buffer(_LOG_BYTES)
        load = function("rw_cuda_load", c_int, c_void_p, c_char_p, c_void_p, c_size_t, POINTER(c_void_p))
        code = load(self.context, _ptx(), ctypes.addressof(log), _LOG_BYTES, byref(module))
        if code:
            said = " ".join(log.value.decode(errors="replace").split())[:300]
            raise NativeError(f"kernels for {self.name}", code, f"{_error_text(code)}: {said}" if said else "")
        assert module.value is not None
        return module.value

    def counter(self) -> DeviceBuffer:
        """Eight bytes on the GPU that kernels add what they count to."""
        if self._counter is None:
            self._counter = DeviceBuffer(self, 8)
        return self._counter

    def count(self, kernel: str, *arguments: Any, grid: int = 0) -> int:  # noqa: ANN401 - see launch
        """Run a kernel whose last argument is the counter, from 0, wait, and return what it counted."""
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
    """Start one of our kernels; it runs when the stream (the default one where None) comes to it.

    An int goes as 64 bits and a float as 32, as every kernel of kernels.cu takes them; a ctypes value as it is.
    Raises NativeError.
    """
    values = [_argument(one) for one in arguments]
    pointers = (c_void_p * max(1, len(values)))(*(ctypes.addressof(value) for value in values))
    start = function("rw_cuda_launch", c_int, c_void_p, c_void_p, c_uint, c_uint, c_void_p, c_void_p)
    handle = None if stream is None else stream.handle
    checked(f"kernel {name}", start(device.context, device.kernel(name), grid, block, handle, pointers))


def _argument(value: Any) -> Any:  # noqa: ANN401 - any ctypes value
    if isinstance(value, int):
        return c_uint64(value % 2**64)
    return ctypes.c_float(value) if isinstance(value, float) else value


class DeviceBuffer(Closing):
    """Memory of a GPU (cuMemAlloc). A context manager. Its pattern is that of `memory.Buffer`."""

    def __init__(self, device: Device, size_bytes: int) -> None:
        address = c_uint64()
        allocate = function("rw_cuda_alloc", c_int, c_void_p, c_size_t, POINTER(c_uint64))
        code = allocate(device.context, size_bytes, byref(address))
        if code == _OUT_OF_MEMORY:
            what = f"cannot allocate {format_size(size_bytes)} on {device.name} at {device.address}"
            raise CannotJudge(what, hint="choose smaller sizes, or see with nvidia-smi who uses the GPU")
        checked(f"{format_size(size_bytes)} on {device.name}", code)
        self.device = device
        self.address: int = address.value
        self.size_bytes = size_bytes

    def close(self) -> None:
        """Give the memory back; again is nothing."""
        if self.address:
            function("rw_cuda_free", c_int, c_void_p, c_uint64)(self.device.context, self.address)
            self.address = 0

    def fill(self, seed: int, size_bytes: int | None = None, position: int = 0) -> None:
        """Write the pattern of `seed` that starts at byte `position` (a multiple of 8), and wait for it."""
        size = self.size_bytes if size_bytes is None else size_bytes
        grid = 4 * self.device.multiprocessors
        launch(self.device, "fill", grid, COMPUTE_THREADS, self.address, size, seed, position)
        self.device.synchronize()

    def count_wrong(self, seed: int, size_bytes: int | None = None, position: int = 0, start: int = 0) -> int:
        """How many bytes from `start` on differ from the pattern that starts at byte `position`."""
        size = self.size_bytes - start if size_bytes is None else size_bytes
        return self.device.count("count_wrong", self.address + start, size, seed, position)

    def verify(self, seed: int, size_bytes: int) -> Verification:
        """The data check over the first `size_bytes`, made on the GPU."""
        return Verification(method=PATTERN, bytes_checked=size_bytes, bytes_wrong=self.count_wrong(seed, size_bytes))

    def set_bytes(self, value: int, size_bytes: int | None = None) -> None:
        """Set every byte to `value`, and wait for it."""
        size = self.size_bytes if size_bytes is None else size_bytes
        work = function("rw_cuda_set", c_int, c_void_p, c_uint64, c_int, c_size_t)
        checked("set GPU memory", work(self.device.context, self.address, value, size))

    def copy_from(self, address: int, size_bytes: int, position: int = 0) -> None:
        """Copy host memory at an address to `position`, and wait for it."""
        self._copy("write GPU memory", self.address + position, address, size_bytes)

    def copy_to(self, address: int, size_bytes: int, position: int = 0) -> None:
        """Copy what is from `position` on to host memory at an address, and wait for it."""
        self._copy("read GPU memory", address, self.address + position, size_bytes)

    def _copy(self, what: str, target: int, source: int, size_bytes: int) -> None:
        work = function("rw_cuda_copy", c_int, c_void_p, c_uint64, c_uint64, c_size_t)
        checked(what, work(self.device.context, target, source, size_bytes))

    def read(self, size_bytes: int, position: int = 0) -> bytes:
        """The bytes from `position` on, copied to the host: for small things."""
        into = ctypes.create_string_buffer(size_bytes)
        self.copy_to(ctypes.addressof(into), size_bytes, position)
        return into.raw

    def write(self, data: bytes, position: int = 0) -> None:
        """Copy bytes of the host to `position`: for small things."""
        kept = ctypes.create_string_buffer(data, len(data))
        self.copy_from(ctypes.addressof(kept), len(data), position)


class PinnedBuffer(Buffer):
    """Host memory that GPUs reach directly: a Buffer, which is then pinned where its pages lie.

    They lie near the calling thread's CPU, or on the NUMA node `node`.
    `device_address` is where GPUs see it, which is the same address on almost every machine.
    """

    def __init__(self, device: Device, size_bytes: int, *, huge: bool = True, node: int | None = None) -> None:
        super().__init__(size_bytes, huge=huge, node=node)
        mapped = c_uint64()
        pin = function("rw_cuda_register", c_int, c_void_p, c_void_p, c_size_t, POINTER(c_uint64))
        code = pin(device.context, self.address, size_bytes, byref(mapped))
        if code:
            super().close()
            what = f"cannot pin {format_size(size_bytes)} of host memory: {_error_text(code)}"
            raise CannotJudge(what, hint="see `ulimit -l`, or choose smaller sizes")
        self.device = device
        self.device_address: int = mapped.value

    def close(self) -> None:
        """Unpin it, and give it back."""
        function("rw_cuda_unregister", c_int, c_void_p, c_void_p)(self.device.context, self.address)
        super().close()


class Stream(Closing):
    """A stream of its own, which does not wait for the default one. A context manager."""

    def __init__(self, device: Device) -> None:
        handle = c_void_p()
        code = function("rw_cuda_stream_open", c_int, c_void_p, POINTER(c_void_p))(device.context, byref(handle))
        checked(f"stream on {device.name}", code)
        assert handle.value is not None
        self.device = device
        self.handle: int = handle.value

    def close(self) -> None:
        """Destroy it."""
        function("rw_cuda_stream_close", c_int, c_void_p, c_void_p)(self.device.context, self.handle)

    def synchronize(self) -> None:
        """Wait for all that was put on it. Raises NativeError for what went wrong in it."""
        checked(f"work on {self.device.name}", function("rw_cuda_stream_synchronize", c_int, c_void_p)(self.handle))

"""The CUDA driver's answers about each device, through its C interface. Only the probe's child process uses it.

`cuInit` may take seconds and may hang with a broken driver. No context is created, so no GPU memory is taken.
"""

from __future__ import annotations

import ctypes
import itertools
from collections.abc import Sequence

from railwright.topology.sources.nvidia_model import MOST_GPUS, MOST_PAIRED, CudaAnswer, CudaGpu, CudaPair

# CUdevice_attribute of cuda.h (CUDA 13.0).
ATTRIBUTES = {
    "sm_count": 16,
    "memory_clock_khz": 36,
    "memory_bus_bits": 37,
    "l2_bytes": 38,
    "copy_engines": 40,
    "virtual_memory_management": 102,
    "gpudirect_rdma_with_vmm": 110,
    "gpudirect_rdma": 116,
    "gpudirect_rdma_flush_options": 117,
    "gpudirect_rdma_write_ordering": 118,
    "dma_buf": 124,
    "fabric_handles": 128,
    "multicast": 132,
    "host_numa": 134,
}
# CUdevice_P2PAttribute of cuda.h.
_PERFORMANCE_RANK, _ACCESS, _ATOMICS, _ARRAYS = 1, 2, 3, 4
_ADDRESS_BYTES = 32
_NO_SUCH_FUNCTION = 500
"""CUDA_ERROR_NOT_FOUND: a named symbol was not found."""


class _Driver:
    """The library libcuda.so.1. A missing function behaves like a failing one. Raises OSError without the library."""

    def __init__(self) -> None:
        self._library = ctypes.CDLL("libcuda.so.1")

    def _fails(self, name: str, *arguments: object) -> int:
        """Return CUDA's error, 0 if the call succeeded."""
        function = getattr(self._library, name, None)
        return int(function(*arguments)) if function is not None else _NO_SUCH_FUNCTION

    def _integer(self, name: str, *arguments: int) -> int | None:
        """Return the value that a function writes through its first argument, None if it fails."""
        value = ctypes.c_int(0)
        return None if self._fails(name, ctypes.byref(value), *map(ctypes.c_int, arguments)) else value.value

    def initialise(self) -> str:
        """Return the reason why CUDA cannot be used, or an empty text."""
        status = self._fails("cuInit", ctypes.c_uint(0))
        return f"cuInit says {self._name(status)}" if status else ""

    def _name(self, status: int) -> str:
        text = ctypes.c_char_p()
        if self._fails("cuGetErrorName", ctypes.c_int(status), ctypes.byref(text)) or text.value is None:
            return f"error {status}"
        return text.value.decode("ascii", "replace")

    def devices(self) -> list[tuple[int, str]]:
        """Return the devices that CUDA_VISIBLE_DEVICES leaves, each with its PCI address."""
        count = self._integer("cuDeviceGetCount") or 0
        found = (self._integer("cuDeviceGet", ordinal) for ordinal in range(min(count, MOST_GPUS)))
        return [(device, address) for device in found if device is not None and (address := self._address(device))]

    def _address(self, device: int) -> str:
        """Return `0000:1b:00.0`, in the kernel's form; empty if CUDA does not give it."""
        text = ctypes.create_string_buffer(_ADDRESS_BYTES)
        if self._fails("cuDeviceGetPCIBusId", text, ctypes.c_int(_ADDRESS_BYTES), ctypes.c_int(device)):
            return ""
        return text.value.decode("ascii", "replace").lower()

    def attribute(self, device: int, number: int) -> int | None:
        """Return a CUdevice_attribute."""
        return self._integer("cuDeviceGetAttribute", number, device)

    def between(self, source: int, target: int, number: int) -> int | None:
        """Return a CUdevice_P2PAttribute."""
        return self._integer("cuDeviceGetP2PAttribute", number, source, target)


def ask_cuda() -> CudaAnswer:
    """Return all answers of the CUDA driver. Raises nothing."""
    try:
        driver = _Driver()
        if problem := driver.initialise():
            return CudaAnswer(problem=problem)
        devices = driver.devices()
        return CudaAnswer(gpus=tuple(_gpu(driver, *device) for device in devices), pairs=_pairs(driver, devices))
    except OSError:
        return CudaAnswer(problem="libcuda.so.1 cannot be loaded")


def _gpu(driver: _Driver, device: int, address: str) -> CudaGpu:
    answers = {name: driver.attribute(device, number) for name, number in ATTRIBUTES.items()}
    return CudaGpu(address=address, attributes={name: value for name, value in answers.items() if value is not None})


def _pairs(driver: _Driver, devices: Sequence[tuple[int, str]]) -> tuple[CudaPair, ...]:
    if len(devices) > MOST_PAIRED:
        return ()
    return tuple(
        CudaPair(
            source=source,
            target=target,
            access=_flag(driver.between(first, second, _ACCESS)),
            atomics=_flag(driver.between(first, second, _ATOMICS)),
            performance_rank=_natural(driver.between(first, second, _PERFORMANCE_RANK)),
            arrays=_flag(driver.between(first, second, _ARRAYS)),
        )
        for (first, source), (second, target) in itertools.permutations(devices, 2)
    )


def _flag(value: int | None) -> bool | None:
    return None if value is None else bool(value)


def _natural(value: int | None) -> int | None:
    return value if value is not None and 0 <= value <= 1024 else None

"""The memory types of NIXL, and the preparation of its backends for GPU memory."""

from __future__ import annotations

from typing import NamedTuple

from railwright.native.cuda import DeviceBuffer
from railwright.native.memory import Buffer
from railwright.native.vendor_libraries import preload

AnyBuffer = Buffer | DeviceBuffer
"""Plain or pinned host memory, or GPU memory."""

_DRAM, _VRAM = 0, 1
_CUDA_RUNTIMES = ("libcudart.so.13", "libcudart.so.12")
_STORAGE_PLUGINS = ("GDS", "GDS_MT")


class Memory(NamedTuple):
    """A memory type, as in NIXL's descriptors."""

    kind: int
    """`nixl_capi_mem_type_t`."""
    device: int = 0
    """CUDA's number of the GPU."""


HOST = Memory(_DRAM)


def describe_memory(buffer: AnyBuffer) -> Memory:
    """Return NIXL's description of a buffer."""
    return Memory(_VRAM, buffer.device.ordinal) if isinstance(buffer, DeviceBuffer) else HOST


def prepare_gpus(backend: str = "UCX") -> None:
    """Load the libraries that the modules of a backend need and the loader would not find.

    Call it before an agent is created. NIXL itself reports a library that is still missing.
    """
    for name in _CUDA_RUNTIMES:
        if not preload(name):
            break
    if backend in _STORAGE_PLUGINS:
        preload("libcufile.so.0")

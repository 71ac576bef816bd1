"""The memories that NIXL moves data between, as it names them, and what it needs to be loaded for those of GPUs."""

from __future__ import annotations

from typing import NamedTuple

from railwright.native.cuda import DeviceBuffer
from railwright.native.memory import Buffer
from railwright.native.vendor_libraries import preload

AnyBuffer = Buffer | DeviceBuffer
"""Host memory, plain or pinned, or a GPU's."""

_DRAM, _VRAM = 0, 1
_CUDA_RUNTIMES = ("libcudart.so.13", "libcudart.so.12")
_STORAGE_PLUGINS = ("GDS", "GDS_MT")


class Memory(NamedTuple):
    """A memory, as it stands in each of NIXL's descriptors."""

    kind: int
    """`nixl_capi_mem_type_t`."""
    device: int = 0
    """CUDA's number of the GPU."""


HOST = Memory(_DRAM)


def memory_of(buffer: AnyBuffer) -> Memory:
    """What NIXL must be told of a buffer."""
    return Memory(_VRAM, buffer.device.ordinal) if isinstance(buffer, DeviceBuffer) else HOST


def prepare_gpus(backend: str = "UCX") -> None:
    """Load what the modules of a backend are linked with and the loader would not find; without it they do not load.

    To be called before an agent is made. NIXL itself then says what is missing, if it is.
    """
    for name in _CUDA_RUNTIMES:
        if not preload(name):
            break
    if backend in _STORAGE_PLUGINS:
        preload("libcufile.so.0")

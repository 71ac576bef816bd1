"""Two streams on parts of a GPU's multiprocessors (`cuda_partition.c`)."""

from __future__ import annotations

from ctypes import POINTER, Structure, byref, c_int, c_uint, c_void_p

from railwright.native import cuda
from railwright.native.library import Closing, function


class _Partition(Structure):
    """The layout of `struct rw_partition` in cuda_partition.c."""

    _fields_ = (("contexts", c_void_p * 2), ("streams", c_void_p * 2), ("multiprocessors", c_uint * 2))


class _Part(cuda.Stream):
    """A stream that the partition destroys."""

    def __init__(self, device: cuda.Device, handle: int) -> None:
        self.device, self.handle = device, handle

    def close(self) -> None:
        """Do nothing, because the partition destroys it."""


class Streams(Closing):
    """A stream for short kernels and one for long ones. A context manager.

    The short ones get about `few` multiprocessors of their own if the driver can divide the GPU (CUDA 12.4), so that
    they do not wait for the long ones. Otherwise, or if `few` is 0, both streams share all of them.
    """

    def __init__(self, device: cuda.Device, few: int) -> None:
        self._struct = _Partition()
        opening = function("rw_partition_open", c_int, c_void_p, c_int, c_uint, POINTER(_Partition))
        divided = few and not opening(device.context, device.ordinal, few, byref(self._struct))
        self.multiprocessors = self._struct.multiprocessors[0] if divided else 0
        """The multiprocessors of the short ones; 0 if they share all."""
        self.short: cuda.Stream
        self.long: cuda.Stream
        if divided:
            self.short, self.long = (_Part(device, handle) for handle in self._struct.streams)
        else:
            self.short, self.long = cuda.Stream(device), cuda.Stream(device)

    def close(self) -> None:
        """Destroy the streams."""
        self.short.close()
        self.long.close()
        if self.multiprocessors:
            function("rw_partition_close", c_int, POINTER(_Partition))(byref(self._struct))

"""NCCL transfers from one GPU to another, in one direction: a communicator of two ranks, one of them in this process.

Two directions of a GPU are two communicators, so that neither waits for the other. Only ranks may use this module,
because NCCL loads CUDA.
"""

from __future__ import annotations

from collections.abc import Sequence
from ctypes import byref, c_int, c_size_t, c_void_p

from railwright.native import cuda
from railwright.native.nccl_library import Library, UniqueId

_FLOAT32, _FLOAT_BYTES = 7, 4
_SENDER, _RECEIVER, _RANKS = 0, 1, 2


class OneWay:
    """This process's end, with a stream and a buffer of `size_bytes`, a multiple of 4. Call `connect` first."""

    def __init__(self, library: Library, device: cuda.Device, size_bytes: int, *, sends: bool) -> None:
        self.library, self.device, self.sends = library, device, sends
        self.buffer = cuda.DeviceBuffer(device, size_bytes)
        self._stream = cuda.Stream(device)
        self._comm = c_void_p()

    def transfer(self, times: int, size_bytes: int) -> None:
        """Transfer the first bytes of the buffer `times` times, and wait until all is sent or received.

        Raises NativeError.

        It may run in a separate thread, concurrently with other ends of this GPU.
        """
        name, other = ("ncclSend", _RECEIVER) if self.sends else ("ncclRecv", _SENDER)
        floats, stream = c_size_t(size_bytes // _FLOAT_BYTES), c_void_p(self._stream.handle)
        where = c_void_p(self.buffer.address)
        self.device.make_current()
        for _ in range(times):
            self.library.call("ncclGroupStart")
            self.library.call(name, where, floats, c_int(_FLOAT32), c_int(other), self._comm, stream, comm=self._comm)
            self.library.call("ncclGroupEnd", comm=self._comm)
        self._stream.synchronize()

    def join(self, unique_id: bytes) -> None:
        """Join the communicator, within a group."""
        config, rank = self.library.config("send_recv"), c_int(_SENDER if self.sends else _RECEIVER)
        shared = UniqueId.from_buffer_copy(unique_id)
        self.library.call("ncclCommInitRankConfig", byref(self._comm), c_int(_RANKS), shared, rank, byref(config))

    def close(self) -> None:
        """Destroy the communicator, the stream and the buffer."""
        self.library.call("ncclCommDestroy", self._comm)
        self._stream.close()
        self.buffer.close()


def connect(ends: Sequence[OneWay], unique_ids: Sequence[bytes]) -> None:
    """Connect each end with the end of the same id in another process, all at once. Raises NcclError."""
    if not ends:
        return
    library = ends[0].library
    library.call("ncclGroupStart")
    for end, unique_id in zip(ends, unique_ids, strict=True):
        end.device.make_current()
        end.join(unique_id)
    library.call("ncclGroupEnd")

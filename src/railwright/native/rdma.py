"""Timed loops over connected queue pairs: streams of requests, and ping-pongs (`rdma.c`)."""

from __future__ import annotations

from collections.abc import Sequence
from ctypes import POINTER, Structure, byref, c_double, c_int, c_int64, c_uint32, c_uint64, c_void_p
from typing import Literal, NamedTuple

from railwright.native.library import fields, function, seconds_array
from railwright.native.verbs import QueuePair, Region, check_result

Operation = Literal["write", "read", "send"]
_OPCODES: dict[Operation, int] = {"write": 0, "send": 2, "read": 4}
PAGE_BYTES = 4096
_CACHE_LINE_BYTES = 64


class _Lane(Structure):
    """The layout of `struct rw_lane` in rdma.c."""

    _fields_ = (
        ("qp", c_void_p),
        *fields(c_uint64, "local", "remote", "into"),
        *fields(c_uint32, "lkey", "rkey", "into_lkey"),
        *fields(c_int64, "posted", "completed", "receives_posted", "received"),
    )


class _Flow(Structure):
    """The layout of `struct rw_flow` in rdma.c."""

    _fields_ = (
        ("lanes", POINTER(_Lane)),
        *fields(c_int, "count", "opcode"),
        *fields(c_uint32, "bytes", "stride", "slots"),
        *fields(c_int, "depth", "receive_depth", "signal_every", "is_inline", "is_ping"),
        ("receives", c_int64),
        ("patience", c_double),
    )


class RemoteRegion(NamedTuple):
    """A region of the other side."""

    address: int
    remote_key: int


class Lane(NamedTuple):
    """A connected queue pair, and the regions of both sides in which it has a part."""

    pair: QueuePair
    out: Region
    into: Region
    remote_out: RemoteRegion
    remote_into: RemoteRegion


class Shape(NamedTuple):
    """The messages of a flow and their places: as perftest, small ones cycle through a page."""

    size_bytes: int

    @property
    def stride_bytes(self) -> int:
        """The distance between messages."""
        return -(-self.size_bytes // _CACHE_LINE_BYTES) * _CACHE_LINE_BYTES

    @property
    def slots(self) -> int:
        """The number of places of each queue pair."""
        return max(1, PAGE_BYTES // self.stride_bytes)

    @property
    def area_bytes(self) -> int:
        """The part of a region that a queue pair uses."""
        return self.slots * self.stride_bytes


class Pace(NamedTuple):
    """The requests that each queue pair has in flight."""

    depth: int
    receive_depth: int
    signal_every: int


class Flow:
    """Messages of one size and operation over lanes. Lanes of one port must follow each other."""

    def __init__(
        self,
        lanes: Sequence[Lane],
        operation: Operation,
        size_bytes: int,
        pace: Pace,
        *,
        inline: bool,
        pings: bool,
        patience_s: float,
    ) -> None:
        shape = Shape(size_bytes)
        self.lanes = len(lanes)
        self._lanes = (_Lane * len(lanes))()
        places: dict[int, int] = {}
        for native, lane in zip(self._lanes, lanes, strict=True):
            place = places.get(lane.out.address, 0)
            places[lane.out.address] = place + 1
            at = place * shape.area_bytes
            reads = operation == "read"
            own, remote = (lane.into, lane.remote_out) if reads else (lane.out, lane.remote_into)
            native.qp = lane.pair.handle
            native.local, native.lkey = own.address + at, own.local_key
            native.remote, native.rkey = remote.address + at, remote.remote_key
            native.into, native.into_lkey = lane.into.address + at, lane.into.local_key
        self._flow = _Flow(
            lanes=self._lanes,
            count=len(lanes),
            opcode=_OPCODES[operation],
            bytes=size_bytes,
            stride=shape.stride_bytes,
            slots=1 if pings else shape.slots,
            is_ping=pings,
            depth=pace.depth,
            receive_depth=pace.receive_depth,
            signal_every=pace.signal_every,
            is_inline=inline,
            patience=patience_s,
        )

    def prepare(self, receives: int) -> None:
        """Post the first of `receives` receives of each lane. Call it before the other side may send.

        Raises NativeError.
        """
        self._flow.receives = receives
        check_result("receives", function("rw_rdma_prepare", c_int, POINTER(_Flow))(byref(self._flow)))

    def stream(self, sends: int) -> float:
        """Send on each lane, and receive what was prepared. Returns seconds. Raises NativeError."""
        seconds = c_double()
        loop = function("rw_rdma_stream", c_int, POINTER(_Flow), c_int64, POINTER(c_double))
        check_result("stream", loop(byref(self._flow), sends, byref(seconds)))
        return seconds.value

    def latency(self, *, starts: bool, iterations: int) -> list[float]:
        """Ping-pong on the first lane. Returns half of each round trip, or the whole time of each read.

        Raises NativeError.
        """
        seconds = seconds_array(iterations)
        loop = function("rw_rdma_latency", c_int, POINTER(_Flow), c_int, c_int, POINTER(c_double))
        check_result("latency", loop(byref(self._flow), int(starts), iterations, seconds))
        return list(seconds)

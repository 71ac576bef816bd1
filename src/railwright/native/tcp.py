"""Timed loops over a connected TCP socket (`tcp.c`), and the kernel's statistics of the connection."""

from __future__ import annotations

import socket
import struct
from ctypes import POINTER, Structure, byref, c_double, c_int, c_size_t, c_void_p
from typing import NamedTuple

from railwright.errors import CannotJudge
from railwright.native.library import check_result, function, seconds_array, system_error
from railwright.native.memory import Buffer

_CLOSED = -1010
_TOTAL_RETRANSMITS_AT = 100
"""The offset of `tcpi_total_retrans` in struct tcp_info (Linux include/uapi/linux/tcp.h), a 32-bit number."""


class _Tcp(Structure):
    """The layout of `struct rw_tcp` in tcp.c."""

    _fields_ = (("fd", c_int), ("spins", c_int), ("starts", c_int), ("patience", c_double))


class ConnectionInfo(NamedTuple):
    """The kernel's statistics of a connection."""

    congestion_control: str
    segment_bytes: int
    """The largest payload of a segment, before the NIC or the kernel merges several."""
    retransmits: int
    """The segments that this side retransmitted."""


class Stream:
    """A side of a connection. A side that `spins` polls the kernel continuously and needs a CPU of its own."""

    def __init__(self, connection: socket.socket, *, starts: bool, spins: bool, patience_s: float) -> None:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._connection = connection  # keeps its descriptor open
        self._side = _Tcp(fd=connection.fileno(), spins=spins, starts=starts, patience=patience_s)

    def latency(self, out: Buffer, into: Buffer, size: int, *, warm: int, iterations: int) -> list[float]:
        """Return half the round trip of each timed iteration, in seconds, on the side that starts.

        Raises NativeError.
        """
        seconds = seconds_array(iterations)
        loop = function(
            "rw_tcp_latency", c_int, POINTER(_Tcp), c_void_p, c_void_p, c_size_t, c_int, c_int, POINTER(c_double)
        )
        _check_result(loop(byref(self._side), out.address, into.address, size, warm, iterations, seconds))
        return list(seconds)

    def windows(self, out: Buffer, into: Buffer, size: int, *, window: int, warm: int, iterations: int) -> list[float]:
        """Return the seconds of each timed window, including its reply. Raises NativeError."""
        seconds = seconds_array(iterations)
        loop = function(
            *("rw_tcp_windows", c_int, POINTER(_Tcp), c_void_p, c_void_p),
            *(c_size_t, c_int, c_int, c_int, POINTER(c_double)),
        )
        _check_result(loop(byref(self._side), out.address, into.address, size, window, warm, iterations, seconds))
        return list(seconds)

    def connection_info(self) -> ConnectionInfo:
        """Return the kernel's current statistics of the connection. Raises CannotJudge if it reports too few."""
        level = socket.IPPROTO_TCP
        name = self._connection.getsockopt(level, socket.TCP_CONGESTION, 16)
        info = self._connection.getsockopt(level, socket.TCP_INFO, _TOTAL_RETRANSMITS_AT + 4)
        if len(info) < _TOTAL_RETRANSMITS_AT + 4:
            raise CannotJudge(f"the kernel reports no retransmits: TCP_INFO has {len(info)} bytes")
        (retransmits,) = struct.unpack_from("I", info, _TOTAL_RETRANSMITS_AT)
        algorithm = name.rstrip(b"\0").decode("ascii", "replace")
        return ConnectionInfo(algorithm, self._connection.getsockopt(level, socket.TCP_MAXSEG), retransmits)


def _check_result(code: int) -> None:
    check_result("TCP", code, "the other side closed the connection" if code == _CLOSED else system_error(code))

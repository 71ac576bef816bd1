"""Evidence of the transport that a transfer used, taken from outside the library under test."""

from __future__ import annotations

import contextlib
import os
import socket
import stat
import struct
from pathlib import Path

from railwright.native.library import flush_c_streams
from railwright.native.nixl import Operation
from railwright.results.readers.ucx import protocols as ucx_protocols
from railwright.results.records import Evidence
from railwright.units import format_size

INTERFACES = Path("/proc/self/net/dev")
"""The interface counters of this process's network namespace, which /sys may not show."""
_SENT_BYTES_COLUMN = 8
DESCRIPTORS = Path("/proc/self/fd")
_CARRIED, _CARRIED_AT = struct.Struct("QQ"), 120
"""tcpi_bytes_acked and tcpi_bytes_received of struct tcp_info, include/uapi/linux/tcp.h."""


class ConnectionMeter:
    """Counts the bytes that this process's TCP connections carry in both directions, excluding other traffic of the
    machine.

    Sums bytes acknowledged by peers and bytes received in order (TCP_INFO, Linux 4.1 and later).
    """

    def __init__(self) -> None:
        self._start = _read_carried_bytes()

    def moved_bytes(self) -> int | None:
        """Return the bytes moved since the start by connections that are still open, or None if the kernel does not
        report them.
        """
        both = self._count_since_start()
        return None if both is None else sum(both)

    def received_bytes(self) -> int | None:
        """Return the received part of these bytes, which is exact after they have been read."""
        both = self._count_since_start()
        return None if both is None else both[1]

    def _count_since_start(self) -> tuple[int, int] | None:
        now = _read_carried_bytes()
        if now is None or self._start is None:
            return None
        ways = [(*carried, *self._start.get(connection, (0, 0))) for connection, carried in now.items()]
        return sum(acked - before for acked, _, before, _ in ways), sum(got - before for _, got, _, before in ways)


def _read_carried_bytes() -> dict[int, tuple[int, int]] | None:
    """Return acknowledged and received bytes of this process's TCP connections, by socket inode."""
    found: dict[int, tuple[int, int]] = {}
    for entry in DESCRIPTORS.iterdir():
        with contextlib.suppress(OSError):
            status = entry.stat()
            if not stat.S_ISSOCK(status.st_mode):
                continue
            with socket.socket(fileno=os.dup(int(entry.name))) as connection:
                if connection.family not in (socket.AF_INET, socket.AF_INET6) or connection.type != socket.SOCK_STREAM:
                    continue
                info = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _CARRIED_AT + _CARRIED.size)
            if len(info) < _CARRIED_AT + _CARRIED.size:
                return None
            found[status.st_ino] = _CARRIED.unpack_from(info, _CARRIED_AT)
    return found


def transport_evidence(sent_bytes: int, moved_bytes: int | None, otherwise: str, carrier: str = "lo") -> Evidence:
    """Judge from the carrier's byte count whether `sent_bytes` of payload went over TCP; the value is `otherwise` if
    they did not.
    """
    if moved_bytes is None:
        return Evidence(
            claim="transport", value="unknown", seen=f"the kernel does not report the bytes that {carrier} carried"
        )
    seen = f"{carrier} carried {format_size(moved_bytes)} while {format_size(sent_bytes)} were sent"
    if moved_bytes >= sent_bytes:
        return Evidence(claim="transport", value="tcp", seen=seen)
    if moved_bytes <= sent_bytes / 2:
        return Evidence(claim="transport", value=otherwise, seen=seen)
    return Evidence(claim="transport", value="mixed", seen=seen)


def ucx_protocol_evidence(
    log: Path,
    operation: Operation,
    size_bytes: int,
    memories: ucx_protocols.Memories = ("host", "host"),
    *,
    to_self: bool = False,
) -> Evidence:
    """Return the transport that UCX chose for transfers of this size, according to its log (`UCX_PROTO_INFO=y`).

    `memories` are the local and the remote memory; `to_self` selects transfers that an agent makes between its own
    memories. If UCX emulates a GPU memory transfer, the value says so (`software emulation over tcp/lo`), because no
    host setting gives it a transport then. Between host memories the transport's name is enough (TCP where CMA is
    expected).
    """
    verb: ucx_protocols.Operation = "get" if operation == "READ" else "put"
    flush_c_streams()  # UCX's log is buffered
    try:
        lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError as error:
        return Evidence(claim="ucx_protocol", value="unknown", seen=f"UCX wrote no log: {error.strerror}")
    protocol = ucx_protocols.find_protocol(ucx_protocols.read(lines), verb, size_bytes, memories, to_self=to_self)
    if protocol is None:
        between = "" if memories == ("host", "host") else f" between {memories[0]} and {memories[1]}"
        whom = "itself" if to_self else "a peer"
        seen = f"UCX's log has no {verb} of {format_size(size_bytes)}{between} to {whom}"
        return Evidence(claim="ucx_protocol", value="unknown", seen=seen)
    seen = f"UCX_PROTO_INFO: ucp_{verb} by {protocol.description}"
    emulated = memories != ("host", "host") and protocol.description.startswith(ucx_protocols.EMULATION)
    value = f"{ucx_protocols.EMULATION} over {protocol.transport}" if emulated else protocol.transport
    return Evidence(claim="ucx_protocol", value=value, seen=seen)


def ucx_message_evidence(log: Path, size_bytes: int) -> Evidence:
    """Return the transport that UCX chose for messages of this size from GPU memory, according to its log."""
    flush_c_streams()  # UCX's log is buffered
    lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
    protocol = ucx_protocols.find_protocol(ucx_protocols.read(lines), "tag", size_bytes, ("cuda", "cuda"))
    if protocol is None:
        seen = f"UCX's log has no message of {format_size(size_bytes)} from GPU memory"
        return Evidence(claim="ucx_protocol", value="unknown", seen=seen)
    seen = f"UCX_PROTO_INFO: ucp_tag_send by {protocol.description}"
    return Evidence(claim="ucx_protocol", value=protocol.transport, seen=seen)


def sent_by_interface() -> dict[str, int] | None:
    """Return the bytes sent by each interface of this process's network namespace, or None if they cannot be read."""
    try:
        lines = INTERFACES.read_text(encoding="ascii").splitlines()
        fields = [line.partition(":") for line in lines if ":" in line]
        return {name.strip(): int(rest.split()[_SENT_BYTES_COLUMN]) for name, _, rest in fields}
    except (OSError, ValueError, IndexError):
        return None

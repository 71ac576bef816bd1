"""What really ran, seen from outside the library that says so."""

from __future__ import annotations

from pathlib import Path

from railwright.native.library import flush_c_streams
from railwright.native.nixl import Operation
from railwright.results.readers import ucx_protocols
from railwright.results.records import Evidence
from railwright.units import format_size

INTERFACES = Path("/proc/self/net/dev")
"""The counters of this process's own network namespace, which /sys need not show."""
_SENT_BYTES_COLUMN = 8


class LoopbackMeter:
    """Counts what crosses the loopback interface: TCP between two ranks of one host does, shared memory does not."""

    def __init__(self) -> None:
        self._start = (sent_by_interface() or {}).get("lo")

    def moved_bytes(self) -> int | None:
        """Bytes since the start, None where the counter cannot be read."""
        now = (sent_by_interface() or {}).get("lo")
        return None if now is None or self._start is None else now - self._start


def transport_evidence(sent_bytes: int, moved_bytes: int | None, otherwise: str) -> Evidence:
    """Whether `sent_bytes` of payload went over loopback TCP, by the interface's own counter; `otherwise` if not."""
    if moved_bytes is None:
        return Evidence(claim="transport", value="unknown", seen=f"{INTERFACES} cannot be read")
    seen = f"lo carried {format_size(moved_bytes)} while {format_size(sent_bytes)} were sent"
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
    """The transport that UCX chose for transfers of that size, by its own log (`UCX_PROTO_INFO=y`).

    `memories` are the local and the remote one; `to_self` looks at what an agent does between memories of its own.
    Where UCX emulates one of GPU memory the value says so, `software emulation over tcp/lo`: no setting of the host
    gives it a transport then. Between host memories the transport itself tells (TCP, where there should be CMA).
    """
    verb: ucx_protocols.Operation = "get" if operation == "READ" else "put"
    flush_c_streams()  # UCX's log is buffered
    try:
        lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError as error:
        return Evidence(claim="ucx_protocol", value="unknown", seen=f"UCX wrote no log: {error.strerror}")
    protocol = ucx_protocols.chosen(ucx_protocols.read(lines), verb, size_bytes, memories, to_self=to_self)
    if protocol is None:
        between = "" if memories == ("host", "host") else f" between {memories[0]} and {memories[1]}"
        whom = "itself" if to_self else "a peer"
        seen = f"UCX's log names no {verb} of {format_size(size_bytes)}{between} to {whom}"
        return Evidence(claim="ucx_protocol", value="unknown", seen=seen)
    seen = f"UCX_PROTO_INFO: ucp_{verb} by {protocol.description}"
    emulated = memories != ("host", "host") and protocol.description.startswith(ucx_protocols.EMULATION)
    value = f"{ucx_protocols.EMULATION} over {protocol.transport}" if emulated else protocol.transport
    return Evidence(claim="ucx_protocol", value=value, seen=seen)


def sent_by_interface() -> dict[str, int] | None:
    """Bytes sent by each interface of this process's network namespace, None where that cannot be read."""
    try:
        lines = INTERFACES.read_text(encoding="ascii").splitlines()
        fields = [line.partition(":") for line in lines if ":" in line]
        return {name.strip(): int(rest.split()[_SENT_BYTES_COLUMN]) for name, _, rest in fields}
    except (OSError, ValueError, IndexError):
        return None

"""Topologies as files: the JSON that `railwright topo --json` prints."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec

from railwright.errors import UsageError
from railwright.topology.devices import SCHEMA_VERSION, Topology
from railwright.topology.sources.root import read_bounded

MAX_SAVED_BYTES = 64 * 2**20
MAX_DEVICES = 100_000
MAX_LINKS = 400_000

_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.:@-]{0,79}")


class _Header(msgspec.Struct, frozen=True):
    schema_version: int


def encode_topology(topology: Topology) -> bytes:
    """The topology as JSON, indented, with a last newline."""
    # `omit_defaults` would leave out the one field that must always be there.
    record = {**msgspec.to_builtins(topology), "schema_version": topology.schema_version}
    return msgspec.json.format(msgspec.json.encode(record), indent=2) + b"\n"


def load_topology(file: Path) -> Topology:
    """Reads a saved topology; its source becomes `saved`. Raises UsageError for anything that is not one."""
    return decode_topology(read_bounded(file, MAX_SAVED_BYTES), str(file))


def decode_topology(raw: bytes, origin: str) -> Topology:
    """A topology from JSON that came from `origin`. Raises UsageError."""
    hint = "write one with: railwright topo --json"
    try:
        version = msgspec.json.decode(raw, type=_Header).schema_version
        if version != SCHEMA_VERSION:
            what = f"{origin} has topology schema version {version}, this Railwright reads {SCHEMA_VERSION}"
            raise UsageError(what, hint="save it again with this version")
        topology = msgspec.json.decode(raw, type=Topology)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as exc:
        raise UsageError(f"{origin} is not a saved topology: {str(exc)[:200]}", hint=hint) from exc
    _check(topology, origin)
    return msgspec.structs.replace(topology, source="saved")


def _check(topology: Topology, origin: str) -> None:
    if len(topology.devices) > MAX_DEVICES or len(topology.links) > MAX_LINKS:
        raise UsageError(f"{origin} has more than {MAX_DEVICES} devices or {MAX_LINKS} links", hint="split it by host")
    seen: set[str] = set()
    for device in topology.devices:
        if not _ID.fullmatch(device.id):
            raise UsageError(f"{origin}: {device.id[:80]!r} is not a device id", hint="ids are like gpu0 or nvme0n1")
        if device.id in seen:
            raise UsageError(f"{origin}: there are two devices called {device.id}", hint="ids must be unique")
        seen.add(device.id)
    for link in topology.links:
        for end in (link.a, link.b):
            if end not in seen:
                raise UsageError(f"{origin}: a link ends at {end[:80]!r}, which is not a device", hint="add the device")
        if link.a == link.b:
            raise UsageError(f"{origin}: a link joins {link.a} to itself", hint="remove it")
        for field in link.protocol.__struct_fields__:
            value = getattr(link.protocol, field)
            if isinstance(value, int | float) and not 0 <= value <= 1e18:  # NaN is refused too
                raise UsageError(f"{origin}: {field} of link {link.id} is {value}", hint="it must be positive")
            if value == 0 and not isinstance(value, bool):
                raise UsageError(f"{origin}: {field} of link {link.id} is 0", hint="leave out what is not known")

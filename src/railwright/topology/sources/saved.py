"""Topologies as files: the JSON that `railwright topo --json` prints."""

from __future__ import annotations

from pathlib import Path

import msgspec

from railwright.errors import UsageError
from railwright.reading import InvalidContent, decode_json, read_bounded
from railwright.topology.devices import SCHEMA_VERSION, Topology
from railwright.topology.possible import refuse_impossible

MAX_SAVED_BYTES = 64 * 2**20


class _Header(msgspec.Struct, frozen=True):
    schema_version: int


def encode_topology(topology: Topology) -> bytes:
    """Encode the topology as JSON, indented, with a final newline."""
    # `omit_defaults` would drop the only mandatory field.
    record = {**msgspec.to_builtins(topology), "schema_version": topology.schema_version}
    return msgspec.json.format(msgspec.json.encode(record), indent=2) + b"\n"


def load_topology(file: Path) -> Topology:
    """Read a saved topology; its source becomes `saved`. Raises UsageError for other files."""
    return decode_topology(read_bounded(file, MAX_SAVED_BYTES), str(file))


def decode_topology(raw: bytes, origin: str) -> Topology:
    """Decode a topology from JSON that came from `origin`. Raises UsageError."""
    hint = "write one with: railwright topo --json"
    try:
        version = decode_json(raw, _Header).schema_version
        if version != SCHEMA_VERSION:
            message = f"{origin} must have topology schema version {SCHEMA_VERSION}, got version {version}"
            raise UsageError(message, hint="save it again with this version")
        topology = decode_json(raw, Topology)
    except InvalidContent as exc:
        raise UsageError(f"{origin} is not a saved topology: {str(exc)[:200]}", hint=hint) from exc
    refuse_impossible(topology, origin)
    return msgspec.structs.replace(topology, source="saved")

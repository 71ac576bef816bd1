"""Open vSwitch's setting for offloading flows to the NIC, from its database file: `other_config:hw-offload`.

The file is a log of transactions (ovsdb(5), Standalone Database Format): a line `OVSDB JSON LENGTH HASH` before each
record. From Open vSwitch 2.15 on a record may hold differences: for a map, the pairs that were set, and the removed
ones with their old values. Other settings may be secrets, so captures keep only this one.
"""

from __future__ import annotations

import json

from railwright.reading import InvalidContent, decode_json
from railwright.topology.sources.root import ABSENT, Root, Unreadable

DATABASES = ("var/lib/openvswitch/conf.db", "etc/openvswitch/conf.db")
"""The path on Debian and on other systems."""
_MAGIC = "OVSDB JSON "
_TABLE, _COLUMN, _KEY = "Open_vSwitch", "other_config", "hw-offload"


def hw_offload(root: Root) -> str | Unreadable:
    """Return `true` or `false`, which is also the default (ovs-vswitchd.conf.db(5))."""
    first: Unreadable | None = None
    for path in DATABASES:
        content = root.read(path)
        if isinstance(content, str):
            setting = _parse_setting(content)
            return Unreadable(path, "is not an Open vSwitch database") if setting is None else setting
        if not content.is_absent:
            first = first or content
    return first or Unreadable(DATABASES[0], ABSENT)


def reduce_database(raw: bytes) -> bytes:
    """Return a database with only that setting; empty for other files."""
    setting = _parse_setting(raw.decode("utf-8", errors="replace"))
    if setting is None:
        return b""
    record = json.dumps({_TABLE: {"0": {_COLUMN: ["map", [[_KEY, setting]]]}}})
    return f"{_MAGIC}{len(record)} {'0' * 40}\n{record}\n".encode()


def _parse_setting(content: str) -> str | None:
    if not content.startswith(_MAGIC):
        return None
    value: str | None = None
    for line in content.splitlines():
        if not line.startswith("{"):
            continue
        try:
            record = decode_json(line, dict[str, object])
        except InvalidContent:
            return None
        value = _apply_record(record, value)
    return "true" if value == "true" else "false"


def _apply_record(record: object, value: str | None) -> str | None:
    """Return the setting after a transaction; None if it is not set."""
    rows = record.get(_TABLE) if isinstance(record, dict) else None
    if not isinstance(record, dict) or not isinstance(rows, dict):
        return value
    for row in rows.values():
        column = row.get(_COLUMN) if isinstance(row, dict) else None
        if not (isinstance(column, list) and len(column) == 2 and column[0] == "map" and isinstance(column[1], list)):
            continue
        pairs = {str(pair[0]): str(pair[1]) for pair in column[1] if isinstance(pair, list) and len(pair) == 2}
        if record.get("_is_diff") is True:
            if _KEY in pairs:
                value = None if pairs[_KEY] == value else pairs[_KEY]
        else:
            value = pairs.get(_KEY)
    return value

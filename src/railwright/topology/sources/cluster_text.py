"""The text of a cluster file, decoded without loading the machines that it names."""

from __future__ import annotations

from pathlib import Path

from railwright.errors import UsageError
from railwright.reading import InvalidContent, decode_json, decode_toml, read_bounded
from railwright.topology.cluster import ClusterFile
from railwright.topology.sources.root import printable

MAX_CLUSTER_FILE_BYTES = 2**20
_MAX_NAME = 80
_HINT = "see docs/cluster-file.md; the minimum is two lines: hosts = 16 and host = 'hgx-h100'"


def decode_cluster_file(file: Path) -> ClusterFile:
    """Decode a cluster file without loading the machines that it names. Raises UsageError."""
    if file.is_dir():
        raise UsageError(f"{file} is a folder", hint="give the cluster file in it")
    try:
        raw = read_bounded(file, MAX_CLUSTER_FILE_BYTES)
    except UsageError as error:
        raise UsageError(error.message, hint=_HINT) from error
    is_json = file.suffix.lower() == ".json" or raw.lstrip().startswith(b"{")
    decode = decode_json if is_json else decode_toml
    try:
        found = decode(raw, ClusterFile)
    except InvalidContent as error:
        raise UsageError(f"{file} is not a cluster file: {format_shown(str(error))}", hint=_HINT) from error
    for name in (found.name, *(tier.name for tier in found.fabric.tiers)):
        if len(name) > _MAX_NAME or not name.isprintable():
            message = f"{file}: the name {format_shown(name)!r} is too long or has characters that do not print"
            raise UsageError(message, hint=f"give names of up to {_MAX_NAME} printable characters")
    return found


def format_shown(text: str) -> str:
    """Return the text of a file as one printable line for a message."""
    return printable(text[:200].replace("\n", " ").encode("utf-8", "replace"))

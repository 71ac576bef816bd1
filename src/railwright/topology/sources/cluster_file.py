"""The cluster file: JSON if its name ends in `.json` or it begins with a brace, else TOML.

The file may come from somebody else. Its size is bounded, it may not refer to files outside its own folder, and
unprintable characters are refused or replaced.
"""

from __future__ import annotations

from pathlib import Path

from railwright.errors import UsageError
from railwright.topology.cluster import Cluster, build_cluster
from railwright.topology.devices import Topology
from railwright.topology.shapes import split_name, unknown_shape
from railwright.topology.sources.cluster_text import decode_cluster_file, format_shown
from railwright.topology.sources.load import load

MAX_SERVERS = 100_000


def load_cluster(file: Path) -> Cluster:
    """Read and check a cluster file. A saved topology or capture that it names is next to it. Raises UsageError."""
    found = decode_cluster_file(file)
    storage = None
    if found.storage is not None:
        servers = found.storage.servers
        if not 1 <= servers <= MAX_SERVERS:
            raise UsageError(
                f"{file}: storage servers must be 1 to {MAX_SERVERS}, got {servers}", hint="correct [storage]"
            )
        storage = (servers, _load_machine(found.storage.host, file))
    host = _load_machine(found.host, file)
    try:
        return build_cluster(host, found.hosts, found.fabric, storage, found.name)
    except UsageError as error:
        raise UsageError(f"{file}: {error.message}", hint=error.hint) from error


def _load_machine(text: str, file: Path) -> Topology:
    """Return the machine of a shape with changes, or of a saved topology or capture beside the file. Raises
    UsageError.
    """
    words = text.split()
    if words and split_name(words) is not None:
        return load(text)
    folder, named = file.parent, Path(text)
    try:
        beside = (folder / named).resolve()
        is_beside = bool(words) and beside != folder.resolve() and beside.is_relative_to(folder.resolve())
        exists = is_beside and beside.exists()
    except (OSError, ValueError, RuntimeError):  # too long a name, a NUL in it, or a loop of links
        is_beside = exists = False
    if exists and not named.is_absolute() and ".." not in named.parts:
        return load(str(folder / named))
    hint = "give a shape like 'hgx-h100 nics=4', or the name of a saved topology in the folder of the cluster file"
    if is_beside and "/" not in text and not named.suffix:
        raise unknown_shape(format_shown(words[0]), "shape, or file beside the cluster file,")
    problem = "does not exist" if is_beside else "is not beside the cluster file"
    raise UsageError(f"{file}: the host {format_shown(text)!r} {problem}", hint=hint)

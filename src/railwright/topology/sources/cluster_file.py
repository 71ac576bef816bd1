"""The cluster file: TOML, or JSON where its name ends so."""

from __future__ import annotations

from pathlib import Path

import msgspec

from railwright.errors import UsageError
from railwright.topology.cluster import Cluster, ClusterFile, cluster_of
from railwright.topology.model import Topology
from railwright.topology.sources.load import load
from railwright.topology.sources.root import read_bounded

MAX_CLUSTER_FILE_BYTES = 2**20


def load_cluster(file: Path) -> Cluster:
    """Reads and checks a cluster file; a saved topology it names lies beside it. Raises UsageError."""
    raw = read_bounded(file, MAX_CLUSTER_FILE_BYTES)
    decode = msgspec.json.decode if file.suffix == ".json" else msgspec.toml.decode
    try:
        found = decode(raw, type=ClusterFile)
    except (msgspec.DecodeError, msgspec.ValidationError, UnicodeDecodeError, RecursionError) as error:
        hint = "see schema/cluster.schema.json and docs/cluster-file.md"
        raise UsageError(f"{file} is not a cluster file: {str(error)[:200]}", hint=hint) from error
    storage = None
    if found.storage is not None:
        if not 1 <= found.storage.servers <= 100_000:
            raise UsageError(f"{file}: {found.storage.servers} storage servers", hint="give 1 or more")
        storage = (found.storage.servers, _machine(found.storage.host, file))
    return cluster_of(_machine(found.host, file), found.hosts, found.fabric, storage, found.name)


def _machine(text: str, file: Path) -> Topology:
    """A shape with changes, or a saved topology or capture beside the cluster file."""
    beside = file.parent / text
    if text.endswith((".json", ".jsonl")) and not Path(text).is_absolute() and ".." not in Path(text).parts:
        return load(str(beside))
    return load(text)

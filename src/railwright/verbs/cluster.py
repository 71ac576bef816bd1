"""The cluster that `--host`, `--count` and `--cluster` name."""

from __future__ import annotations

from pathlib import Path

from railwright.errors import UsageError
from railwright.topology.cluster import Cluster, cluster_of
from railwright.topology.sources.cluster_file import load_cluster
from railwright.verbs.machine import the_machine, told


def the_cluster(machine: str | None, count: int | None, cluster_file: str | None) -> Cluster:
    """One host is a cluster of one. Raises UsageError."""
    if cluster_file is None:
        return cluster_of(the_machine(machine), 1 if count is None else count)
    if machine is not None:
        raise UsageError("--cluster names the machines, so --host says them twice", hint="give one of the two")
    found = load_cluster(Path(cluster_file))
    told(found.host)
    if count is None:
        return found
    return cluster_of(found.host, count, found.fabric, found.storage, found.name)

"""The cluster that `--host`, `--count` and `--cluster` name."""

from __future__ import annotations

import re
from pathlib import Path

from railwright.errors import UsageError
from railwright.topology.cluster import Cluster, cluster_of
from railwright.topology.sources.cluster_file import load_cluster
from railwright.verbs.machine import the_machine, told

_PAIR = re.compile(r"([a-z][a-z0-9]{0,40}(?:@\d{1,7})?)\s?(?:->|=>|>|:|→|,)\s?([a-z][a-z0-9]{0,40}(?:@\d{1,7})?)")


def spelt_path(text: str, sign: str) -> str:
    """Two devices joined by that sign, however they were joined: `gpu0->gpu1`; any other text as it is."""
    found = _PAIR.fullmatch(text.strip())
    return f"{found[1]}{sign}{found[2]}" if found is not None else text


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

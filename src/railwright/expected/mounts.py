"""The limit of a mount shared by many hosts: the servers' drives and NICs, and the NICs of the hosts that use it."""

from __future__ import annotations

from railwright.errors import UsageError
from railwright.expected.bands import file_band
from railwright.limits.limit import Bounds
from railwright.limits.storage import file_limit
from railwright.results.declarations import no_limit
from railwright.results.workload import Files
from railwright.topology.cluster import build_cluster
from railwright.topology.devices import Topology
from railwright.topology.expand import expand
from railwright.topology.shapes import split_name

_MAX_HOSTS = 2**20


def mount_limit(workload: Files) -> Bounds:
    """Return the narrowest of drives, servers' NICs and clients' NICs, if the record names them."""
    client, servers = workload.client_host, workload.storage_servers or 0
    if not client or not 0 <= servers <= _MAX_HOSTS:
        return no_limit(workload, "the servers of this mount are not known: give a cluster file, cluster=FILE")
    if workload.quantity != "bandwidth_bytes_per_s":
        return no_limit(workload, "no document gives a rate of file operations or their latency")
    try:
        host = _build_machine(client)
        storage = (servers, _build_machine(workload.storage_host)) if servers else None
        cluster = build_cluster(host, max(1, workload.hosts), storage=storage)
    except UsageError as error:
        return no_limit(workload, error.message)
    limit = file_limit(cluster, cluster.hosts)
    return limit, file_band(limit)


def _build_machine(text: str) -> Topology:
    """Build the machine of a shape with changes. Raises UsageError."""
    named = split_name(text.split())
    if named is None:
        raise UsageError(f"the record must name a known shape, got {text[:60]!r}")
    changes = (word.partition("=") for word in named[1])
    return expand(named[0], {key: value for key, _, value in changes})

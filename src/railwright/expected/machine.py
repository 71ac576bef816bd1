"""The machine of a workload, with everything known about it: its parts, its software, its own measurements."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

from railwright.errors import RailwrightError
from railwright.expected.baselines import Baselines
from railwright.limits.case import Case
from railwright.limits.collectives import compute_algorithms
from railwright.limits.rates import Algorithm
from railwright.results.records import Fabric
from railwright.topology.cluster import Cluster
from railwright.topology.devices import Device, Path, Topology
from railwright.topology.paths import Graph
from railwright.topology.routes import find_host_path, find_network_path


@dataclass(frozen=True, kw_only=True)
class Machine:
    """The machine for which workloads are judged. A fault is the same machine with another `case`."""

    cluster: Cluster
    path: str = ""
    """The path of messages given by the user: `gpu0:gpu0@1`."""
    hosts_given: bool = True
    """Whether the user named the number of hosts; otherwise that of a table counts, without a contradiction."""
    measured: Baselines | None = None
    """The baselines of a run on this machine, if any."""
    links: Fabric | None = None
    """The links between the hosts of that run, if their rates are known."""
    environment: Mapping[str, str] = field(default_factory=dict)
    """Environment variables of the job, such as NCCL_ALGO."""
    case: Case | None = None
    """The cluster with assumptions about its software; None for the defaults."""
    is_explained: bool = True
    """Whether limits carry their derivation. Without it they are computed faster."""
    _algorithms: dict[object, tuple[Algorithm, ...]] = field(
        default_factory=dict, init=False, compare=False, repr=False
    )
    """The algorithms of collectives found so far, because each costs linear programs and all sizes need the same. A
    changed machine begins with none.
    """
    _paths: dict[str, Path] = field(default_factory=dict, init=False, compare=False, repr=False)
    """The paths between hosts found so far, because each costs a search over both hosts."""

    @property
    def supposed(self) -> Case:
        """Return the cluster with the choices of its software."""
        return self.case if self.case is not None else Case(cluster=self.cluster)

    def algorithms(self, key: object, case: Case, collective: str) -> tuple[Algorithm, ...]:
        """Return the algorithms of a collective, computed once for each `key`; different cases need different keys."""
        if key not in self._algorithms:
            self._algorithms[key] = compute_algorithms(case, collective, explained=self.is_explained)
        return self._algorithms[key]

    @property
    def host(self) -> Topology:
        """A host of the machine."""
        return self.supposed.cluster.host

    @cached_property
    def graph(self) -> Graph:
        """The paths inside one host. Raises UsageError for an invalid topology."""
        return Graph(self.host)

    def inside(self, text: str) -> Path:
        """Return the path of `gpu0>nic0` inside one host. Raises UsageError."""
        return find_host_path(self.graph, text)

    def between(self, text: str) -> Path:
        """Return the path of `gpu0:gpu0@2` between two hosts. Raises UsageError."""
        if text not in self._paths:
            self._paths[text] = find_network_path(self.supposed.cluster, text)
        return self._paths[text]

    def find_path(self, path_id: str) -> Path | None:
        """Return the path of `source>target` inside one host; None if it has no such devices."""
        try:
            return self.inside(path_id)
        except RailwrightError:
            return None

    def gpu(self, device_id: str) -> Device | None:
        """Return the GPU with that id."""
        found = self.host.device(device_id)
        return found if found is not None and found.kind == "gpu" else None

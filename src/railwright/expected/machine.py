"""The machine that a workload ran on, and all that is known of it: its parts, its software, its own measurements."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

from railwright.errors import RailwrightError
from railwright.expected.baselines import Baselines
from railwright.limits.case import Case
from railwright.limits.collectives import algorithms
from railwright.limits.rates import Algorithm
from railwright.results.records import Fabric
from railwright.topology.cluster import Cluster
from railwright.topology.devices import Device, Path, Topology
from railwright.topology.paths import Graph
from railwright.topology.routes import path_between, path_inside


@dataclass(frozen=True, kw_only=True)
class Machine:
    """What workloads are held against. A machine with a fault is the same with another `case`."""

    cluster: Cluster
    path: str = ""
    """The path of messages where the user names one: `gpu0:gpu0@1`."""
    measured: Baselines | None = None
    """The baselines of a run on this machine, where there are any."""
    links: Fabric | None = None
    """The links between the hosts of that run, where their rates are known."""
    environment: Mapping[str, str] = field(default_factory=dict)
    """Environment variables of the job, like NCCL_ALGO."""
    case: Case | None = None
    """The cluster with what is supposed of its software; None: as it is by default."""
    is_explained: bool = True
    """Whether limits carry their derivation; without it they are computed faster."""
    _algorithms: dict[object, tuple[Algorithm, ...]] = field(
        default_factory=dict, init=False, compare=False, repr=False
    )
    """The algorithms of collectives found so far: each costs linear programs, and all sizes ask for the same. A changed
    machine begins with none."""
    _paths: dict[str, Path] = field(default_factory=dict, init=False, compare=False, repr=False)
    """The paths between hosts found so far: each costs a search over both of them."""

    @property
    def supposed(self) -> Case:
        """The cluster with the choices of its software."""
        return self.case if self.case is not None else Case(cluster=self.cluster)

    def algorithms(self, key: object, case: Case, collective: str) -> tuple[Algorithm, ...]:
        """Return the algorithms of a collective, computed once for each `key`; cases that differ need another."""
        if key not in self._algorithms:
            self._algorithms[key] = algorithms(case, collective, explained=self.is_explained)
        return self._algorithms[key]

    @property
    def host(self) -> Topology:
        """One of its hosts."""
        return self.supposed.cluster.host

    @cached_property
    def graph(self) -> Graph:
        """The paths inside one host. Raises UsageError where its topology makes no sense."""
        return Graph(self.host)

    def inside(self, text: str) -> Path:
        """The path of `gpu0>nic0` inside one host. Raises UsageError."""
        return path_inside(self.graph, text)

    def between(self, text: str) -> Path:
        """The path of `gpu0:gpu0@2` between two hosts. Raises UsageError."""
        if text not in self._paths:
            self._paths[text] = path_between(self.supposed.cluster, text)
        return self._paths[text]

    def path_over(self, path_id: str) -> Path | None:
        """The path of `source>target` inside one host, None where it has no such devices."""
        try:
            return self.inside(path_id)
        except RailwrightError:
            return None

    def gpu(self, device_id: str) -> Device | None:
        """The GPU of that id."""
        found = self.host.device(device_id)
        return found if found is not None and found.kind == "gpu" else None

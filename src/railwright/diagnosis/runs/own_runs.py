"""Limits for the points of one of our runs, from its machine, its baselines and its benchmarks' declarations."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from railwright.diagnosis.verdicts.verdict import PointRole
from railwright.expected.baselines import Baselines
from railwright.expected.expect import expect, is_between_hosts
from railwright.expected.files import is_best_read
from railwright.expected.machine import Machine
from railwright.limits.limit import Bounds
from railwright.results.declarations import Declarations, find_declaration, find_suppliers, find_workload
from railwright.results.records import Fabric, Result
from railwright.topology.cluster import Fabric as Switches
from railwright.topology.cluster import build_cluster
from railwright.topology.devices import Path, Topology


class LimitFinder:
    """Finds limits for the points of a run."""

    def __init__(
        self,
        topology: Topology,
        results: Iterable[Result],
        declarations: Declarations,
        environment: Mapping[str, str] | None = None,
        fabric: Fabric | None = None,
        switches: Switches | None = None,
    ) -> None:
        """Collect the baselines from `results`; `declarations` map results to workloads.

        `fabric` holds the links between the hosts of the run, and `switches` the cluster's fabric, if known.
        """
        self._declarations = declarations
        self._baselines = Baselines(results, declarations)
        self.machine = Machine(
            cluster=build_cluster(topology, 1, switches),
            measured=self._baselines,
            links=fabric,
            environment=environment or {},
        )

    def path(self, path_id: str) -> Path | None:
        """Return the path of `source>target` over the topology; None if it lacks these devices."""
        return self.machine.find_path(path_id)

    def find(self, point: Result) -> Bounds:
        """Return the limit and the expected band of a point; no limit if its benchmark declares nothing."""
        return expect(find_workload(point, self._declarations), self.machine)

    def standing(self, point: Result) -> PointRole:
        """Return the role of the point: whether it is a reference, and what would decide it without a limit."""
        declared = find_declaration(point, self._declarations)
        if declared is None:
            return PointRole()
        workload = find_workload(point, self._declarations)
        is_own_best = declared.supplies == "file read" and is_best_read(workload, self._baselines)
        if declared.is_reference or is_own_best:
            return PointRole(is_reference=True)
        if workload.shares_cores:
            return PointRole(needs="one core per rank: reduce the ranks with -o ranks= or -o pairs=")
        wanted = [baseline for baseline in workload.baselines if baseline != "file read"]
        if is_between_hosts(workload):
            wanted = [baseline for baseline in wanted if baseline == "plain socket"]
        missing = [baseline for baseline in wanted if not self._baselines.has(baseline)]
        names = dict.fromkeys(name for baseline in missing for name in find_suppliers(baseline, self._declarations))
        return PointRole(needs=f"railwright run {' '.join((*names, point.benchmark))}" if names else "")

"""Which limit a measured point is held against: one case for each declared kind of bound."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from railwright.checks.nvls import nvls_is_off
from railwright.diagnosis.ceilings import Ceilings
from railwright.diagnosis.fabric_limits import over_fabric
from railwright.diagnosis.fetch_limits import fetch_and_decode, read_ahead
from railwright.diagnosis.gpu_limits import GpuLimits
from railwright.diagnosis.host_limits import HostLimits, path_over
from railwright.diagnosis.mount_limits import mount_limit
from railwright.diagnosis.verdict import Standing
from railwright.errors import RailwrightError
from railwright.limits.limit import Bounds, Limit
from railwright.results import bounds
from railwright.results.bounds import Bound, Declaration, Declarations, declared_for, no_limit, suppliers
from railwright.results.records import Fabric, Result
from railwright.topology.devices import Path, Topology
from railwright.topology.paths import Graph


def _is_between_hosts(point: Result) -> bool:
    return "@" in point.path  # `memory0@0>memory0@1`


class LimitFinder:
    """Limits for the points of one run."""

    def __init__(
        self,
        topology: Topology,
        results: Iterable[Result],
        declarations: Declarations,
        environment: Mapping[str, str] | None = None,
        fabric: Fabric | None = None,
    ) -> None:
        """`declarations` say what the benchmarks' results are held against; `results` hold the measured ceilings.

        `fabric` are the links between the hosts of the run, where they are known.
        """
        self._fabric = fabric
        try:
            self._graph: Graph | None = Graph(topology)
        except RailwrightError:
            self._graph = None
        self._ceilings = ceilings = Ceilings(results, declarations)
        self._declarations = declarations
        self._environment = environment or {}
        self._host = HostLimits(topology, self._graph, ceilings)
        self._gpu = GpuLimits(topology, self._graph, ceilings)

    def path(self, path_id: str) -> Path | None:
        """The path of `source>target` over the topology, None where it has no such devices."""
        return path_over(self._graph, path_id)

    def find(self, point: Result) -> Bounds:
        """The limit and the expected band of one point; no limit for what nobody declared."""
        declared = declared_for(point, self._declarations)
        if declared is not None and isinstance(declared.bound, bounds.MatrixProducts | bounds.Linpack):
            on_gpus = isinstance(declared.bound, bounds.Linpack)  # wherever its ranks were
            return self._gpu.linpack(point) if on_gpus else self._host.matrix_products(point)
        if declared is not None and isinstance(declared.bound, bounds.MountServers):
            return mount_limit(point)
        if declared is not None and isinstance(declared.bound, bounds.ReadAhead):
            return read_ahead(self._ceilings, point)  # its ranks have nothing to do with each other, wherever they are
        if point.settings.get("functional") is True:
            return no_limit(point, f"a functional run, its {point.ranks} ranks shared cores")
        if _is_between_hosts(point):
            return self._between_hosts(declared, point)
        if declared is None:
            return no_limit(point, "nothing is declared of what this is held against")
        return self._of_host(declared.bound, point)

    def standing(self, point: Result) -> Standing:
        """Whether the point is a reference, and what would judge it where nothing does."""
        declared = declared_for(point, self._declarations)
        if declared is None:
            return Standing()
        is_best_read = declared.supplies == "file read" and self._host.is_best_read(point)
        if declared.is_reference or is_best_read:
            return Standing(is_reference=True)
        if point.settings.get("functional") is True:
            return Standing(needs="a core for each rank: fewer ranks, -o ranks=")
        wanted = [supply for supply in declared.bound.ceilings if supply != "file read"]
        if _is_between_hosts(point):
            wanted = [supply for supply in wanted if supply == "plain socket"]
        missing = [supply for supply in wanted if not self._ceilings.has(supply)]
        names = dict.fromkeys(name for supply in missing for name in suppliers(supply, self._declarations))
        return Standing(needs=f"railwright run {' '.join((*names, point.benchmark))}" if names else "")

    def _between_hosts(self, declared: Declaration | None, point: Result) -> Bounds:
        """The links between the hosts where they are known, else plain sockets between the same hosts."""
        if declared is not None and self._fabric is not None:
            found = over_fabric(self._fabric, declared, point)
            if found is not None:
                return found
        if declared is not None and isinstance(declared.bound, bounds.PlainSockets):
            limit, band = self._host.plain_socket(point, declared.bound.times)
            if isinstance(limit, Limit):
                return limit, band
        if declared is not None and isinstance(declared.bound, bounds.Nothing):
            return no_limit(point, declared.bound.why)
        if declared is not None and isinstance(declared.bound, bounds.DriveLinks):
            return no_limit(point, "what joins the other hosts to their drives is not known here")
        if point.hosts > 1:
            return no_limit(point, "the ranks were on several hosts, and what joins those is not known here")
        return no_limit(point, "the ranks were on another host, the topology is of this one")

    def _of_host(self, bound: Bound, point: Result) -> Bounds:
        match bound:
            case bounds.Nothing():
                return no_limit(point, bound.why)
            case bounds.PathLinks():
                return self._host.links(point)
            case bounds.DriveLinks():
                return self._host.drive_links(point)
            case bounds.MemoryChannels():
                return self._host.memory_channels(point)
            case bounds.ThreadCopies():
                counted = point.parameters.get(bound.counted_by, 1) if bound.counted_by else 1
                times = bound.times * counted if isinstance(counted, int) else bound.times
                return self._host.thread_copies(point, times, upper_only=bound.upper_only)
            case bounds.CopiedBlocks():
                return self._host.copied_blocks(point)
            case bounds.SharedMessage():
                return self._host.message(point)
            case bounds.PlainSockets():
                return self._host.plain_socket(point, bound.times)
            case bounds.SmallTransfer():
                return self._host.small_transfer(point)
            case bounds.HostCollective():
                return self._host.collective(bound.operation, point, upper_only=bound.upper_only)
            case bounds.RawDevice():
                return self._host.raw_device(point)
            case _:
                return self._of_gpu(bound, point)

    def _of_gpu(self, bound: Bound, point: Result) -> Bounds:
        match bound:
            case bounds.GpuCopy():
                return self._gpu.copy(point)
            case bounds.GpuTransfer():
                return self._gpu.transfer(point)
            case bounds.GpuLoad():
                return self._gpu.load(point)
            case bounds.SmallGpuCopy():
                return self._gpu.small_copy(point, bound.clock)
            case bounds.SmallGpuTransfer():
                return self._gpu.small_transfer(point)
            case bounds.Collective():
                nvls_off = nvls_is_off(point.settings, self._environment)
                return self._gpu.collective(bound.operation, point, nvls_is_off=nvls_off)
            case bounds.Gradients():
                return self._gpu.gradients(point, nvls_is_off=nvls_is_off(point.settings, self._environment))
            case bounds.FetchAndDecode():
                return fetch_and_decode(self._ceilings, point)
            case _:
                return no_limit(point, f"nothing here knows the bound {type(bound).__name__}")

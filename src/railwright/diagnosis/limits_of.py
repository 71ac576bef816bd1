"""Which limit a measured point is held against: one table from each declared kind of bound to what finds it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from railwright.diagnosis.ceilings import Ceilings
from railwright.diagnosis.gpu_limits import GpuLimits
from railwright.diagnosis.host_limits import HostLimits, path_over
from railwright.errors import RailwrightError
from railwright.faults.algorithm_forced import nvls_is_off
from railwright.limits.model import Bounds
from railwright.results import bounds
from railwright.results.bounds import Bound, Declarations, declared_for, no_limit
from railwright.results.model import Result
from railwright.topology.model import Path, Topology
from railwright.topology.paths import Graph

Finder = Callable[[Bound, Result], Bounds]


class LimitFinder:
    """Limits for the points of one run."""

    def __init__(
        self,
        topology: Topology,
        results: Iterable[Result],
        declarations: Declarations,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        """`declarations` say what the benchmarks' results are held against; `results` hold the measured ceilings."""
        try:
            self._graph: Graph | None = Graph(topology)
        except RailwrightError:
            self._graph = None
        ceilings = Ceilings(results, declarations)
        self._declarations = declarations
        self._environment = environment or {}
        self._host = HostLimits(topology, self._graph, ceilings)
        self._gpu = GpuLimits(topology, self._graph, ceilings)
        self._finders: dict[type[Bound], Finder] = {
            bounds.Nothing: _nothing,
            bounds.PathLinks: _of(self._host.links),
            bounds.DriveLinks: _of(self._host.drive_links),
            bounds.MemoryChannels: _of(self._host.memory_channels),
            bounds.ThreadCopies: self._thread_copies,
            bounds.CopiedBlocks: _of(self._host.copied_blocks),
            bounds.CacheLine: self._cache_line,
            bounds.PlainSockets: _of(self._host.plain_socket),
            bounds.RawDevice: _of(self._host.raw_device),
            bounds.GpuCopy: _of(self._gpu.copy),
            bounds.GpuTransfer: _of(self._gpu.transfer),
            bounds.GpuLoad: _of(self._gpu.load),
            bounds.Collective: self._collective,
            bounds.Gradients: _of(self._gradients),
        }

    def path(self, path_id: str) -> Path | None:
        """The path of `source>target` over the topology, None where it has no such devices."""
        return path_over(self._graph, path_id)

    def find(self, point: Result) -> Bounds:
        """The limit and the expected band of one point; no limit for what nobody declared."""
        if "@" in point.path:  # `memory0@0>memory0@1`
            return no_limit(point, "the ranks were on several hosts, the topology is of one")
        if point.settings.get("functional") is True:
            return no_limit(point, f"a functional run, its {point.ranks} ranks shared cores")
        declared = declared_for(point, self._declarations)
        if declared is None:
            return no_limit(point, "nothing is declared of what this is held against")
        finder = self._finders.get(type(declared.bound))
        if finder is None:
            return no_limit(point, f"nothing here knows the bound {type(declared.bound).__name__}")
        return finder(declared.bound, point)

    def _thread_copies(self, bound: Bound, point: Result) -> Bounds:
        assert isinstance(bound, bounds.ThreadCopies)
        counted = point.parameters.get(bound.counted_by, 1) if bound.counted_by else 1
        times = bound.times * counted if isinstance(counted, int) else bound.times
        return self._host.thread_copies(point, times, upper_only=bound.upper_only)

    def _cache_line(self, bound: Bound, point: Result) -> Bounds:
        assert isinstance(bound, bounds.CacheLine)
        return self._host.cache_line(point, for_messages=bound.for_messages)

    def _collective(self, bound: Bound, point: Result) -> Bounds:
        assert isinstance(bound, bounds.Collective)
        return self._gpu.collective(bound.operation, point, nvls_is_off=self._nvls_is_off(point))

    def _gradients(self, point: Result) -> Bounds:
        return self._gpu.gradients(point, nvls_is_off=self._nvls_is_off(point))

    def _nvls_is_off(self, point: Result) -> bool:
        return nvls_is_off(point.settings, self._environment)


def _of(find: Callable[[Result], Bounds]) -> Finder:
    """A finder for a kind of bound that says nothing but its kind."""
    return lambda _bound, point: find(point)


def _nothing(bound: Bound, point: Result) -> Bounds:
    assert isinstance(bound, bounds.Nothing)
    return no_limit(point, bound.why)

"""Which limit a measured point of a GPU path is held against: copies, NIXL with GPU memory, NCCL collectives."""

from __future__ import annotations

from msgspec.structs import replace

from railwright.busbw import factor
from railwright.checks.parts import without
from railwright.diagnosis.ceilings import Ceilings
from railwright.diagnosis.host_limits import path_over
from railwright.errors import RailwrightError
from railwright.limits import gpu as gpu_limits
from railwright.limits import nvlink
from railwright.limits.case import Case
from railwright.limits.choice import at_size, band_of
from railwright.limits.collectives import algorithms, as_limit
from railwright.limits.limit import Bounds, Expected, Limit, NoLimit
from railwright.limits.linpack import fp64_limit
from railwright.limits.path import limit_inside
from railwright.limits.rates import Algorithm
from railwright.limits.sources import SAME_RUN
from railwright.limits.traffic import without_nvls
from railwright.results.records import Result, size_of
from railwright.topology.cluster import Cluster, cluster_of
from railwright.topology.devices import Device, PcieLink, Scalar, Topology
from railwright.topology.gpus import usable_gpus
from railwright.topology.paths import Graph
from railwright.units import GIB, KIB, MIB, format_flops, format_size

_COPIES_JUDGED_FROM_BYTES = 16 * MIB
"""Below it the start of each copy counts as much as its bytes."""
_NIXL_JUDGED_FROM_BYTES = 64 * MIB
"""UCX cuts a transfer into parts, and its cost for each request counts below."""

_SMALL_BYTES = 64 * KIB
"""Up to it transfers are told by their latency."""
_LEAST_RANKS = 2
_OWN: dict[str, Scalar] = {"size_bytes": 2 * MIB}
_DECIDES_FROM = 0.01
"""Our choice: where the bytes alone would take less than this share of the least that is expected, their start decides,
for which no document gives a floor."""


def decides_nothing(limit: Limit | NoLimit, expected: Expected | None) -> bool:
    """Whether the limit of a latency is so far below the expected band that it bounds nothing, as for a few bytes."""
    if not isinstance(limit, Limit) or expected is None or limit.quantity != "latency_s":
        return False
    return limit.value < _DECIDES_FROM * expected.low


class GpuLimits:
    """Limits for the points of one run on one machine."""

    def __init__(self, topology: Topology, graph: Graph | None, ceilings: Ceilings) -> None:
        self._topology = topology
        self._graph = graph
        self._ceilings = ceilings
        self._found: dict[tuple[tuple[str, ...], str, str, bool], tuple[Algorithm, ...]] = {}

    def copy(self, point: Result) -> Bounds:
        """A copy: what it crosses, with the band of its engine and direction."""
        limit, band = self._path(point.path)
        return limit, self._of_copy(band, point.path, point.parameters) if isinstance(limit, Limit) else None

    def transfer(self, point: Result) -> Bounds:
        """A transfer by a library: what it crosses, with a band for large ones."""
        limit, band = self._path(point.path)
        is_large = (size_of(point.parameters) or 0) >= _NIXL_JUDGED_FROM_BYTES
        return limit, band if is_large and isinstance(limit, Limit) else None

    def gradients(self, point: Result, *, nvls_is_off: bool) -> Bounds:
        """Gradients cannot be reduced faster than all_reduce can."""
        shared = {key: value for key, value in point.parameters.items() if key in ("rate", "gpus")}
        whole = {"size_bytes": GIB, **shared}
        return self.collective("all_reduce", replace(point, parameters=whole), nvls_is_off=nvls_is_off)[0], None

    def linpack(self, point: Result) -> Bounds:
        """The GPUs' FP64 rate; where it is not known, dgemm of the same run. No band: peers used other solvers."""
        order = point.parameters.get("n")
        limit = fp64_limit(self._topology, point.ranks, order if isinstance(order, int) else 0)
        product = self._ceilings.of("dgemm", point)
        if product is None:
            return limit, None
        reached = f"dgemm of the same run reached {format_flops(product.best)}"
        if isinstance(limit, Limit):
            return replace(limit, because=f"{limit.because}; {reached}"), None
        return Limit(
            quantity="flop_per_s", value=product.best, kind="measured_ceiling", because=f"{reached}; {limit.why}",
            varies=product.varies_beyond(product.best), sources=(SAME_RUN,),
        ), None  # fmt: skip

    def load(self, point: Result) -> Bounds:
        """A load of other memory takes longer than one of the GPU's own, by a factor that belongs to the link."""
        own = self._ceilings.of("gpu load", point)
        gpu, path = self._device(point.path.partition(">")[2]), path_over(self._graph, point.path)
        if own is None or gpu is None or path is None:
            return NoLimit(quantity="latency_s", why="loads of its own memory were not measured in this run"), None
        limit, _ = limit_inside(self._topology, path)
        if isinstance(limit, NoLimit):
            return replace(limit, quantity="latency_s"), None
        is_pcie = any(isinstance(link.protocol, PcieLink) for link in path.links)
        return gpu_limits.remote_load(gpu, (own.slowest, own.fastest), over_pcie=is_pcie)

    def small_copy(self, point: Result, clock: str) -> Bounds:
        """A copy of a few bytes, between a load of the GPU's own memory and so many of them."""
        source, _, target = point.path.partition(">")
        gpu = self._device(source) or self._device(target)
        own = None
        if gpu is not None:
            own = self._ceilings.of("gpu load", replace(point, path=f"{gpu.id}>{gpu.id}", parameters=_OWN))
        if gpu is None or own is None:
            return NoLimit(quantity="latency_s", why="loads of its own memory were not measured in this run"), None
        return gpu_limits.small_copy(gpu, (own.slowest, own.fastest), by_host_clock=clock == "host")

    def small_transfer(self, point: Result) -> Bounds:
        """A small transfer by a library: no faster than the GPU's part of a copy, and within twice what a program
        waits for one.
        """
        alone, awaited = (self._ceilings.of(name, point) for name in ("gpu copy", "awaited gpu copy"))
        if alone is None or awaited is None:
            return NoLimit(quantity="latency_s", why="copies of a few bytes were not measured in this run"), None
        is_small = (size_of(point.parameters) or 0) <= _SMALL_BYTES
        both = ((one.slowest, one.fastest) for one in (alone, awaited))
        return gpu_limits.small_transfer(*both, is_small=is_small)

    def _path(self, path_id: str) -> Bounds:
        source, _, target = path_id.partition(">")
        if source == target and (gpu := self._device(source)) is not None:
            return gpu_limits.local_copy_limit(gpu)
        path = path_over(self._graph, path_id)
        if path is None:
            return NoLimit(quantity="bandwidth_bytes_per_s", why=f"the topology has no path {path_id}"), None
        return limit_inside(self._topology, path)

    def _of_copy(self, band: Expected | None, path_id: str, parameters: dict[str, Scalar]) -> Expected | None:
        """The band of a copy: by an engine or a kernel, one way or both, from pinned memory alone."""
        if band is None or (size_of(parameters) or 0) < _COPIES_JUDGED_FROM_BYTES:
            return None
        if parameters.get("host") == "pageable":
            return None  # the driver copies through a buffer of its own: a CPU's work, and no link's
        source, _, target = path_id.partition(">")
        by_kernel, both_ways = parameters.get("engine") == "sm", parameters.get("direction") == "both"
        path = path_over(self._graph, path_id) if source != target else None
        if path is None:
            return band
        if not any(isinstance(link.protocol, PcieLink) for link in path.links):
            return gpu_limits.over_nvlink(band, by_kernel=by_kernel, both_ways=both_ways)
        reads_host = source.startswith("memory")
        return gpu_limits.over_pcie(band, by_kernel=by_kernel, both_ways=both_ways, reads_host=reads_host)

    def collective(self, operation: str, point: Result, *, nvls_is_off: bool) -> Bounds:
        """The same limit and band that `limits` and `explain` give for that collective, at this size."""
        quantity, path_id, parameters = point.quantity, point.path, point.parameters
        size = size_of(parameters) or 0
        cluster = self._cluster(path_id, str(parameters.get("gpus", "")), nvls_is_off=nvls_is_off)
        if cluster is None or size < 1:
            return NoLimit(quantity=quantity, why=f"the topology has no GPUs {path_id}"), None
        asked = str(parameters.get("protocol", "free")).lower()
        try:
            found = self._algorithms(cluster, operation, str(parameters.get("algorithm", "free")), nvls_is_off)
            likely, rate, time = at_size(cluster, operation, found, size, "Simple" if asked == "simple" else "")
        except RailwrightError as error:
            missing = tuple(f"{gpu}: NVLink" for gpu in nvlink.not_known(cluster.host))
            return NoLimit(quantity=quantity, why=error.message, missing=missing), None
        scale = float(factor(operation, cluster.ranks)) if parameters.get("rate") == "busbw" else 1.0
        limit = as_limit(found, rate.limit * scale)
        forced = asked not in ("free", "simple")
        if quantity == "latency_s" and time is not None:
            floor = replace(limit, quantity=quantity, value=time.limit)
            return _latency(floor, band_of(time, likely, quantity), size, forced=forced)
        is_rate = quantity == "bandwidth_bytes_per_s" and not forced
        return limit, band_of(rate.times(scale), likely) if is_rate else None

    def _algorithms(self, cluster: Cluster, operation: str, asked: str, nvls_is_off: bool) -> tuple[Algorithm, ...]:
        """A linear program each, and every size of a sweep asks for the same."""
        name = "auto" if asked.lower() == "free" else asked.lower()
        key = (tuple(gpu.id for gpu in cluster.host.of_kind("gpu")), operation, name, nvls_is_off)
        if key not in self._found:
            self._found[key] = algorithms(Case(cluster=cluster, algorithm=name), operation)
        return self._found[key]

    def _cluster(self, path_id: str, named: str = "", *, nvls_is_off: bool = False) -> Cluster | None:
        """The machine with only the GPUs that took part: those named, else all usable ones up to the path's end.

        Without NVLS the GPUs count as GPUs without multicast.
        """
        last = path_id.partition(">")[2]
        every = [gpu.id for gpu in self._topology.of_kind("gpu")]
        gpus = [gpu.id for gpu in usable_gpus(self._topology)] or every  # a shape's GPUs have no address
        taking_part = named.split(",") if named else gpus[: gpus.index(last) + 1] if last in gpus else []
        if len(taking_part) < _LEAST_RANKS or not set(taking_part) <= set(gpus):
            return None
        host = without(self._topology, set(every) - set(taking_part))
        return cluster_of(without_nvls(host) if nvls_is_off else host, 1)

    def _device(self, device_id: str) -> Device | None:
        found = self._topology.device(device_id)
        return found if found is not None and found.kind == "gpu" else None


def _latency(floor: Limit, band: Expected | None, size_bytes: int, *, forced: bool) -> Bounds:
    """The time of an operation: a floor from its bytes alone, and the band. A forced LL or LL128 has no band."""
    if not decides_nothing(floor, band):
        return floor, None if forced else band
    size = format_size(size_bytes)
    if forced:
        return NoLimit(quantity="latency_s", why=f"no document gives the least time of an operation of {size}"), None
    return replace(floor, because=f"its start decides at {size}, not its bytes over {floor.because}"), band

"""Copies between host memory and GPUs, between GPUs and inside a GPU, by copy engines and by multiprocessors.

The method is nvbandwidth's, but with the events' own resolution (nvbandwidth divides by whole microseconds) and with
every byte of the target compared.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from typing import NamedTuple

from msgspec.structs import replace

from railwright.benchmarks.benchmark import Benchmark, Plan, Rank
from railwright.benchmarks.gpu import job as gpu_job
from railwright.benchmarks.gpu import places
from railwright.benchmarks.gpu.places import BufferPair, Gpu
from railwright.benchmarks.job import Case, Job
from railwright.benchmarks.options import Options, choice, option, single_choice, whole_number
from railwright.benchmarks.record import complete, sum_checks, waived
from railwright.native import cuda
from railwright.native.cuda_copies import Copies, Copy, time_copies
from railwright.results import workload
from railwright.results.declarations import Declaration
from railwright.results.records import Evidence, Result
from railwright.topology.devices import C2cLink, Link, NvlinkLink, PcieLink, Scalar
from railwright.topology.paths import Graph
from railwright.units import MIB, format_size, parse_sizes

_COPIES, _SAMPLES = 16, 5
_MOST_SAMPLES = 1000
_LEAST_COPIES = 4
_LONG_S = 0.02
"""The duration of a copy above which fewer are timed; they still last far longer than the events' resolution."""
_TRIED_FROM_BYTES = 64 * MIB
"""The minimum size of copies whose duration is measured first. Smaller copies are short on every link."""
_TWICE, _AGAIN = 2, 8
"""The reverse copies per measured copy, and those of the second attempt if the reverse copies ended first."""
# For the plan only: half of the narrowest link's raw rate, or the rate of a slow but healthy machine.
_SHARE_OF_RAW = 0.5
_ESTIMATE_BYTES_PER_S, _ESTIMATE_CHECK_BYTES_PER_S = 12e9, 1.5e9
_ESTIMATE_NVLINK_BYTES_PER_S, _ESTIMATE_C2C_BYTES_PER_S = 20e9, 200e9  # of the slowest generation's link
_START_S = 3.0
_TENFOLD = 10
"""A link at a tenth of its rate is slow but does not hang."""


class CopyOptions(Options, frozen=True):
    """Options of copies."""

    sizes: tuple[int, ...] = option("512M", "sizes of one copy, like 64K:1G:x4", parse_sizes)
    engines: tuple[str, ...] = option("ce,sm", "ce: copy engine, sm: multiprocessors, or both", choice("ce", "sm"))
    directions: tuple[str, ...] = option(
        "one,both", "one: alone, both: with copies in the other direction", choice("one", "both")
    )
    host: tuple[str, ...] = option("pinned", "pinned, pageable, or both", choice("pinned", "pageable"))
    paths: tuple[str, ...] = option(
        "host,local,peer", "host, local (inside a GPU), peer", choice("host", "local", "peer")
    )
    pairs: str = option(
        "neighbours", "pairs of GPUs measured in every way: neighbours or all", single_choice("neighbours", "all")
    )
    numa: str = option("near", "host memory near the GPU, or on each NUMA node", single_choice(*places.NUMA_CHOICES))
    samples: int = option(str(_SAMPLES), "timed passes of 16 copies", whole_number(_MOST_SAMPLES))


CopyJob = Job[CopyOptions, Case]
CopyRank = Rank[CopyOptions, Case]


class CopyCase(Case, frozen=True, kw_only=True):
    """The parameters besides the size: the kind of host memory, or the GPU that runs a copy between GPUs."""

    engine: str
    host: str = ""
    by: str = ""
    direction: str


class _PeerCopy(NamedTuple):
    """A copy between two GPUs, given by number."""

    source: int
    target: int
    engine: str
    by: str
    direction: str


class _Point(NamedTuple):
    """A point to measure: `by` runs the copy from `source` to `target`; `other_by` runs the reverse copy, if any."""

    source: BufferPair
    target: BufferPair
    by: Gpu
    other_by: Gpu | None
    case: CopyCase
    evidence: tuple[Evidence, ...] = ()
    staged: bool = False


def _choose_counts(copy_s: float) -> tuple[int, int]:
    """Return the numbers of warm-up and timed copies for a copy of this duration: 4 and 16, or fewer."""
    copies = max(_LEAST_COPIES, min(_COPIES, int(_COPIES * _LONG_S / copy_s) if copy_s else _COPIES))
    return copies // 4, copies


def _list_peer_copies(job: CopyJob) -> list[_PeerCopy]:
    """List the copies between GPUs: all between two; with more, only neighbours get every way unless `pairs=all`."""
    engines, directions, gpus = job.options.engines, job.options.directions, len(job.gpus)
    plain = ("ce" if "ce" in engines else engines[0], "write", "one" if "one" in directions else directions[0])
    return [
        _PeerCopy(source, target, engine, by, direction)
        for source in range(gpus)
        for target in range(gpus)
        for engine in engines
        for by in ("read", "write")
        for direction in directions
        if source != target
        if gpus == 2 or job.options.pairs == "all" or target == (source + 1) % gpus or (engine, by, direction) == plain
    ]


def _list_planned_copies(job: CopyJob) -> Iterator[tuple[str, str, str]]:
    """Yield (source, target, direction) of every point, without its size."""
    options, gpus = job.options, job.gpus
    for number, gpu in enumerate(gpus):
        for node in places.host_nodes(job, number, options.numa) if "host" in options.paths else ():
            for _, direction in (way for kind in options.host for way in _list_host_copies(job, kind)):
                yield node.id, gpu.id, direction
                yield gpu.id, node.id, direction
        if "local" in options.paths:
            yield from [(gpu.id, gpu.id, "one")] * len(options.engines)
    for way in _list_peer_copies(job) if "peer" in options.paths else ():
        yield gpus[way.source].id, gpus[way.target].id, way.direction


def _estimate_costs(job: CopyJob) -> Iterator[tuple[float, int]]:
    """Yield the seconds and bytes moved of every point. A CPU checks targets in host memory."""
    graph, samples = Graph(job.topology), job.options.samples
    for source, target, direction in _list_planned_copies(job):
        rate, has_back = _estimate_rate(graph, source, target), direction == "both"
        on_host = target.startswith("memory") or (has_back and source.startswith("memory"))
        for size in job.options.sizes:
            warm, copies = _choose_counts(size / rate)
            others = warm + _TWICE * copies if has_back else 0
            check_s = 2 * size / _ESTIMATE_CHECK_BYTES_PER_S if on_host else 0.0
            # Both directions run at once.
            seconds = samples * max(warm + copies, others) * size / rate + check_s
            yield seconds, samples * (warm + copies + others) * size


def _estimate_rate(graph: Graph, source: str, target: str) -> float:
    """Estimate the rate of a copy in bytes/s, for the plan only."""
    if source == target and (gpu := graph.devices.get(source)) is not None:
        memory = gpu.facts.get("hbm_bandwidth_bytes_per_s")  # a copy reads and writes each byte
        return _SHARE_OF_RAW * memory / 2 if isinstance(memory, int | float) else _ESTIMATE_BYTES_PER_S
    path = graph.find(source, target) if {source, target} <= set(graph.devices) else None
    known = [rate for link in (path.links if path else ()) if (rate := _raw_rate(link))]
    return _SHARE_OF_RAW * min(known) if known else _ESTIMATE_BYTES_PER_S


def _raw_rate(link: Link) -> float | None:
    """Return raw bits on the wire over eight, in bytes/s, or None if the link's rate is unknown."""
    match link.protocol:
        case PcieLink(gt_per_s=rate, width=width) if rate and width:
            return rate * 1e9 * width / 8
        case NvlinkLink(links=links) if links:
            return links * _ESTIMATE_NVLINK_BYTES_PER_S
        case C2cLink():
            return _ESTIMATE_C2C_BYTES_PER_S
    return None


def _plan(job: CopyJob) -> Plan:
    reason = gpu_job.waiver_reason(job)
    if reason:
        return Plan(path="memory0>gpu0", waived=reason)
    start_s, costs = _START_S + len(job.gpus), list(_estimate_costs(job))
    return Plan(
        path=f"{places.find_near_memory(job, 0)}>{job.gpus[0].id}",
        seconds=start_s + sum(seconds for seconds, _ in costs),
        memory_bytes=2 * max(job.options.sizes) if "host" in job.options.paths else 0,
        moved_bytes=sum(moved for _, moved in costs),
        longest_step_s=_TENFOLD * max([start_s, *(seconds for seconds, _ in costs)]),
    )


def _run(rank: CopyRank) -> Iterator[Result]:
    options = rank.job.options

    def measure(gpus: list[Gpu], ends: dict[str, BufferPair], most: int) -> Iterator[Result]:
        for gpu in gpus if "host" in options.paths else ():
            yield from _measure_host(rank, gpu, ends[gpu.id], most)
        for gpu in gpus if "local" in options.paths else ():
            for engine in options.engines:
                case = CopyCase(engine=engine, direction="one")
                yield from _measure(rank, _Point(ends[gpu.id], ends[gpu.id], gpu, None, case))
        if "peer" in options.paths and len(gpus) > 1:
            yield from _measure_peers(rank, gpus, ends)

    yield from places.measure_gpus(rank, BENCHMARK.blank(_plan(rank.job).path), options.sizes, measure)


def _measure_host(rank: CopyRank, gpu: Gpu, on_gpu: BufferPair, most: int) -> Iterator[Result]:
    """Measure between a GPU and its host memory: each kind and node, both directions, alone and at once."""
    job = rank.job
    for node in places.host_nodes(job, gpu.number, job.options.numa):
        for kind in job.options.host:
            with ExitStack() as stack:
                rank.step(f"gpu_copy {kind} host memory on {node.id} for {gpu.id}")
                in_host = places.allocate_in_host(stack, node, gpu, most, pinned=kind == "pinned")
                seen = places.placement_evidence(in_host)
                for engine, direction in _list_host_copies(job, kind):
                    case = CopyCase(engine=engine, host=kind, direction=direction)
                    other = gpu if direction == "both" else None
                    yield from _measure(rank, _Point(in_host, on_gpu, gpu, other, case, seen))
                    yield from _measure(rank, _Point(on_gpu, in_host, gpu, other, case, seen))


def _list_host_copies(job: CopyJob, kind: str) -> list[tuple[str, str]]:
    """List (engine, direction). Multiprocessors do not reach pageable memory, and enqueuing its copies blocks."""
    if kind == "pageable":
        return [("ce", "one")]
    return [(engine, direction) for engine in job.options.engines for direction in job.options.directions]


def _measure_peers(rank: CopyRank, gpus: list[Gpu], ends: dict[str, BufferPair]) -> Iterator[Result]:
    """Measure ordered pairs of GPUs: the target pulls the data (read) or the source pushes it (write)."""
    reached = places.enable_peers(gpus)
    for way in _list_peer_copies(rank.job):
        source, target = gpus[way.source], gpus[way.target]
        by, other = (target, source) if way.by == "read" else (source, target)
        direct = (by.id, other.id) in reached
        seen = places.peer_evidence(direct=direct)
        case = CopyCase(engine=way.engine, by=way.by, direction=way.direction)
        back = other if way.direction == "both" else None
        yield from _measure(rank, _Point(ends[source.id], ends[target.id], by, back, case, seen, staged=not direct))


def _measure(rank: CopyRank, point: _Point) -> Iterator[Result]:
    """Measure the point at every size that fits."""
    path, varied = f"{point.source.name}>{point.target.name}", point.case.parameters()
    for size in (size for size in rank.job.options.sizes if size <= point.source.out.size_bytes):
        blank = BENCHMARK.blank(path)
        blank = replace(blank, parameters={"size_bytes": size, **varied})
        if point.case.engine == "sm" and point.staged:
            yield waived(blank, f"{point.by.id} does not reach the other GPU's memory directly")
            continue
        rank.step(f"gpu_copy {path} {format_size(size)} {' '.join(map(str, varied.values()))}")
        yield _measure_size(blank, point, size, rank.job.options.samples)


def _measure_size(blank: Result, point: _Point, size: int, samples: int) -> Result:
    source, target, kernel = point.source, point.target, point.case.engine == "sm"
    there = Copy(target.into, source.out, size, point.by.device, kernel=kernel, staged=point.staged)
    back = None
    places.poison(target.into, size)
    if point.other_by is not None:
        places.poison(source.into, size)
        back = Copy(source.into, target.out, size, point.other_by.device, kernel=kernel, staged=point.staged)
    warm, copies = _try_counts(there)
    timed = _time_samples(there, back, warm, copies, samples)
    if timed.uncovered:
        early = f"the reverse copies ended first in {timed.uncovered} of {samples} samples"
        return waived(blank, f"{early}: the result would cover a single direction")
    check = places.verify(target, source, size)
    settings: dict[str, Scalar] = {
        "copies": copies,
        "warm_copies": warm,
        "start": "held back until all is enqueued" if there.held_back() else "as enqueued",
        "run_by": point.by.id,
        "gpu": point.by.device.name,
        "cuda_driver": cuda.driver_version(),
        "bytes_counted": "once",
    }
    if kernel:
        settings["grid"] = f"{point.by.device.multiprocessors} blocks of {cuda.COMPUTE_THREADS} threads"
    if back is not None:
        check = sum_checks((check, places.verify(source, target, size)))
        settings["other_way_ran_throughout"] = f"{samples} of {samples} samples"
    rates = [size / second for second in timed.seconds]
    return complete(blank, rates, settings=settings, verification=check, evidence=point.evidence)


def _try_counts(copy: Copy) -> tuple[int, int]:
    """Return `_choose_counts`, after trying a copy that may take long."""
    if copy.size_bytes < _TRIED_FROM_BYTES:
        return _choose_counts(0.0)
    return _choose_counts(time_copies(copy, warm=0, copies=1, samples=1).seconds[0])


def _time_samples(there: Copy, back: Copy | None, warm: int, copies: int, samples: int) -> Copies:
    """Time all samples, and repeat them with more reverse copies if those ended first."""
    timed = time_copies(there, back, warm=warm, copies=copies, samples=samples, others=warm + _TWICE * copies)
    if timed.uncovered:
        timed = time_copies(there, back, warm=warm, copies=copies, samples=samples, others=warm + _AGAIN * copies)
    return timed


BENCHMARK = Benchmark(
    name="gpu_copy",
    summary="host to GPU and back, GPU to GPU, and inside a GPU, by copy engines and multiprocessors",
    method="nvbandwidth 0.8: 16 copies (fewer long ones) back to back after 4, held till enqueued, by CUDA events",
    results=(Declaration("bandwidth_bytes_per_s", workload.Copy()),),
    options=CopyOptions,
    launches=gpu_job.launch_all_gpus,
    plan=_plan,
    run=_run,
)

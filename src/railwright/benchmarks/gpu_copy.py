"""Copies from host memory to a GPU and back, between GPUs and inside one, by copy engines and by multiprocessors.

Measured as nvbandwidth does it, but with the events' own resolution (nvbandwidth divides by whole microseconds) and
with every byte of the target compared.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from typing import NamedTuple

from railwright.benchmarks.base import Benchmark, Job, Option, Plan, Rank, choice, one_of, whole_number
from railwright.benchmarks.gpu_job import waived
from railwright.benchmarks.gpu_places import (
    NUMA_CHOICES,
    Ends,
    Gpu,
    both,
    enable_peers,
    ends_in_host,
    ends_on,
    host_nodes,
    near_memory,
    open_gpus,
    placement,
    poison,
    verified,
)
from railwright.native import cuda
from railwright.native.cuda_copies import Copy, time_copies
from railwright.results.model import Evidence, Result
from railwright.results.statistics import summarise
from railwright.topology.model import Scalar
from railwright.units import format_size, parse_sizes

_WARM, _COPIES, _SAMPLES = 4, 16, 5
_MOST_SAMPLES = 1000
# For the plan alone: what a slow but healthy machine reaches over PCIe, and between GPUs that have no NVLink.
_ESTIMATE_HOST_BYTES_PER_S, _ESTIMATE_PEER_BYTES_PER_S, _ESTIMATE_CHECK_BYTES_PER_S = 12e9, 20e9, 1.5e9
_MOVED = {"one": 1.0, "both": 1 + (_WARM + 2 * _COPIES) / (_WARM + _COPIES)}
"""Copies of one measured way, with those of the other way, over the copies of the measured way."""
_START_S = 3.0


class _Point(NamedTuple):
    """One thing to measure: `by` runs the copy from `source` to `target`, `other_by` the one back, if any."""

    source: Ends
    target: Ends
    by: Gpu
    other_by: Gpu | None
    parameters: dict[str, Scalar]
    evidence: tuple[Evidence, ...] = ()
    staged: bool = False


def _wanted(job: Job, option: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(part.strip() for part in job.options[option].split(",")))


def _plan(job: Job) -> Plan:
    reason = waived(job)
    if reason:
        return Plan(path="memory0>gpu0", seconds=0, memory_bytes=0, waived=reason)
    sizes, paths, gpus = parse_sizes(job.options["sizes"]), _wanted(job, "paths"), len(job.gpus)
    engines, ways = len(_wanted(job, "engines")), sum(_MOVED[way] for way in _wanted(job, "directions"))
    passes = sum(sizes) * (_WARM + _COPIES) * int(job.options["samples"])
    nodes = len(host_nodes(job, 0, job.options["numa"]))
    host = "host" in paths and gpus * nodes * 2 * (engines * ways + ("pageable" in job.options["host"]))
    peer = "peer" in paths and gpus * (gpus - 1) * 2 * engines * ways
    local = "local" in paths and gpus * engines
    moved = int(passes * (host + peer + local))
    seconds = passes * host / _ESTIMATE_HOST_BYTES_PER_S + passes * (peer + local) / _ESTIMATE_PEER_BYTES_PER_S
    checked = sum(sizes) * 2 * host + (2 * gpus * nodes * max(sizes) if host else 0)
    return Plan(
        path=f"{near_memory(job, 0)}>{job.gpus[0].id}",
        seconds=_START_S + seconds + checked / _ESTIMATE_CHECK_BYTES_PER_S,
        memory_bytes=2 * max(sizes) if host else 0,
        moved_bytes=moved,
    )


def _run(rank: Rank) -> Iterator[Result]:
    job = rank.job
    rank.step("CUDA")
    reason = cuda.problem()
    if reason:
        yield Result(
            benchmark=BENCHMARK.name, quantity="bandwidth_bytes_per_s", path=_plan(job).path, outcome="waived",
            reason=reason,
        )  # fmt: skip
        return
    paths, most = _wanted(job, "paths"), max(parse_sizes(job.options["sizes"]))
    with ExitStack() as stack:
        gpus = open_gpus(stack, job)
        ends = {gpu.id: ends_on(stack, gpu, most) for gpu in gpus}
        if "host" in paths:
            for gpu in gpus:
                yield from _with_host(rank, gpu, ends[gpu.id], most)
        if "local" in paths:
            for gpu in gpus:
                for engine in _wanted(job, "engines"):
                    varied: dict[str, Scalar] = {"engine": engine, "direction": "one"}
                    yield from _measure(rank, _Point(ends[gpu.id], ends[gpu.id], gpu, None, varied))
        if "peer" in paths and len(gpus) > 1:
            yield from _between(rank, gpus, ends)


def _with_host(rank: Rank, gpu: Gpu, on_gpu: Ends, most: int) -> Iterator[Result]:
    """A GPU and its host memory: each kind of memory on each node, there and back, alone and both at once."""
    job = rank.job
    for node in host_nodes(job, gpu.number, job.options["numa"]):
        for kind in _wanted(job, "host"):
            with ExitStack() as stack:
                rank.step(f"gpu_copy {kind} host memory on {node.id} for {gpu.id}")
                in_host = ends_in_host(stack, node, gpu, most, pinned=kind == "pinned")
                seen = placement(in_host)
                for engine, direction in _host_ways(job, kind):
                    varied: dict[str, Scalar] = {"engine": engine, "host": kind, "direction": direction}
                    other = gpu if direction == "both" else None
                    yield from _measure(rank, _Point(in_host, on_gpu, gpu, other, varied, seen))
                    yield from _measure(rank, _Point(on_gpu, in_host, gpu, other, varied, seen))


def _host_ways(job: Job, kind: str) -> list[tuple[str, str]]:
    """(engine, direction). Memory that is not pinned: multiprocessors do not reach it, and enqueuing waits for it."""
    if kind == "pageable":
        return [("ce", "one")]
    return [(engine, direction) for engine in _wanted(job, "engines") for direction in _wanted(job, "directions")]


def _between(rank: Rank, gpus: list[Gpu], ends: dict[str, Ends]) -> Iterator[Result]:
    """Every ordered pair of GPUs, the data pulled by its target (read) and pushed by its source (write)."""
    job = rank.job
    reached = enable_peers(gpus)
    for source in gpus:
        for target in (gpu for gpu in gpus if gpu is not source):
            for engine in _wanted(job, "engines"):
                for runner in ("read", "write"):
                    by, other = (target, source) if runner == "read" else (source, target)
                    direct = (by.id, other.id) in reached
                    value = "direct" if direct else "none: through the host"
                    seen = (Evidence(claim="peer_access", value=value, seen="cuDeviceCanAccessPeer"),)
                    for direction in _wanted(job, "directions"):
                        varied: dict[str, Scalar] = {"engine": engine, "by": runner, "direction": direction}
                        back = other if direction == "both" else None
                        point = _Point(ends[source.id], ends[target.id], by, back, varied, seen, staged=not direct)
                        yield from _measure(rank, point)


def _measure(rank: Rank, point: _Point) -> Iterator[Result]:
    """The point at every size."""
    job, kernel = rank.job, point.parameters["engine"] == "sm"
    for size in parse_sizes(job.options["sizes"]):
        path = f"{point.source.name}>{point.target.name}"
        varied = {"size_bytes": size, **point.parameters}
        if kernel and point.staged:
            reason = f"{point.by.id} does not reach the other GPU's memory directly"
            yield Result(
                benchmark=BENCHMARK.name, quantity="bandwidth_bytes_per_s", path=path, outcome="waived", reason=reason,
                parameters=varied,
            )  # fmt: skip
            continue
        rank.step(f"gpu_copy {path} {format_size(size)} {' '.join(map(str, point.parameters.values()))}")
        yield _one_size(job, point, path, size)


def _one_size(job: Job, point: _Point, path: str, size: int) -> Result:
    source, target, kernel = point.source, point.target, point.parameters["engine"] == "sm"
    there = Copy(target.into, source.out, size, point.by.device, kernel=kernel, staged=point.staged)
    back = None
    poison(target.into, size)
    if point.other_by is not None:
        poison(source.into, size)
        back = Copy(source.into, target.out, size, point.other_by.device, kernel=kernel, staged=point.staged)
    samples = int(job.options["samples"])
    timed = time_copies(there, back, warm=_WARM, copies=_COPIES, samples=samples)
    check = verified(target, source, size)
    settings: dict[str, Scalar] = {
        "copies": _COPIES,
        "warm_copies": _WARM,
        "start": "held back until all is enqueued" if there.held_back() else "as enqueued",
        "run_by": point.by.id,
        "gpu": point.by.device.name,
        "cuda_driver": cuda.driver_version(),
        "bytes_counted": "once",
    }
    if kernel:
        settings["grid"] = f"{point.by.device.multiprocessors} blocks of {cuda.COMPUTE_THREADS} threads"
    if back is not None:
        check = both(check, verified(source, target, size))
        settings["other_way_ran_throughout"] = f"{samples - timed.uncovered} of {samples} samples"
    rates = [size / second for second in timed.seconds]
    return Result(
        benchmark=BENCHMARK.name,
        quantity="bandwidth_bytes_per_s",
        path=path,
        method=BENCHMARK.method,
        parameters={"size_bytes": size, **point.parameters},
        settings=settings,
        samples=tuple(rates),
        summary=summarise(rates),
        verification=check,
        evidence=point.evidence,
    )


BENCHMARK = Benchmark(
    name="gpu_copy",
    summary="host to GPU and back, GPU to GPU, and inside a GPU, by copy engines and multiprocessors",
    method="nvbandwidth 0.8: 16 copies back to back after 4, held back until enqueued, timed by CUDA events",
    quantities=("bandwidth_bytes_per_s",),
    ranks=1,
    plan=_plan,
    run=_run,
    uses_gpus=True,
    options=(
        Option("sizes", "512M", "sizes of one copy, like 64K:1G:x4", parse_sizes),
        Option("engines", "ce,sm", "ce: copy engine, sm: multiprocessors, or both", choice("ce", "sm")),
        Option("directions", "one,both", "one: alone, both: with copies the other way", choice("one", "both")),
        Option("host", "pinned", "pinned, pageable, or both", choice("pinned", "pageable")),
        Option("paths", "host,local,peer", "host, local (inside a GPU), peer", choice("host", "local", "peer")),
        Option("numa", "near", "host memory near the GPU, or on each NUMA node", one_of(*NUMA_CHOICES)),
        Option("samples", str(_SAMPLES), "timed passes of 16 copies", whole_number(_MOST_SAMPLES)),
    ),
)

"""STREAM: what the memory of each NUMA node carries when all of its CPUs read and write it at once."""

from __future__ import annotations

from collections.abc import Iterator

from railwright.benchmarks.base import Benchmark, Job, Option, Plan, Rank, node_of, whole_number
from railwright.native import stream
from railwright.results.model import Result
from railwright.results.statistics import summarise
from railwright.units import parse_size

_MOST_PASSES = 1000
_ESTIMATE_BYTES_PER_S = 8e9


def _nodes(job: Job) -> dict[int, list[int]]:
    """The CPUs that may be used, by NUMA node: each node's memory is a path of its own."""
    nodes: dict[int, list[int]] = {}
    for cpu in job.cpus:
        nodes.setdefault(node_of(job.topology, cpu), []).append(cpu)
    return nodes


def _words_per_thread(job: Job, threads: int) -> int:
    return max(1, parse_size(job.options["array-size"]) // stream.WORD_BYTES // threads)


def _plan(job: Job) -> Plan:
    passes = int(job.options["passes"])
    array_bytes = parse_size(job.options["array-size"])
    moved = (1 + passes) * array_bytes * sum(stream.WORDS_MOVED.values()) * len(_nodes(job))
    return Plan(
        path=_path(node_of(job.topology, job.cpus[0])),
        seconds=1 + moved / _ESTIMATE_BYTES_PER_S,
        memory_bytes=3 * array_bytes,
        moved_bytes=moved,
    )


def _path(node: int) -> str:
    return f"memory{node}>cpu{node}"


def _run(rank: Rank) -> Iterator[Result]:
    for node, cpus in _nodes(rank.job).items():
        rank.step(f"memory_stream node {node}, {len(cpus)} threads")
        yield from _measure(rank.job, node, cpus)


def _measure(job: Job, node: int, cpus: list[int]) -> Iterator[Result]:
    words = _words_per_thread(job, len(cpus))
    passes = stream.stream(cpus, words, 1 + int(job.options["passes"]))
    for kernel, seconds in passes.seconds.items():
        moved = stream.WORDS_MOVED[kernel] * words * stream.WORD_BYTES * len(cpus)
        samples = tuple(moved / second for second in seconds)
        yield Result(
            benchmark=BENCHMARK.name,
            quantity="bandwidth_bytes_per_s",
            path=_path(node),
            method=BENCHMARK.method,
            parameters={"kernel": kernel, "threads": len(cpus)},
            settings={
                "array_bytes": words * stream.WORD_BYTES * len(cpus),
                "passes": len(seconds),
                "cpus": ",".join(map(str, cpus)),
                "bytes_counted": "read and written, as STREAM counts them",
            },
            samples=samples,
            summary=summarise(samples),
            verification=passes.check,
        )


BENCHMARK = Benchmark(
    name="memory_stream",
    summary="STREAM copy, scale, add and triad on all CPUs",
    method="STREAM (McCalpin): four kernels over three arrays of doubles, one bound thread per CPU",
    quantities=("bandwidth_bytes_per_s",),
    ranks=1,
    plan=_plan,
    run=_run,
    options=(
        Option("array-size", "256M", "bytes of one array, at least four times the last-level cache", parse_size),
        Option("passes", "10", "timed passes, and one before them", whole_number(_MOST_PASSES)),
    ),
)

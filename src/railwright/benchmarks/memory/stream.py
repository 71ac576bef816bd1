"""STREAM: the memory bandwidth of each NUMA node with all of its CPUs reading and writing."""

from __future__ import annotations

from collections.abc import Iterator

from railwright.benchmarks.benchmark import Benchmark, Plan, Rank
from railwright.benchmarks.job import Case, Job, cpus_by_node, find_node
from railwright.benchmarks.options import Options, option, whole_number
from railwright.benchmarks.record import complete, format_cpus
from railwright.native import stream
from railwright.results.declarations import Declaration
from railwright.results.records import Result
from railwright.results.workload import Memory
from railwright.units import parse_size

_MOST_PASSES = 1000
_ESTIMATE_BYTES_PER_S = 8e9


class _Kernel(Case, frozen=True, kw_only=True):
    kernel: str
    threads: int


class StreamOptions(Options, frozen=True):
    """Options of STREAM."""

    array_size: int = option("256M", "bytes of one array, at least four times the last-level cache", parse_size)
    passes: int = option("10", "timed passes after one untimed pass", whole_number(_MOST_PASSES))


def _plan(job: Job[StreamOptions, Case]) -> Plan:
    array_bytes = job.options.array_size
    moved = (1 + job.options.passes) * array_bytes * sum(stream.WORDS_MOVED.values()) * len(cpus_by_node(job.machine))
    return Plan(
        path=_path(find_node(job.topology, job.cpus[0])),
        seconds=1 + moved / _ESTIMATE_BYTES_PER_S,
        memory_bytes=3 * array_bytes,
        moved_bytes=moved,
    )


def _path(node: int) -> str:
    return f"memory{node}>cpu{node}"


def _run(rank: Rank[StreamOptions, Case]) -> Iterator[Result]:
    for node, cpus in cpus_by_node(rank.job.machine).items():  # each node's memory is a separate path
        rank.step(f"memory_stream node {node}, {len(cpus)} threads")
        yield from _measure(rank.job.options, node, cpus)


def _measure(options: StreamOptions, node: int, cpus: list[int]) -> Iterator[Result]:
    words = max(1, options.array_size // stream.WORD_BYTES // len(cpus))
    passes = stream.stream(cpus, words, 1 + options.passes)
    for kernel, seconds in passes.seconds.items():
        moved = stream.WORDS_MOVED[kernel] * words * stream.WORD_BYTES * len(cpus)
        yield complete(
            BENCHMARK.blank(_path(node), _Kernel(kernel=kernel, threads=len(cpus))),
            [moved / second for second in seconds],
            settings={
                "array_bytes": words * stream.WORD_BYTES * len(cpus),
                "passes": len(seconds),
                "cpus": format_cpus(cpus),
                "bytes_counted": "read and written, as STREAM counts them",
            },
            verification=passes.check,
        )


BENCHMARK = Benchmark(
    name="memory_stream",
    summary="STREAM copy, scale, add and triad on all CPUs",
    method="STREAM (McCalpin): four kernels over three arrays of doubles, one bound thread per CPU",
    results=(Declaration("bandwidth_bytes_per_s", Memory(), is_reference=True),),
    options=StreamOptions,
    plan=_plan,
    run=_run,
)

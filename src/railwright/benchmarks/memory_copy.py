"""Host memory copied to host memory by `memcpy`, by one thread and by one thread per CPU.

Bandwidth counts the bytes copied once (a copy of 1 GB/s moves 2 GB/s through the memory system).
Buffers are as large as the copy, so that small sizes show the caches and large ones the memory: the same working set
that a message of that size has.
"""

from __future__ import annotations

from collections.abc import Iterator

from railwright.benchmarks.base import Benchmark, Job, Option, Plan, Rank, choice
from railwright.native import memory
from railwright.native.memory import Buffer
from railwright.results.model import Result, Verification
from railwright.results.statistics import summarise
from railwright.units import format_size, parse_sizes

_SAMPLES = 30
_TARGET_SAMPLE_S = 0.002
_ESTIMATE_BYTES_PER_S = 5e9


def _sizes(job: Job) -> tuple[int, ...]:
    return parse_sizes(job.options["sizes"])


def _plan(job: Job) -> Plan:
    sizes = _sizes(job)
    threads = len(job.cpus)
    moved = sum(_SAMPLES * _inner(size) * size for size in sizes) * 2
    return Plan(
        path=f"{job.memory_of(0)}>{job.memory_of(0)}",
        seconds=0.5 + moved / _ESTIMATE_BYTES_PER_S,
        memory_bytes=2 * max(sizes) * threads,
        moved_bytes=moved,
    )


def _inner(size_bytes: int) -> int:
    """Copies per sample: about 2 ms of them, for a clock that takes 30 ns must not count."""
    return max(1, min(100_000, int(_TARGET_SAMPLE_S * _ESTIMATE_BYTES_PER_S / size_bytes)))


def _run(rank: Rank) -> Iterator[Result]:
    job = rank.job
    wanted = choice("one", "all")(job.options["threads"])
    for size in _sizes(job):
        rank.step(f"memory_copy {format_size(size)}")
        if "one" in wanted:
            yield _one_thread(job, size)
        if "all" in wanted and len(job.cpus) > 1:
            seconds, check = memory.copy_threads(list(job.cpus), size, inner=_inner(size), samples=_SAMPLES)
            yield _result(job, size, len(job.cpus), [len(job.cpus) * size / second for second in seconds], check)


def _one_thread(job: Job, size: int) -> Result:
    with Buffer(size) as source, Buffer(size) as target:
        source.fill(size)
        seconds = memory.copy(target, source, size, inner=_inner(size), warm=2, samples=_SAMPLES)
        return _result(job, size, 1, [size / second for second in seconds], target.verify(size, size))


def _result(job: Job, size: int, threads: int, samples: list[float], check: Verification) -> Result:
    cpus = job.cpus[:threads]
    return Result(
        benchmark=BENCHMARK.name,
        quantity="bandwidth_bytes_per_s",
        path=f"{job.memory_of(0)}>{job.memory_of(0)}",
        method=BENCHMARK.method,
        parameters={"size_bytes": size, "threads": threads},
        settings={"copies_per_sample": _inner(size), "cpus": ",".join(map(str, cpus)), "bytes_counted": "once"},
        samples=tuple(samples),
        summary=summarise(samples),
        verification=check,
    )


BENCHMARK = Benchmark(
    name="memory_copy",
    summary="host memory to host memory by memcpy, one thread and all",
    method="libc memcpy between buffers of the copy's own size, bytes counted once",
    quantities=("bandwidth_bytes_per_s",),
    ranks=1,
    plan=_plan,
    run=_run,
    options=(
        Option("sizes", "512:64M:x2", "sizes of one copy, like 512:64M:x2", parse_sizes),
        Option("threads", "one,all", "one, all, or one,all", choice("one", "all")),
    ),
)

"""Host memory copied by `memcpy`: by one thread, by a thread per CPU, and between NUMA nodes.

Bandwidth counts the bytes copied once (a copy of 1 GB/s moves 2 GB/s through the memory system). Buffers are as large
as the copy, so that small sizes show the caches and large ones the memory: a message of that size has the same working
set. Between nodes, each buffer's pages are bound to its node, and the kernel confirms their place after the copies. A
thread on the source's node writes to remote memory and one on the target's node reads from it: two rates.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import NamedTuple

from railwright.benchmarks.benchmark import Benchmark, Plan, Rank
from railwright.benchmarks.job import Case, Job, find_node
from railwright.benchmarks.options import Options, choice, option
from railwright.benchmarks.pages import choose_pages, pages_evidence, pages_option
from railwright.benchmarks.record import complete, failed_if, format_cpus, waived
from railwright.errors import CannotJudge
from railwright.native import memory
from railwright.native.memory import Buffer, MayNotPlace
from railwright.results.declarations import Declaration
from railwright.results.records import Evidence, Result, Verification
from railwright.results.workload import Memory
from railwright.units import format_size, parse_sizes

_SAMPLES = 30
_TARGET_SAMPLE_S = 0.002
_ESTIMATE_BYTES_PER_S = 5e9


class CopyOptions(Options, frozen=True):
    """Options of copies."""

    sizes: tuple[int, ...] = option("512:64M:x2", "sizes of one copy, like 512:64M:x2", parse_sizes)
    node_sizes: tuple[int, ...] = option(
        "1M:64M:x4", "sizes of one copy between NUMA nodes, if there are several", parse_sizes
    )
    threads: tuple[str, ...] = option("one,all", "one, all, or one,all", choice("one", "all"))
    pages: tuple[str, ...] = pages_option("huge,small", "one thread's copies")


CopyJob = Job[CopyOptions, Case]


class _Copy(Case, frozen=True, kw_only=True):
    size_bytes: int
    threads: int
    pages: str = ""
    """`small` for a copy between small pages; empty for huge pages."""
    thread_on: str = ""
    """The node that runs the thread of a copy between nodes: the `source`'s or the `target`'s."""


class _Crossing(NamedTuple):
    """A copy between two nodes' memories by a thread on either node."""

    source: int
    target: int
    thread_on: str
    """`source` or `target`."""
    cpu: int | None
    """The first usable CPU of that node, or None."""

    @property
    def path(self) -> str:
        return f"memory{self.source}>memory{self.target}"

    @property
    def node(self) -> int:
        """The node that runs the thread."""
        return self.source if self.thread_on == "source" else self.target


def _list_crossings(job: CopyJob) -> list[_Crossing]:
    """List ordered pairs of nodes with memory and CPUs, with a thread on either node; empty without `one`."""
    if "one" not in job.options.threads:
        return []
    with_memory = {device.numa for device in job.topology.of_kind("memory")}
    nodes = {device.numa for device in job.topology.of_kind("cpu") if device.numa in with_memory}
    pairs = itertools.permutations(sorted(node for node in nodes if node is not None), 2)
    first_cpu: dict[int, int] = {}
    for cpu in job.cpus:
        first_cpu.setdefault(find_node(job.topology, cpu), cpu)
    return [
        _Crossing(source, target, thread_on, first_cpu.get(source if thread_on == "source" else target))
        for source, target in pairs
        for thread_on in ("source", "target")
    ]


def _plan(job: CopyJob) -> Plan:
    sizes, across = job.options.sizes, job.options.node_sizes
    crossings = [crossing for crossing in _list_crossings(job) if crossing.cpu is not None]
    moved = sum(
        _SAMPLES * _count_copies(size) * size * (1 + len(choose_pages(size, job.options.pages))) for size in sizes
    )
    moved += sum(_SAMPLES * _count_copies(size) * size for size in across) * len(crossings)
    return Plan(
        path=_local_path(job),
        seconds=0.5 + moved / _ESTIMATE_BYTES_PER_S,
        memory_bytes=2 * max(max(sizes) * len(job.cpus), max(across) if crossings else 0),
        moved_bytes=moved,
    )


def _count_copies(size_bytes: int) -> int:
    """Return copies per sample: about 2 ms of them, so that the clock's 30 ns do not matter."""
    return max(1, min(100_000, int(_TARGET_SAMPLE_S * _ESTIMATE_BYTES_PER_S / size_bytes)))


def _choose_pages(job: CopyJob, size: int) -> tuple[str, ...]:
    """Return the pages of one thread's copies of a size. Huge pages are an empty string, as in older records."""
    if "one" not in job.options.threads:
        return ()
    return tuple("" if kind == "huge" else kind for kind in choose_pages(size, job.options.pages))


def _local_path(job: CopyJob) -> str:
    return f"{job.find_memory(0)}>{job.find_memory(0)}"


def _run(rank: Rank[CopyOptions, Case]) -> Iterator[Result]:
    job = rank.job
    path, cpus = _local_path(job), list(job.cpus)
    for size in job.options.sizes:
        rank.step(f"memory_copy {format_size(size)}")
        for pages in _choose_pages(job, size):
            is_huge = pages != "small"
            with Buffer(size, huge=is_huge) as source, Buffer(size, huge=is_huge) as target:
                rates, check = _measure_copy(target, source)
                lies = pages_evidence(target)
            result = _result(path, _Copy(size_bytes=size, threads=1, pages=pages), cpus[:1], rates, check, (lies,))
            is_wrong = pages == "small" and lies.value == "huge"
            yield waived(result, f"small pages were requested, but {lies.seen}") if is_wrong else result
        if "all" in job.options.threads and len(cpus) > 1:
            seconds, check = memory.copy_threads(cpus, size, inner=_count_copies(size), samples=_SAMPLES)
            rates = [len(cpus) * size / second for second in seconds]
            yield _result(path, _Copy(size_bytes=size, threads=len(cpus)), cpus, rates, check)
    yield from _measure_crossings(rank)


def _measure_copy(target: Buffer, source: Buffer) -> tuple[list[float], Verification]:
    """Return bytes/s of each sample, and the check of the copied data."""
    size = source.size_bytes
    source.fill(size)
    seconds = memory.copy(target, source, size, inner=_count_copies(size), warm=2, samples=_SAMPLES)
    return [size / second for second in seconds], target.verify(size, size)


def _measure_crossings(rank: Rank[CopyOptions, Case]) -> Iterator[Result]:
    """Copy between the nodes. Moves the rank to a CPU of each node, and back at the end."""
    crossings = _list_crossings(rank.job)
    for crossing in crossings:
        if crossing.cpu is not None:
            memory.pin(crossing.cpu)
        for size in rank.job.options.node_sizes:
            rank.step(f"memory_copy {crossing.path} {format_size(size)}, thread on the {crossing.thread_on}'s node")
            yield _measure_crossing(crossing, size)
    if crossings:
        memory.pin(rank.job.find_cpu(rank.index))


def _measure_crossing(crossing: _Crossing, size: int) -> Result:
    """Measure one size between two nodes.

    Waived if this process may not place the pages or the thread; failed if they are misplaced anyway.
    """
    case = _Copy(size_bytes=size, threads=1, thread_on=crossing.thread_on)
    blank = BENCHMARK.blank(crossing.path, case)
    if crossing.cpu is None:
        return waived(blank, f"no CPU of NUMA node {crossing.node} may be used")
    try:
        with Buffer(size, node=crossing.source) as source, Buffer(size, node=crossing.target) as target:
            rates, check = _measure_copy(target, source)
            evidence, misplaced = _check_placement(crossing, source, target)
    except MayNotPlace as error:
        return waived(blank, error.message)
    except CannotJudge as error:
        return failed_if(blank, error.message)
    return failed_if(_result(crossing.path, case, [crossing.cpu], rates, check, (evidence,)), misplaced)


def _check_placement(crossing: _Crossing, source: Buffer, target: Buffer) -> tuple[Evidence, str]:
    """Return evidence of the pages' place after the copies, and the reason if it is wrong."""
    there = source.pages_on(crossing.source), target.pages_on(crossing.target)
    seen = ", ".join(
        f"{on} of {buffer.pages} pages of the {name} on node {node}"
        for on, buffer, name, node in zip(there, (source, target), ("source", "target"), crossing[:2], strict=True)
    )
    placed = there == (source.pages, target.pages)
    evidence = Evidence(claim="placement", value=crossing.path if placed else "elsewhere", seen=f"move_pages: {seen}")
    return evidence, "" if placed else f"the pages moved: {seen}"


def _result(
    path: str, case: _Copy, cpus: list[int], samples: list[float], check: Verification, seen: tuple[Evidence, ...] = ()
) -> Result:
    return complete(
        BENCHMARK.blank(path, case),
        samples,
        settings={
            "copies_per_sample": _count_copies(case.size_bytes),
            "cpus": format_cpus(cpus),
            "bytes_counted": "once",
        },
        verification=check,
        evidence=seen,
    )


BENCHMARK = Benchmark(
    name="memory_copy",
    summary="host memory to host memory by memcpy: one thread and all, and between NUMA nodes",
    method="libc memcpy between buffers of the copy's own size, bytes counted once",
    results=(
        Declaration(
            "bandwidth_bytes_per_s", Memory(copies=True), {"threads": (1,)}, supplies="thread copy", is_reference=True
        ),
        Declaration("bandwidth_bytes_per_s", Memory(copies=True), is_reference=True),
    ),
    options=CopyOptions,
    plan=_plan,
    run=_run,
)

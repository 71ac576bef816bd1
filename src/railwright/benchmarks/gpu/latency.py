"""The time of a small copy to, from and between GPUs, and of a GPU's load from each memory that it reaches.

The three times below are often confused:

- `copy`, clock `host`: from the call until the host knows that the copy is done, as a program waits for it.

- `copy`, clock `gpu`: between two CUDA events around a copy that was enqueued long before; excludes the call.

- `chase`: a load by one thread, from the address that the previous load returned; excludes copy engine and call.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack

from railwright.benchmarks.benchmark import Benchmark, Plan, Rank
from railwright.benchmarks.gpu import job as gpu_job
from railwright.benchmarks.gpu import places
from railwright.benchmarks.gpu.places import BufferPair, Gpu
from railwright.benchmarks.job import Case, Job
from railwright.benchmarks.options import Options, choice, option, single_choice
from railwright.benchmarks.record import complete, waived
from railwright.errors import UsageError
from railwright.native import cuda
from railwright.native.cuda_copies import CHAIN_STRIDE_BYTES, Chain, Copy, time_copies, time_copy_and_wait
from railwright.results import workload
from railwright.results.declarations import Declaration
from railwright.results.records import Evidence, Result, Verification
from railwright.topology.devices import Scalar
from railwright.units import GIB, format_size, parse_size, parse_sizes

_WARM, _SAMPLES, _CHASE_SAMPLES = 100, 1000, 5
_HELD_WARM, _HELD_SAMPLES = 4, 100
# A load of a microsecond gives 0.1 s: the launch's few microseconds are then below one part in ten thousand. The number
# must not be a multiple of the chain's length, or the walk would end at its start and prove nothing.
_LOADS = 100_003
_LEAST_REGION, _MOST_REGION = 4 * CHAIN_STRIDE_BYTES, 4 * GIB
# For the plan only: 1,100 copies by two clocks with their checks; 6 times 100,003 loads of at most 1.5 us.
_COPIES_S, _LOADS_S = 0.3, 1.0
_START_S = 3.0
_TENFOLD = 10
"""A step that takes ten times as long is slow but does not hang."""


def parse_region(text: str) -> int:
    """Parse the size of the region that the pointers span. Raises UsageError."""
    size = parse_size(text)
    if not _LEAST_REGION <= size <= _MOST_REGION:
        hint = f"give a size from {format_size(_LEAST_REGION)} to {format_size(_MOST_REGION)}"
        raise UsageError(
            f"must be {format_size(_LEAST_REGION)} to {format_size(_MOST_REGION)}, got {format_size(size)}",
            hint=hint,
        )
    return size


class LatencyOptions(Options, frozen=True):
    """Options of small copies and loads."""

    kinds: tuple[str, ...] = option("copy,chase", "copy, chase, or both", choice("copy", "chase"))
    sizes: tuple[int, ...] = option("8", "bytes of one copy, like 8,4K", parse_sizes)
    region: int = option("2M", "size of the region that the pointers span; 2M as nvbandwidth", parse_region)
    numa: str = option("near", "host memory near the GPU, or on each NUMA node", single_choice(*places.NUMA_CHOICES))

    @property
    def all_sizes(self) -> tuple[int, ...]:
        """The sizes of all copies and of the loads' region."""
        copies = self.sizes if "copy" in self.kinds else ()
        return (*copies, self.region) if "chase" in self.kinds else copies


class _LatencyCase(Case, frozen=True, kw_only=True):
    kind: str
    size_bytes: int
    clock: str = ""


LatencyJob = Job[LatencyOptions, Case]
LatencyRank = Rank[LatencyOptions, Case]


def _plan(job: LatencyJob) -> Plan:
    reason = gpu_job.waiver_reason(job)
    if reason:
        return Plan(path="memory0>gpu0", waived=reason)
    gpus = len(job.gpus)
    nodes = len(places.host_nodes(job, 0, job.options.numa))
    copies = len(job.options.sizes) * (2 * gpus * nodes + gpus * (gpus - 1))
    loads = gpus * nodes + gpus * gpus
    return Plan(
        path=f"{places.find_near_memory(job, 0)}>{job.gpus[0].id}",
        seconds=_START_S + gpus + _COPIES_S * copies + _LOADS_S * loads,
        memory_bytes=3 * max(job.options.all_sizes),
        longest_step_s=_TENFOLD * (_START_S + gpus),
    )


def _run(rank: LatencyRank) -> Iterator[Result]:
    job = rank.job

    def measure(gpus: list[Gpu], ends: dict[str, BufferPair], most: int) -> Iterator[Result]:
        for gpu in gpus:
            for node in places.host_nodes(job, gpu.number, job.options.numa):
                with ExitStack() as inner:
                    in_host = places.allocate_in_host(inner, node, gpu, most, pinned=True)
                    seen = places.placement_evidence(in_host)
                    yield from _measure_copies(rank, gpu, in_host, ends[gpu.id], seen)
                    yield from _measure_copies(rank, gpu, ends[gpu.id], in_host, seen)
                    yield from _measure_loads(rank, gpu, in_host, seen)
            yield from _measure_loads(rank, gpu, ends[gpu.id], ())
        yield from _measure_peers(rank, gpus, ends)

    yield from places.measure_gpus(rank, BENCHMARK.blank(_plan(job).path), job.options.all_sizes, measure)


def _measure_peers(rank: LatencyRank, gpus: list[Gpu], ends: dict[str, BufferPair]) -> Iterator[Result]:
    """Measure every ordered pair: the source pushes copies, the target runs loads."""
    reached = places.enable_peers(gpus)
    for source in gpus:
        for target in (gpu for gpu in gpus if gpu is not source):
            direct = (target.id, source.id) in reached
            seen = places.peer_evidence(direct=direct)
            yield from _measure_copies(rank, source, ends[source.id], ends[target.id], seen, staged=not direct)
            if direct:
                yield from _measure_loads(rank, target, ends[source.id], seen)
            elif "chase" in rank.job.options.kinds:
                reason = f"{target.id} does not reach {source.id}'s memory directly"
                yield waived(BENCHMARK.blank(f"{source.id}>{target.id}", _chase_case(rank.job)), reason)


def _chase_case(job: LatencyJob) -> _LatencyCase:
    return _LatencyCase(kind="chase", size_bytes=job.options.region)


def _measure_copies(
    rank: LatencyRank,
    gpu: Gpu,
    source: BufferPair,
    target: BufferPair,
    seen: tuple[Evidence, ...],
    *,
    staged: bool = False,
) -> Iterator[Result]:
    if "copy" not in rank.job.options.kinds:
        return
    path = f"{source.name}>{target.name}"
    for size in (size for size in rank.job.options.sizes if size <= source.out.size_bytes):
        rank.step(f"gpu_latency {path} copy of {format_size(size)}")
        copy = Copy(target.into, source.out, size, gpu.device, staged=staged)
        for clock in ("host", "gpu"):
            places.poison(target.into, size)
            case = _LatencyCase(kind="copy", size_bytes=size, clock=clock)
            if clock == "host":
                seconds = time_copy_and_wait(copy, warm=_WARM, samples=_SAMPLES)
                held: dict[str, Scalar] = {"warm_copies": _WARM}
            else:
                seconds = time_copies(copy, warm=_HELD_WARM, copies=1, samples=_HELD_SAMPLES).seconds
                held = {"warm_copies": _HELD_WARM, "start": _describe_start(copy)}
            yield _result(gpu, path, case, held, seconds, places.verify(target, source, size), seen)


def _describe_start(copy: Copy) -> str:
    return "held back until all is enqueued" if copy.held_back() else "as enqueued"


def _measure_loads(rank: LatencyRank, gpu: Gpu, source: BufferPair, seen: tuple[Evidence, ...]) -> Iterator[Result]:
    """Measure loads from `source`; its receive buffer holds the chain."""
    if "chase" not in rank.job.options.kinds or rank.job.options.region > source.into.size_bytes:
        return
    path = f"{source.name}>{gpu.id}"
    rank.step(f"gpu_latency {path} loads")
    chain = Chain(source.into, rank.job.options.region, source.seed)
    loads = _LOADS if _LOADS % chain.slots else _LOADS + 1
    seconds, check = chain.time_loads(gpu.device, loads, _CHASE_SAMPLES)
    held: dict[str, Scalar] = {"loads": loads, "stride_bytes": CHAIN_STRIDE_BYTES, "order": "random, each once a round"}
    yield _result(gpu, path, _chase_case(rank.job), held, seconds, check, seen)


def _result(
    gpu: Gpu,
    path: str,
    case: _LatencyCase,
    held: dict[str, Scalar],
    seconds: list[float],
    check: Verification,
    seen: tuple[Evidence, ...],
) -> Result:
    settings = {**held, "run_by": gpu.id, "gpu": gpu.device.name, "cuda_driver": cuda.driver_version()}
    return complete(BENCHMARK.blank(path, case), seconds, settings=settings, verification=check, evidence=seen)


_CHASE = {"kind": ("chase",)}

BENCHMARK = Benchmark(
    name="gpu_latency",
    summary="one small copy to, from and between GPUs; one load of a GPU from each memory",
    method="copy: host clock to completion, and CUDA events; chase: one thread follows pointers (as nvbandwidth 0.8)",
    results=(
        Declaration(
            "latency_s",
            workload.Unlimited(why="no document gives the latency of a GPU's own memory"),
            _CHASE,
            ends="same",
            supplies="gpu load",
            is_reference=True,
        ),
        Declaration("latency_s", workload.Copy(is_load=True), _CHASE),
        Declaration("latency_s", workload.Copy(clock="gpu"), {"clock": ("gpu",)}, supplies="gpu copy"),
        Declaration("latency_s", workload.Copy(clock="host"), supplies="awaited gpu copy"),
    ),
    options=LatencyOptions,
    launches=gpu_job.launch_all_gpus,
    plan=_plan,
    run=_run,
)

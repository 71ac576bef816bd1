"""DeepCAM's samples (768x1152x16 float32) from HDF5 files, read ahead for a consumer at the pace of inference.

Each rank, on one host or many, reads its own samples.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import secrets
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from msgspec.structs import replace

from railwright.benchmarks.benchmark import Benchmark, Plan
from railwright.benchmarks.files.cached import PAGE_CACHE, CachedFile
from railwright.benchmarks.files.direct_file import find_device, room_problem
from railwright.benchmarks.files.mounted import query_mount
from railwright.benchmarks.files.shared_folder import LAUNCH_VARIABLE, remove_launch_folder
from railwright.benchmarks.gpu import job as gpu_job
from railwright.benchmarks.gpu.file_route import route_evidence, wrong_route
from railwright.benchmarks.job import Job, Launch, Machine
from railwright.benchmarks.record import complete, failed_if, waived
from railwright.benchmarks.samples.options import BOUNCE, DIRECT, LIBRARY, ON_GPU, OWN, SampleCase, SampleOptions
from railwright.benchmarks.together import Unavailable, open_on_all_ranks, waive_unavailable
from railwright.errors import CannotJudge
from railwright.installation import find_installation
from railwright.native.cuda import Device
from railwright.native.cufile_watch import Watch
from railwright.results.declarations import Declaration
from railwright.results.records import Evidence, Result, Verification
from railwright.results.workload import Files, Unlimited
from railwright.topology.devices import Scalar
from railwright.units import GIB, format_size

if TYPE_CHECKING:
    from railwright.benchmarks.samples.hdf5_files import Sample
    from railwright.benchmarks.samples.pipeline import Delivered
    from railwright.benchmarks.samples.readers import Reader
    from railwright.benchmarks.samples.source import SampleRank, Source

SampleJob = Job[SampleOptions, SampleCase]

# For the plan, on the slow side.
_MADE_BYTES_PER_S, _READ_BYTES_PER_S = 200e6, 300e6


def _launches(options: SampleOptions, machine: Machine) -> tuple[Launch[SampleCase], ...]:
    """Return a launch for each reader."""
    ranks = machine.host_ranks if machine.hosts else options.ranks
    gpus = gpu_job.list_usable(machine)
    return tuple(
        Launch(
            case=SampleCase(reader=reader),
            ranks=ranks,
            gpus=gpus if reader in ON_GPU else (),
            environment={LAUNCH_VARIABLE: secrets.token_hex(8)},
        )
        for reader in options.reader
    )


def _plan(job: SampleJob) -> Plan:
    options = job.options
    own, size = options.files == OWN, options.sample_bytes
    total = job.ranks * options.samples * size
    caches = len(options.cache) if job.case.reader == LIBRARY else 1
    paced = sum(options.samples / pace for pace in options.pace)
    once = (1 + len(options.pace)) * total / _READ_BYTES_PER_S + paced
    made = total / _MADE_BYTES_PER_S if own else 0.0
    files = f"{options.samples} files of {format_size(size)} for each of {job.ranks} ranks in a new folder"
    return Plan(
        path=_path(job, "cold"),
        seconds=3 + made + total / _READ_BYTES_PER_S + options.passes * caches * once,
        memory_bytes=job.ranks * (options.prefetch + 3) * size,
        moved_bytes=total * (1 + options.passes * caches * (1 + len(options.pace))),
        files=(f"{files} in {options.directory}",) if own else (),
        waived=_find_missing(job)
        or (room_problem(options.directory, total) if own else _folder_problem(options.files)),
        longest_step_s=10 + made + once,
    )


def _find_missing(job: SampleJob) -> str:
    if importlib.util.find_spec("h5py") is None:
        return f"h5py is not installed: {find_installation().add_extra('samples')}"
    return gpu_job.waiver_reason(job) if job.case.reader in ON_GPU else ""


def _folder_problem(folder: str) -> str:
    try:
        return "" if query_mount(folder, lambda: os.path.isdir(folder)) else f"{folder} is not a folder"  # noqa: PTH112
    except CannotJudge as error:
        return error.message


def _path(job: SampleJob, cache: str) -> str:
    drive = PAGE_CACHE if cache == "hot" else find_device(job.topology, job.options.folder)
    on_gpu = job.case.reader in ON_GPU
    target = (job.find_gpu(0).id if job.gpus else "gpu") if on_gpu else job.find_memory(0)
    return f"{drive}>{target}"


@dataclass
class _Work:
    """A rank's samples and reader, with the reader's evidence."""

    rank: SampleRank
    source: Source
    reader: Reader
    evidence: tuple[Evidence, ...]
    trouble: str = ""
    """The reason why the reader did not use the requested way."""
    files: list[CachedFile] = field(default_factory=list)

    @property
    def slots(self) -> int:
        """The number of slots: one for the consumer, the others for samples read ahead."""
        return self.rank.job.options.prefetch + 1


def _run(rank: SampleRank) -> Iterator[Result]:
    os.sched_setaffinity(0, rank.job.list_rank_cpus(rank.index))
    blank = BENCHMARK.blank(_path(rank.job, "cold"), rank.job.case, ranks=rank.job.ranks)
    rank.step("loading h5py")
    from railwright.benchmarks.samples.source import open_source

    def measure_here() -> Iterator[Result]:
        with contextlib.ExitStack() as stack:
            source = open_source(rank, stack)
            yield from _measure(open_on_all_ranks(rank, lambda: _open_reader(rank, stack, source)), blank)

    yield from waive_unavailable(rank, blank, measure_here())


def _open_reader(rank: SampleRank, stack: contextlib.ExitStack, source: Source) -> _Work:
    """Open the reader with its slots. Raises CannotJudge if it cannot read these files."""
    from railwright.benchmarks.samples import readers

    options, case = rank.job.options, rank.job.case
    _check_layout(source.samples, case.reader, options.dataset)
    rank.step(f"memory for {options.prefetch + 1} samples")
    slots, room = options.prefetch + 1, readers.slot_bytes(source.samples)
    files = [CachedFile(sample.fd, sample.path) for sample in source.samples]
    if case.reader == LIBRARY:
        return _Work(rank, source, readers.LibraryReader(stack, slots, room, options.dataset), (), files=files)
    if case.reader == DIRECT:
        seen = Evidence(claim=_ROUTE, value="past the page cache", seen="the files are open with O_DIRECT")
        return _Work(rank, source, readers.DirectReader(stack, slots, room, options), (seen,), files=files)
    gpu = rank.job.find_gpu(rank.index)
    device = stack.enter_context(Device(gpu.address))
    cpus = rank.job.list_gpu_cpus(gpu) or rank.job.cpus
    reader = readers.GpuReader(stack, device, slots, room, options, cpus)
    if case.reader == BOUNCE:
        reader.use_pinned(stack)
        seen = Evidence(claim=_ROUTE, value="pinned buffers", seen="Railwright's own reads and copies")
        return _Work(rank, source, reader, (seen,), files=files)
    rank.step("cuFile for gds")
    reader.use_cufile(stack, rank.scratch, source.samples)
    watch, sample = Watch(rank.scratch, write=False), source.samples[0]
    reader.read(sample, 0)
    seen = route_evidence(watch.end(reader.operations(sample), sample.size_bytes))
    return _Work(rank, source, reader, (seen,), wrong_route(case.reader, seen), files)


def _check_layout(samples: Sequence[Sample], reader: str, dataset: str) -> None:
    if reader == LIBRARY:
        return
    for sample in samples:
        if sample.at < 0:
            what = f"{dataset} of {sample.path} lies in {sample.elsewhere}, which only h5py puts together"
            raise CannotJudge(what, hint=f"give reader={LIBRARY}")
        if sample.direct_fd < 0:
            raise CannotJudge(f"{sample.path} cannot be read past the page cache", hint=f"give reader={LIBRARY}")


def _measure(work: _Work, blank: Result) -> Iterator[Result]:
    """Measure all points of a cache in turn, so that other load on the machine affects all alike."""
    rank, options = work.rank, work.rank.job.options
    caches = options.cache if rank.job.case.reader == LIBRARY else ("cold",)
    for cache in caches:
        at = replace(blank, path=_path(rank.job, cache))
        varied: dict[str, Scalar] = {"cache": cache} if rank.job.case.reader == LIBRARY else {}
        rank.step(f"{blank.benchmark} {rank.job.case.reader}: every byte is checked")
        try:
            open_on_all_ranks(rank, partial(_prepare_cache, work, cache))
        except Unavailable as error:
            if rank.index == 0:
                yield waived(at, error.message, varied)
            continue
        wrong = _check_samples(work)
        rank.step(f"{blank.benchmark} {rank.job.case.reader} {cache}")
        found: dict[float, list[_Pass]] = {}
        for _ in range(options.passes):
            for pace in (0.0, *options.pace):
                _prepare_cache(work, cache)
                found.setdefault(pace, []).append(_run_pass(work, pace))
        if rank.index == 0:
            for pace, passes in found.items():
                yield from _results(work, at, varied, pace, passes, wrong)


def _prepare_cache(work: _Work, cache: str) -> bool:
    """Make all files hot or cold in the page cache, and return True. Raises CannotJudge for h5py if that fails."""
    try:
        for file in work.files:
            file.prepare(cache)
    except CannotJudge:
        if work.rank.job.case.reader == LIBRARY:
            raise
    return True


@dataclass(frozen=True)
class _Pass:
    """A pass of all ranks."""

    of_ranks: tuple[Delivered, ...]
    size_bytes: tuple[int, ...]
    samples: int
    wrong_bytes: int
    checked_bytes: int

    @property
    def last_s(self) -> float:
        """The time until the last rank finished."""
        return max(one.elapsed_s for one in self.of_ranks)


def _check_samples(work: _Work) -> tuple[int, int]:
    """Return the checked and wrong bytes of all ranks. Collective."""
    from railwright.benchmarks.samples.pipeline import deliver

    wrong = 0

    def use(sample: Sample, slot: int, *, was_ready: bool) -> None:
        nonlocal wrong
        del was_ready
        wrong += work.source.wrong_bytes(work.reader, sample, slot)

    deliver(work.reader, work.source.samples, work.slots, use)
    every = work.rank.comm.allgather((work.source.size_bytes, wrong))
    return sum(one[0] for one in every), sum(one[1] for one in every)


def _run_pass(work: _Work, pace: float) -> _Pass:
    """Run a pass that all ranks begin together, and check the slots' content afterwards. Collective."""
    from railwright.benchmarks.samples.pipeline import Consumer, deliver, read_alone

    samples, consumer = work.source.samples, Consumer(pace)
    work.reader.poison()
    work.rank.comm.Barrier()
    if pace:
        done = deliver(work.reader, samples, work.slots, consumer)
    else:
        done = read_alone(work.reader, samples, consumer.last, work.slots)
    wrong = sum(work.source.wrong_bytes(work.reader, sample, slot) for slot, sample in consumer.last.items())
    looked = sum(sample.size_bytes for sample in consumer.last.values())
    every = work.rank.comm.allgather((done, work.source.size_bytes, len(samples), wrong, looked))
    return _Pass(
        of_ranks=tuple(one[0] for one in every),
        size_bytes=tuple(one[1] for one in every),
        samples=sum(one[2] for one in every),
        wrong_bytes=sum(one[3] for one in every),
        checked_bytes=sum(one[4] for one in every),
    )


def _results(
    work: _Work, at: Result, varied: dict[str, Scalar], pace: float, passes: Sequence[_Pass], check: tuple[int, int]
) -> Iterator[Result]:
    """Yield bytes and samples per second of all ranks, until the last rank finished."""
    options = work.rank.job.options
    total = sum(passes[0].size_bytes)
    seconds = statistics.median(one.last_s for one in passes)
    parameters: dict[str, Scalar] = {**varied, "part": READ}
    settings: dict[str, Scalar] = {
        "sample_bytes": work.source.samples[0].size_bytes,
        "samples": passes[0].samples,
        "gib_per_s": total / seconds / GIB,
        "samples_per_s": passes[0].samples / seconds,
        "passes": len(passes),
        "last_done_s": seconds,
        "first_done_s": statistics.median(min(rank.elapsed_s for rank in one.of_ranks) for one in passes),
        "software": _describe_software(),
    }
    if at.parameters["reader"] != LIBRARY:
        settings |= {"io_threads": options.io_threads, "block_bytes": options.block}
    evidence = work.evidence
    if "cache" in varied:
        evidence = (work.files[0].evidence(str(varied["cache"])), *evidence)
    if pace:
        starved, full = _median_time_share(passes, "starved_s"), _median_time_share(passes, "full_s")
        parameters |= {"part": DELIVERED, "pace": pace, "prefetch": options.prefetch}
        settings |= {"starved_share": starved, "reader_waits_share": full}
        waiting = f"the consumer {starved:.0%}, the reader {full:.0%}".replace("%", " %")
        evidence += (Evidence(claim="waiting", value=waiting, seen="clocks around each wait, of all ranks' time"),)
    done = replace(
        failed_if(at, work.trouble),
        settings=settings,
        evidence=evidence,
        verification=Verification(
            method=work.source.method,
            bytes_checked=check[0] + sum(one.checked_bytes for one in passes),
            bytes_wrong=check[1] + sum(one.wrong_bytes for one in passes),
        ),
    )
    yield complete(done, [total / one.last_s for one in passes], varied=parameters)
    rates = [one.samples / one.last_s for one in passes]
    yield complete(done, rates, "operations_per_s", varied={**parameters, "counted": "samples"})


def _describe_software() -> str:
    from railwright.benchmarks.samples import hdf5_files

    return hdf5_files.VERSION


def _median_time_share(passes: Sequence[_Pass], name: str) -> float:
    """Return the share of all ranks' time that the field `name` of their times took, as the median of the passes."""
    shares: list[float] = []
    for one in passes:
        spent = sum(getattr(rank, name) for rank in one.of_ranks)
        shares.append(spent / sum(rank.elapsed_s for rank in one.of_ranks))
    return round(statistics.median(shares), 4)


def _clean_up(job: SampleJob) -> None:
    """Remove the files of killed ranks."""
    if job.options.files == OWN:
        remove_launch_folder(job.options.directory, job.launch)


READ, DELIVERED = "read", "delivered"
_ROUTE = "route"

BENCHMARK = Benchmark(
    name="deepcam_read",
    summary="samples of a training set from HDF5 files, read ahead for a consumer with a pace, to the host or a GPU",
    method="DeepCAM's samples, sharded over ranks: the reader alone, and with a consumer; rates to the last end",
    results=(
        Declaration("bandwidth_bytes_per_s", Files(of="drive", upper_only=True),
                    when={"part": (READ,), "cache": ("cold", None)}, supplies="reader alone", is_reference=True),
        Declaration("bandwidth_bytes_per_s",
                    Unlimited(why="the page cache, read by a library, has no limit of its own"),
                    when={"part": (READ,)}, supplies="reader alone", is_reference=True),
        Declaration("operations_per_s", Unlimited(why="the same as its bytes per second"), when={"part": (READ,)},
                    is_reference=True),
        Declaration("bandwidth_bytes_per_s", Files(of="read ahead")),
        Declaration("operations_per_s", Files(of="read ahead")),
    ),
    options=SampleOptions,
    case=SampleCase,
    launches=_launches,
    plan=_plan,
    run=_run,
    spans_hosts=True,
    clean_up=_clean_up,
)  # fmt: skip

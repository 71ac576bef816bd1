"""Many ranks, on one host or many, that write, stat, read and remove large and small files on one mount.

The method is elbencho's: all ranks begin together, and a phase has two ends, when the first and when the last rank is
done.
"""

from __future__ import annotations

import bisect
import contextlib
import os
import platform
import secrets
import statistics
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from msgspec.structs import replace

from railwright.benchmarks.benchmark import Benchmark, Plan, Rank
from railwright.benchmarks.files.cached import PAGE_CACHE
from railwright.benchmarks.files.direct_file import find_device, room_problem
from railwright.benchmarks.files.shared_folder import LAUNCH_VARIABLE, remove_launch_folder, shared_folder
from railwright.benchmarks.job import Case, Job, Launch, Machine
from railwright.benchmarks.options import Options, choice, option, whole_number, word_or, yes_or_no
from railwright.benchmarks.record import complete, draw_seed, failed_if, format_wrong, latencies, sample_stride
from railwright.benchmarks.together import Unavailable, open_on_all_ranks, waive_unavailable
from railwright.errors import CannotJudge, UsageError
from railwright.limits.limit import Quantity
from railwright.native.library import NativeError
from railwright.native.tree import STAMPED, Files, Operation, Walk, walk
from railwright.results import workload
from railwright.results.declarations import Declaration
from railwright.results.records import Result, Verification
from railwright.topology.devices import Scalar
from railwright.topology.shapes import split_name
from railwright.topology.sources.cluster_text import decode_cluster_file
from railwright.units import format_size, parse_size
from railwright.writing import open_to_write

PHASES: tuple[Operation, ...] = ("write", "stat", "read", "delete")
KINDS = ("large", "small")
_SECTOR_BYTES = 512
_MOST_FILES = 1_000_000
# For the plan, on the slow side: a mount over a network.
_PLANNED_BYTES_PER_S, _PLANNED_FILES_PER_S = 50e6, 300.0


_NO_CLUSTER = "none"


def _parse_cluster(text: str) -> tuple[str, ...]:
    """Parse a cluster file into a client's shape, the number of servers and a server's shape. Raises UsageError."""
    found = decode_cluster_file(Path(text))
    servers, server = (found.storage.servers, found.storage.host) if found.storage is not None else (0, "")
    for shape in (found.host, *((server,) if servers else ())):
        if split_name(shape.split()) is None:
            raise UsageError(
                f"{text} must name a shape, got {shape[:60]!r}", hint="name a shape, with changes, like hgx-h100 nics=4"
            )
    return (found.host, str(servers), server)


class SharedOptions(Options, frozen=True):
    """Options of the ranks' work on the mount."""

    directory: str = option(".", "a folder on the mount, the same on every host", str)
    ranks: int = option("2", "ranks on this host, without --hosts", whole_number(512))
    files: tuple[str, ...] = option("large,small", "large, small, or both", choice(*KINDS))
    large_files: int = option("1", "large files per rank", whole_number(_MOST_FILES))
    large_size: int = option("64M", "size of a large file", parse_size)
    block: int = option("1M", "one read or write of a large file", parse_size)
    small_files: int = option("256", "small files per rank", whole_number(_MOST_FILES))
    small_size: int = option("4K", "size of a small file, 0 for empty ones", parse_size)
    direct: bool = option("yes", "yes: past the page cache (O_DIRECT); or no", yes_or_no)
    fsync: bool = option("no", "yes: an fsync before each file that was written is closed; or no", yes_or_no)
    cluster: tuple[str, ...] = option(
        _NO_CLUSTER,
        "a cluster file, whose hosts and [storage] give the limit: drives, and NICs of both",
        word_or(_NO_CLUSTER, (), _parse_cluster),
    )
    passes: int = option("3", "passes through all phases", whole_number(1000))


SharedJob = Job[SharedOptions, Case]
SharedRank = Rank[SharedOptions, Case]


def describe_files(options: SharedOptions, kind: str) -> Files:
    """Return the number and size of a rank's files of a kind."""
    if kind == "large":
        return Files(options.large_files, options.large_size, max(1, options.block), options.direct, options.fsync)
    return Files(options.small_files, options.small_size, max(1, options.small_size), options.direct, options.fsync)


def _launches(options: SharedOptions, machine: Machine) -> tuple[Launch[Case], ...]:
    ranks = machine.host_ranks if machine.hosts else options.ranks
    return (Launch(case=Case(), ranks=ranks, environment={LAUNCH_VARIABLE: secrets.token_hex(8)}),)


def _plan(job: SharedJob) -> Plan:
    options = job.options
    every = [describe_files(options, kind) for kind in options.files]
    bytes_each = sum(one.number * one.size_bytes for one in every)
    written = job.ranks * bytes_each
    seconds = options.passes * (3 * written / _PLANNED_BYTES_PER_S + 4 * job.ranks * sum(one.number for one in every)
                                / _PLANNED_FILES_PER_S)  # fmt: skip
    files = ", ".join(f"{one.number} of {format_size(one.size_bytes)}" for one in every)
    what = f"named files in a new folder in {options.directory}, for each of {job.ranks} ranks: {files}"
    unaligned = next((one for one in every if options.direct and one.size_bytes % _SECTOR_BYTES), None)
    block = options.direct and "large" in options.files and options.block % _SECTOR_BYTES
    waiver = ""
    if unaligned is not None or block:
        size = options.block if unaligned is None else unaligned.size_bytes
        waiver = f"direct reads and writes must be multiples of {_SECTOR_BYTES} bytes, got {size}: give direct=no"
    return Plan(
        path=_path(job, "write"),
        seconds=3 + seconds,
        memory_bytes=job.ranks * (64 * 2**20 + 2 * options.block),
        moved_bytes=3 * options.passes * written,
        files=(f"{what}; {options.passes} times, {format_size(options.passes * written)} of wear",),
        waived=waiver or room_problem(options.directory, max((one.number * one.size_bytes for one in every), default=0)
                                      * job.ranks),
        longest_step_s=10 + seconds,
    )  # fmt: skip


def _path(job: SharedJob, operation: str) -> str:
    """Return the path between a rank's memory and the folder's device; with many hosts, between the first host and the
    mount.
    """
    mount = find_device(job.topology, job.options.directory)
    if operation == "read" and not job.options.direct:
        mount = PAGE_CACHE
    memory = job.find_memory(0)
    return f"{mount}>{memory}" if operation == "read" else f"{memory}>{mount}"


class _Phase(NamedTuple):
    """A phase of a pass, over all ranks."""

    amount: int
    """Bytes of all ranks, or files."""
    first_amount: int
    """The amount that all ranks had done when the first rank finished."""
    elapsed_s: tuple[float, ...]
    """The time of each rank."""
    latencies_s: list[float]
    wrong: tuple[int, ...]

    @property
    def rate(self) -> float:
        """The rate until the last rank finished."""
        return self.amount / max(self.elapsed_s)

    @property
    def first_rate(self) -> float:
        """The rate until the first rank finished."""
        return self.first_amount / min(self.elapsed_s)


def _run(rank: SharedRank) -> Iterator[Result]:
    blank = BENCHMARK.blank(_path(rank.job, "write"), ranks=rank.job.ranks)
    return waive_unavailable(rank, blank, _measure(rank, blank))


def _measure(rank: SharedRank, blank: Result) -> Iterator[Result]:
    options = rank.job.options
    rank.step(f"making folders in {options.directory}")
    with shared_folder(rank, options.directory) as folder:
        open_on_all_ranks(rank, lambda: _try_direct(folder, options))
        hosts = rank.comm.allgather(platform.node())
        for kind in options.files:
            found = _run_passes(rank, folder, kind)
            if rank.index == 0:
                for operation, phases in found.items():
                    yield from _results(rank, blank, kind, operation, phases, hosts)


def _try_direct(folder: int, options: SharedOptions) -> bool:
    """Try O_DIRECT if the options request it, and report whether they do. Raises CannotJudge if it is refused."""
    if not options.direct:
        return False
    name = "f0"
    try:
        os.close(open_to_write(name, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_DIRECT, folder=folder))
    except OSError as error:
        reason = f"{options.directory} takes no direct files: {error.strerror}"
        raise CannotJudge(reason, hint="give direct=no") from error
    finally:
        with contextlib.suppress(OSError):
            os.unlink(name, dir_fd=folder)
    return True


def _run_passes(rank: SharedRank, folder: int, kind: str) -> dict[Operation, list[_Phase]]:
    """Run all phases in turn, several times, each pass with another pattern. Collective."""
    options, files = rank.job.options, describe_files(rank.job.options, kind)
    found: dict[Operation, list[_Phase]] = {}
    first = rank.comm.bcast(draw_seed())
    for number in range(options.passes):
        seed = first + number * rank.size + rank.index
        checked = 0
        for operation in PHASES:
            rank.step(f"{operation} of {kind} files in {options.directory}")
            phase = _run_phase(rank, folder, operation, files, seed)
            found.setdefault(operation, []).append(phase)
            if operation == "read":
                checked = _walk(rank, folder, "check", files, seed).wrong_bytes
        wrong = tuple(rank.comm.allgather(checked))
        read = found["read"][-1]
        found["read"][-1] = read._replace(wrong=tuple(map(sum, zip(read.wrong, wrong, strict=True))))
    return found


def _walk(rank: SharedRank, folder: int, operation: Operation, files: Files, seed: int) -> Walk:
    """Run one operation on this rank's files. Raises CannotJudge on all ranks if one of them fails."""

    def walk_once() -> Walk:
        try:
            return walk(folder, operation, files, seed)
        except NativeError as error:
            where = f"{rank.job.options.directory} on {platform.node()}"
            raise CannotJudge(f"{where}: {error.message}") from error

    rank.comm.Barrier()
    try:
        return open_on_all_ranks(rank, walk_once)
    except Unavailable as error:
        raise CannotJudge(error.message) from error


def _run_phase(rank: SharedRank, folder: int, operation: Operation, files: Files, seed: int) -> _Phase:
    """Run one phase on all ranks. Collective."""
    done = _walk(rank, folder, operation, files, seed)
    elapsed = tuple(rank.comm.allgather(done.elapsed_s))
    by_bytes = operation in ("write", "read") and files.size_bytes > files.block_bytes
    until = bisect.bisect_right(done.ends_s, min(elapsed))
    early = min(until * files.block_bytes, files.number * files.size_bytes) if by_bytes else until
    own = files.number * files.size_bytes if by_bytes else files.number
    starts = [0.0, *done.ends_s[:-1]]
    seconds = [end - start for start, end in zip(starts, done.ends_s, strict=True)]
    kept = seconds[:: sample_stride(len(seconds))]
    shares = rank.comm.allgather((own, early, kept, done.wrong_bytes))
    return _Phase(
        amount=sum(share[0] for share in shares),
        first_amount=sum(share[1] for share in shares),
        elapsed_s=elapsed,
        latencies_s=[latency for share in shares for latency in share[2]],
        wrong=tuple(share[3] for share in shares),
    )


def _results(
    rank: SharedRank, blank: Result, kind: str, operation: Operation, phases: Sequence[_Phase], hosts: Sequence[str]
) -> Iterator[Result]:
    """Yield the rate of all ranks until the last finished, one sample per pass, and the latency of operations."""
    options, files = rank.job.options, describe_files(rank.job.options, kind)
    by_bytes = operation in ("write", "read") and files.size_bytes > files.block_bytes
    quantity: Quantity = "bandwidth_bytes_per_s" if by_bytes else "operations_per_s"
    moved = sum(files.number * files.size_bytes for _ in phases) * rank.size if operation in ("write", "read") else 0
    wrong = [sum(one) for one in zip(*(phase.wrong for phase in phases), strict=True)]
    check = Verification(method=STAMPED, bytes_checked=moved, bytes_wrong=sum(wrong)) if operation == "read" else None
    parameters: dict[str, Scalar] = {
        "files": kind,
        "operation": operation,
        "size_bytes": files.block_bytes if by_bytes else files.size_bytes,
        "direct": "yes" if options.direct else "no",
    }
    settings: dict[str, Scalar] = {
        "files_per_rank": files.number,
        "file_bytes": files.size_bytes,
        "fsync": "yes" if options.fsync else "no",
        "passes": len(phases),
        "last_done_s": statistics.median(max(phase.elapsed_s) for phase in phases),
        "first_done_s": statistics.median(min(phase.elapsed_s) for phase in phases),
        "rate_to_first_done": statistics.median(phase.first_rate for phase in phases),
        **_rate_hosts(phases, hosts, rank.size),
        **_describe_servers(options),
    }
    at = replace(
        blank, path=_path(rank.job, operation), parameters=parameters, settings=settings, verification=check
    )  # fmt: skip
    if operation in ("read", "stat"):
        at = failed_if(at, format_wrong(wrong, "wrong bytes"))
    yield complete(at, [phase.rate for phase in phases], quantity)
    yield latencies(at, [latency for phase in phases for latency in phase.latencies_s])


def _describe_servers(options: SharedOptions) -> dict[str, Scalar]:
    """Describe the mount's servers for a record."""
    if not options.cluster:
        return {}
    client, servers, server = options.cluster
    found: dict[str, Scalar] = {"client_host": client, "storage_servers": int(servers)}
    return found | ({"storage_host": server} if int(servers) else {})


def _rate_hosts(phases: Sequence[_Phase], hosts: Sequence[str], ranks: int) -> dict[str, Scalar]:
    """Return each host's rate until its own last rank finished; all ranks have equal work."""
    found: dict[str, Scalar] = {}
    for host in dict.fromkeys(hosts):
        own = [index for index, name in enumerate(hosts) if name == host]
        rates = [one.amount * len(own) / ranks / max(one.elapsed_s[index] for index in own) for one in phases]
        found[f"rate_of_{host}"] = statistics.median(rates)
    return found


def _clean_up(job: SharedJob) -> None:
    """Remove the files of killed ranks."""
    remove_launch_folder(job.options.directory, job.launch)


BENCHMARK = Benchmark(
    name="shared_storage",
    summary="many ranks write, stat, read and remove large and small files on one mount",
    method="elbencho: each rank has its own files, all begin together; rates until the last and until the first rank "
    "is done",
    results=tuple(
        Declaration(quantity, workload.Files(of="mount"))
        for quantity in ("bandwidth_bytes_per_s", "operations_per_s", "latency_s")
    ),
    options=SharedOptions,
    launches=_launches,
    plan=_plan,
    run=_run,
    spans_hosts=True,
    clean_up=_clean_up,
)

"""Reads of Parquet and ORC files into memory: fetching the encoded bytes, decoding them, and both together.

Generated files have no name, and a user's file is only read.
"""

from __future__ import annotations

import contextlib
import importlib.util
import itertools
import os
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from railwright.benchmarks.benchmark import Benchmark, Plan, Rank
from railwright.benchmarks.files.cached import PAGE_CACHE, CachedFile, Fetcher
from railwright.benchmarks.files.direct_file import find_device, open_nameless, room_problem
from railwright.benchmarks.files.mounted import query_mount
from railwright.benchmarks.gpu import job as gpu_job
from railwright.benchmarks.job import Job, Launch, Machine
from railwright.benchmarks.record import complete, waived
from railwright.benchmarks.tables.options import OWN, TableCase, TableOptions
from railwright.errors import CannotJudge
from railwright.installation import find_installation
from railwright.limits.limit import Quantity
from railwright.native import cuda
from railwright.native.cufile_watch import called_bytes
from railwright.results.declarations import Declaration
from railwright.results.records import Evidence, Result, Verification
from railwright.results.workload import Files, Unlimited
from railwright.topology.devices import Scalar
from railwright.topology.sources.available_memory import available_memory_bytes

if TYPE_CHECKING:
    from railwright.benchmarks.tables.arrow_files import ArrowReader, Layout
    from railwright.benchmarks.tables.cudf_reader import CudfReader

    Reader = ArrowReader | CudfReader

_PACKAGES = {"pyarrow": ("pyarrow",), "cudf": ("pyarrow", "cudf"), "cudf gds": ("pyarrow", "cudf")}
# For the plan, on one core of a VM: rates of making and writing, reading and decoding.
_MADE_BYTES_PER_S, _READ_BYTES_PER_S = 30e6, 150e6
_COPIES = 5
"""Copies of the table in memory: as made, as read, as decoded, its file, and the memory for making it."""
_MEMORY_TO_FILE = 6
"""The assumed ratio of a user's table in memory to its file, for the plan."""

TableJob = Job[TableOptions, TableCase]
TableRank = Rank[TableOptions, TableCase]


def _launches(options: TableOptions, machine: Machine) -> tuple[Launch[TableCase], ...]:
    """Return a launch for each reader and each generated file."""
    cases = [TableCase(reader=reader, format="file") for reader in options.reader]
    if options.file == OWN:
        axes = (options.format, options.compression, options.cardinality, options.run_length, options.row_group)
        cases = [
            TableCase(
                reader=reader, format=form, compression=compression, cardinality=str(cardinality or "all"),
                run_length=run_length, row_group=rows,
            )
            for form, compression, cardinality, run_length, rows in itertools.product(*axes)
            for reader in options.reader
        ]  # fmt: skip
    return tuple(Launch(case=case, environment=_environment(case), gpus=_gpus(case, machine)) for case in cases)


def _environment(case: TableCase) -> dict[str, str]:
    """Return the variables that tell KvikIO and cuDF whether cuFile may, or must, be used."""
    if case.reader == "cudf":
        return {"LIBCUDF_CUFILE_POLICY": "OFF", "KVIKIO_COMPAT_MODE": "ON"}
    if case.reader == "cudf gds":
        return {"LIBCUDF_CUFILE_POLICY": "GDS", "KVIKIO_COMPAT_MODE": "OFF"}
    return {}


def _gpus(case: TableCase, machine: Machine) -> tuple[str, ...]:
    return gpu_job.list_usable(machine)[:1] if "cudf" in case.reader else ()


def _target(job: TableJob) -> str:
    return job.find_gpu(0).id if job.launch.gpus else job.find_memory(0)


def _measured_folder(options: TableOptions) -> str:
    """Return the folder whose file system is measured."""
    return options.directory if options.file == OWN else str(Path(options.file).parent)


def _plan(job: TableJob) -> Plan:
    """Estimate the cost, or give the reason why it cannot run. Reads only the size of a user's file."""
    options = job.options
    size, problem = _estimate_size(options)
    memory = options.size if options.file == OWN else _MEMORY_TO_FILE * size
    reads = len(options.cache) * 2 + 1
    seconds = 3 + memory / _MADE_BYTES_PER_S
    each = memory / _READ_BYTES_PER_S
    return Plan(
        path=f"{find_device(job.topology, _measured_folder(options))}>{_target(job)}",
        seconds=seconds + len(options.threads) * (1 + options.passes) * reads * each,
        memory_bytes=_COPIES * memory,
        moved_bytes=size * len(options.threads) * options.passes * reads,
        files=(f"a nameless file of about {size // 2**20} MiB in {options.directory}",) if options.file == OWN else (),
        waived=_find_missing(job) or problem,
        longest_step_s=seconds + (1 + options.passes) * reads * each,
    )


def _find_missing(job: TableJob) -> str:
    """Return the reason if the reader lacks a package or a GPU here, or an empty string."""
    for name in _PACKAGES[job.case.reader]:
        if importlib.util.find_spec(name) is None:
            here = find_installation()
            return f"{name} is not installed: {here.add('cudf-cu13') if name == 'cudf' else here.add_extra('tables')}"
    return gpu_job.waiver_reason(job) if "cudf" in job.case.reader else ""


def _estimate_size(options: TableOptions) -> tuple[int, str]:
    """Return the approximate size of the file, and the reason why it cannot be read or made, or an empty string."""
    if options.file == OWN:
        return options.size, room_problem(options.directory, options.size)
    try:
        found = query_mount(options.file, lambda: Path(options.file).is_file() and Path(options.file).stat().st_size)
    except CannotJudge as error:
        return 0, error.message
    except OSError as error:
        return 0, f"{options.file} cannot be read: {error.strerror}"
    return int(found), "" if found else f"{options.file} is not a file, or is empty"


@dataclass
class _Work:
    """A file with its reader and their findings."""

    rank: TableRank
    blank: Result
    file: CachedFile
    what: Layout
    reader: Reader
    whole: Any
    """The file's bytes in memory."""
    check: Verification
    in_memory_bytes: int
    evidence: tuple[Evidence, ...] = ()


@dataclass
class _Times:
    """Seconds of each pass."""

    fetch: list[float] = field(default_factory=list)
    both: list[float] = field(default_factory=list)


def _run(rank: TableRank) -> Iterator[Result]:
    os.sched_setaffinity(0, rank.job.list_rank_cpus(0))
    rank.step("loading pyarrow")
    from railwright.benchmarks.tables import arrow_files

    options = rank.job.options
    with contextlib.ExitStack() as stack:
        fd, expected = _make_file(rank, stack) if options.file == OWN else (_open_file(options.file, stack), None)
        name = "the test file" if options.file == OWN else options.file
        path = f"/proc/self/fd/{fd}"
        rank.step(f"reading the metadata of {name}")
        what = arrow_files.layout(path, name, options.read)
        arrow_files.check_room(name, what, available_memory_bytes())
        reader = _open_reader(rank, stack, path, name, what)
        rank.step(f"checking {name}")
        if expected is None:
            expected = arrow_files.read_independently(path, name, what)
        seen = called_bytes(write=False)
        table = reader.read()
        route = _route_evidence(rank.job.case.reader, what.encoded_bytes, seen, called_bytes(write=False))
        checked, wrong = arrow_files.compare_tables(reader.to_arrow(table), expected.select(list(what.columns)))
        method = "every value against the table that was written"
        if options.file != OWN:
            method = "every value against a read in one thread, with page checksums where present"
        check = Verification(method=method, bytes_checked=checked, bytes_wrong=wrong)
        in_memory = reader.memory_bytes(table)
        blank = BENCHMARK.blank("", rank.job.case, settings=_settings(what, in_memory, reader, options))
        blank = replace(blank, parameters={**blank.parameters, "format": what.format})
        file = CachedFile(fd, name)
        whole = arrow_files.read_file(path)
        del table, expected
        yield from _measure(_Work(rank, blank, file, what, reader, whole, check, in_memory, route))


def _settings(what: Layout, in_memory: int, reader: Reader, options: TableOptions) -> dict[str, Scalar]:
    return {
        "encoded_bytes": what.encoded_bytes,
        "in_memory_bytes": in_memory,
        "rows": what.rows,
        "columns": len(what.columns),
        "software": reader.software,
        "io_threads": options.io_threads,
        "pre_buffer": options.pre_buffer,
        "passes": options.passes,
    }


def _make_file(rank: TableRank, stack: contextlib.ExitStack) -> tuple[int, Any]:
    """Make a nameless file for the case; returns it and its table."""
    from railwright.benchmarks.tables import making

    options, case = rank.job.options, rank.job.case
    rank.step(f"making a table in {options.directory}")
    cardinality = int(case.cardinality) if case.cardinality.isdecimal() else 0
    rows = making.count_rows(options.size, options.types, options.columns)
    table = making.make(rows, options.types, options.columns, cardinality=cardinality, run_length=case.run_length)
    try:
        fd = open_nameless(options.directory, direct=False)
    except OSError as error:
        reason = f"cannot make a test file in {options.directory}: {error.strerror}"
        raise CannotJudge(reason, hint="choose another directory=...") from error
    stack.callback(os.close, fd)
    making.write(table, f"/proc/self/fd/{fd}", case)
    return fd, table


def _open_file(path: str, stack: contextlib.ExitStack) -> int:
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError as error:
        raise CannotJudge(f"{path} cannot be read: {error.strerror}") from error
    stack.callback(os.close, fd)
    return fd


def _open_reader(rank: TableRank, stack: contextlib.ExitStack, path: str, name: str, what: Layout) -> Reader:
    if "cudf" not in rank.job.case.reader:
        from railwright.benchmarks.tables.arrow_files import ArrowReader

        return ArrowReader(path, name, what, rank.job.options)
    rank.step("GPU")
    device = stack.enter_context(cuda.Device(rank.job.find_gpu(0).address))
    rank.step("loading cuDF")
    from railwright.benchmarks.tables.cudf_reader import CudfReader

    return CudfReader(path, name, what, device)


def _route_evidence(reader: str, encoded: int, before: int | None, after: int | None) -> tuple[Evidence, ...]:
    """Return evidence of a GPU reader's route: through host memory if system calls read at least half of the bytes."""
    if reader == "pyarrow":
        return ()
    if before is None or after is None:
        return (Evidence(claim="route", value="unknown", seen="/proc/self/io cannot be read"),)
    value = "host memory" if after - before >= encoded / 2 else "not by system calls"
    seen = f"/proc/self/io: {after - before} bytes read by system calls, {encoded} are in the file"
    return (Evidence(claim="route", value=value, seen=seen),)


def _measure(work: _Work) -> Iterator[Result]:
    """Measure all points, with parts and whole in turn, so that other load on the machine affects all alike."""
    options = work.rank.job.options
    refused = dict(_list_refused_caches(work))
    caches = [cache for cache in options.cache if cache not in refused]
    for cache, why in refused.items():
        yield waived(_locate(work, cache), why, {"cache": cache})
    for asked in options.threads:
        threads = asked or len(os.sched_getaffinity(0))
        work.reader.use(threads)
        work.rank.step(f"{work.blank.benchmark} with {threads} threads")
        times, decode = {cache: _Times() for cache in caches}, []
        with Fetcher(work.file, work.what.pieces, options.io_threads) as fetcher:
            for _ in range(options.passes):
                decode.append(_time_call(lambda: work.reader.decode(work.whole)))
                for cache in caches:
                    work.file.prepare(cache)
                    times[cache].fetch.append(fetcher.seconds())
                    work.file.prepare(cache)
                    times[cache].both.append(_time_call(partial(work.reader.read, cache)))
        yield from _results(work, threads, times, decode)


def _list_refused_caches(work: _Work) -> Iterator[tuple[str, str]]:
    """Yield the kinds of cache that this file system does not allow, with reasons."""
    for cache in work.rank.job.options.cache:
        try:
            work.file.prepare(cache)
        except CannotJudge as error:
            yield cache, error.message


def _time_call(do: Callable[[], object]) -> float:
    began = time.perf_counter()
    result = do()
    seconds = time.perf_counter() - began
    del result
    return seconds


def _locate(work: _Work, cache: str) -> Result:
    """Return the record with its path."""
    job = work.rank.job
    source = find_device(job.topology, _measured_folder(job.options)) if cache == "cold" else PAGE_CACHE
    return replace(work.blank, path=f"{source}>{_target(job)}", verification=work.check)


def _results(
    work: _Work, threads: int, times: dict[str, _Times], decode: Sequence[float]
) -> Iterator[Result]:  # fmt: skip
    encoded, memory = work.what.encoded_bytes, work.in_memory_bytes
    job, decode_s = work.rank.job, statistics.median(decode)
    for cache, seen in times.items():
        at = replace(_locate(work, cache), evidence=(work.file.evidence(cache), *work.evidence))
        varied: dict[str, Scalar] = {"threads": threads, "cache": cache}
        fetch_s = statistics.median(seen.fetch)
        yield complete(at, [encoded / one for one in seen.fetch], varied={**varied, "part": FETCH, "bytes": ENCODED})
        settings: dict[str, Scalar] = {
            **at.settings,
            "binds": "decoding" if decode_s > fetch_s else "fetching",
            "decode_s": decode_s,
            "fetch_s": fetch_s,
        }
        for unit, size in ((ENCODED, encoded), (IN_MEMORY, memory)):
            rates = [size / one for one in seen.both]
            yield complete(at, rates, varied={**varied, "part": BOTH, "bytes": unit}, settings=settings)
    alone = replace(work.blank, path=f"{job.find_memory(0)}>{_target(job)}", verification=work.check)
    varied = {"threads": threads, "part": DECODE, "bytes": IN_MEMORY}
    yield complete(alone, [memory / one for one in decode], varied=varied)


ENCODED, IN_MEMORY = "encoded", "in memory"
FETCH, DECODE, BOTH = "fetch", "decode", "both"
_RATE: Quantity = "bandwidth_bytes_per_s"

BENCHMARK = Benchmark(
    name="parquet_read",
    summary="Parquet and ORC files into memory: fetching, decoding, and both",
    method="pyarrow's ParquetFile.read, cuDF's read_parquet: all rows of the columns, each pass from an opened file on",
    results=(
        Declaration(_RATE, Files(of="drive", upper_only=True), when={"part": (FETCH,), "cache": ("cold",)},
                    supplies="fetch", is_reference=True),
        Declaration(_RATE, Unlimited(why="the page cache, read by many threads, has no limit of its own"),
                    when={"part": (FETCH,)}, supplies="fetch", is_reference=True),
        Declaration(_RATE, Unlimited(why="decoding alone is the baseline of reading"), when={"part": (DECODE,)},
                    supplies="decode", is_reference=True),
        Declaration(_RATE, Files(of="decoded")),
    ),
    options=TableOptions,
    case=TableCase,
    launches=_launches,
    plan=_plan,
    run=_run,
)  # fmt: skip

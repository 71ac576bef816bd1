"""Reader of fio's JSON: an object per job, with exact bytes, runtimes and completion latencies in ns.

Status lines or warnings may surround the JSON. The histograms of `json+` are ignored. fio 2 writes KiB, KiB/s and
latencies in us instead, under `clat` (its HOWTO; json.c and stat.c of 2.x).
"""

from __future__ import annotations

import msgspec

from railwright.errors import UsageError
from railwright.results.readers.foreign_file import (
    Draft,
    ForeignFile,
    MeasuredValue,
    collect_files,
    decode_embedded_json,
    percentiles,
)
from railwright.results.records import Summary, Verification
from railwright.results.workload import Files
from railwright.topology.devices import Scalar
from railwright.units import parse_size

_KIB = 1024
WRONG_CHECKSUM = 84
"""EILSEQ, the error of a fio job that read a block with a wrong checksum."""


class _Latency(msgspec.Struct):
    min: float = 0.0
    max: float = 0.0
    mean: float = 0.0
    N: int = 0
    percentile: dict[str, float] = {}


class _Side(msgspec.Struct):
    io_bytes: int = 0
    bw_bytes: float = 0.0
    bw: float = 0.0
    """The rate in KiB/s."""
    iops: float = 0.0
    runtime: int = 0
    """The runtime in milliseconds."""
    total_ios: int = 0
    clat_ns: _Latency | None = None
    clat: _Latency | None = None
    """Completion latencies of fio 2, in microseconds."""


class _Job(msgspec.Struct):
    jobname: str
    error: int = 0
    options: dict[str, str] = msgspec.field(name="job options", default_factory=dict)
    read: _Side = msgspec.field(default_factory=_Side)
    write: _Side = msgspec.field(default_factory=_Side)
    trim: _Side = msgspec.field(default_factory=_Side)


class _File(msgspec.Struct):
    version: str = msgspec.field(name="fio version")
    jobs: list[_Job]
    options: dict[str, str] = msgspec.field(name="global options", default_factory=dict)


def recognises(text: str) -> bool:
    """Report whether the text has the first key of fio's JSON."""
    return '"fio version"' in text and '"jobs"' in text


def read(text: str) -> tuple[ForeignFile, ...]:
    """Read all jobs into one file; `line` is the number of the job, from 1.

    Raises UsageError for invalid JSON, another version of fio, contradictory numbers, or if no job moved bytes.
    """
    hint = "give one file of fio --output-format=json, without --status-interval"
    file = decode_embedded_json(text, _File, "JSON file of fio", hint)
    version = file.version.removeprefix("fio-")
    if not version.startswith(("2.", "3.")):
        raise UsageError(
            f"fio version must be 2.x or 3.x, got {version[:20]!r}", hint="run fio 3; other versions use other units"
        )
    if version.startswith("2."):
        for job in file.jobs:
            job.read, job.write, job.trim = map(_convert_units, (job.read, job.write, job.trim))
    draft = Draft(tool="fio", test="fio", version=version, workload=Files())
    for place, job in enumerate(file.jobs, 1):
        options = {**file.options, **job.options}
        if job.error:
            note = f"job {job.jobname[:64]!r} ended with error {job.error}: its numbers cover only part of the run"
            draft.notes.append(note)
        for name, side in (("read", job.read), ("write", job.write), ("trim", job.trim)):
            if side.io_bytes > 0 and not (name == "read" and _reads_back(options)):
                _add(draft, place, job, options, name, side)
    if any(result.verification is None for result in draft.results):
        draft.notes.append("the data was not checked (fio --verify)")
    return collect_files(
        [draft], "a fio file must contain a job that moved bytes, got none", "give a run that reads or writes"
    )


def _convert_units(side: _Side) -> _Side:
    """Convert the numbers of fio 2 to the units of fio 3."""
    clat = side.clat
    if clat is not None:
        per_rank = {name: 1e3 * value for name, value in clat.percentile.items()}
        clat = _Latency(min=1e3 * clat.min, max=1e3 * clat.max, mean=1e3 * clat.mean, N=clat.N, percentile=per_rank)
    return msgspec.structs.replace(
        side, io_bytes=side.io_bytes * _KIB, bw_bytes=side.bw * _KIB, clat_ns=side.clat_ns or clat
    )


def _reads_back(options: dict[str, str]) -> bool:
    """Report whether the reads of a job verify the data that it wrote."""
    return "verify" in options and options.get("rw", options.get("readwrite", "read")) in ("write", "randwrite")


def _verification(job: _Job, options: dict[str, str]) -> Verification | None:
    method = f"fio verify={options['verify'][:32]}" if "verify" in options else ""
    if not method or options.get("do_verify") == "0" or options["verify"] == "null":
        return None
    wrong = abs(job.error) == WRONG_CHECKSUM
    if not job.read.io_bytes and not wrong:
        return None
    return Verification(method=method, bytes_checked=max(job.read.io_bytes, 1), bytes_wrong=1 if wrong else 0)


def _add(draft: Draft, place: int, job: _Job, options: dict[str, str], name: str, side: _Side) -> None:
    _check(name, side, job)
    settings: dict[str, Scalar] = {
        "name": job.jobname[:64],
        "moved_bytes": side.io_bytes,
        "duration_s": side.runtime / 1e3,
        "operations": side.total_ios,
        "error": job.error,
    }
    values = [
        MeasuredValue("bandwidth_bytes_per_s", side.bw_bytes, f"bw_bytes {side.bw_bytes:.0f}"),
        MeasuredValue("operations_per_s", side.iops, f"iops {side.iops:g}"),
    ]
    if latency := _latency(name, side, job):
        shown = f"clat_ns 50.000000 {latency.median * 1e9:.0f}"
        values.append(MeasuredValue("latency_s", latency.median, shown, latency))
    draft.add(place, values, _parameters(name, options), settings, _verification(job, options))


def _refusal(job: _Job, reason: str) -> UsageError:
    return UsageError(f"job {job.jobname[:64]!r}: {reason}", hint="give fio's file unchanged")


def _check(name: str, side: _Side, job: _Job) -> None:
    if min(side.io_bytes, side.bw_bytes, side.iops, side.runtime, side.total_ios) < 0:
        raise _refusal(job, f"{name} must not be negative")
    if side.runtime > 0:
        low, high = (side.io_bytes / ((side.runtime + way) / 1e3) for way in (1, -0.999))
        if not low * 0.999 <= side.bw_bytes <= high * 1.001:
            moved = f"io_bytes {side.io_bytes} / runtime {side.runtime} ms"
            raise _refusal(job, f"{name} bw_bytes {side.bw_bytes:.0f} is not {moved}")


def _parameters(name: str, options: dict[str, str]) -> dict[str, Scalar]:
    parameters: dict[str, Scalar] = {"operation": name, "pattern": options.get("rw", options.get("readwrite", "read"))}
    try:
        parameters["size_bytes"] = parse_size(options.get("bs", options.get("blocksize", "4096")))
    except UsageError:
        parameters["block_sizes"] = options.get("bs", "")[:64]  # several sizes, such as 4k,64k
    for theirs, ours in (("iodepth", "depth"), ("numjobs", "jobs"), ("direct", "direct")):
        if options.get(theirs, "").isdecimal():
            parameters[ours] = int(options[theirs])
    parameters["engine"] = options.get("ioengine", "psync")[:32]
    return parameters


def _latency(name: str, side: _Side, job: _Job) -> Summary | None:
    latency = side.clat_ns
    if latency is None or not {"50.000000", "99.000000"} <= latency.percentile.keys():
        return None
    order = (latency.min, latency.percentile["50.000000"], latency.percentile["99.000000"], latency.max)
    if order[0] < 0 or not rises(*order):
        raise _refusal(job, f"{name} completion latencies must rise, got {order}")
    return percentiles(max(latency.N, 1), *(value * 1e-9 for value in order))


def rises(minimum: float, median: float, p99: float, maximum: float) -> bool:
    """Report whether completion latencies rise, within the 1.6 % width of the bins of fio's histogram."""
    return minimum <= median * 1.02 and median <= p99 <= maximum * 1.02

"""fio's JSON: one object per job, with exact bytes, runtimes and completion latencies in ns.

Status lines or warnings may stand before and after it; `json+` adds histograms, which are not needed here.
"""

from __future__ import annotations

import msgspec

from railwright.errors import UsageError
from railwright.limits.model import Quantity
from railwright.results.model import Result, Summary, Verification
from railwright.results.readers.log_lines import bounded
from railwright.results.readers.model import ForeignFile, percentiles, point
from railwright.topology.model import Scalar
from railwright.units import parse_size

_WRONG_CHECKSUM = 84  # EILSEQ


class _Latency(msgspec.Struct):
    min: float = 0.0
    max: float = 0.0
    mean: float = 0.0
    N: int = 0
    percentile: dict[str, float] = {}


class _Side(msgspec.Struct):
    io_bytes: int = 0
    bw_bytes: float = 0.0
    iops: float = 0.0
    runtime: int = 0
    """Milliseconds."""
    total_ios: int = 0
    clat_ns: _Latency | None = None


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
    """The first key of fio's JSON."""
    return '"fio version"' in text and '"jobs"' in text


def read(text: str) -> tuple[ForeignFile, ...]:
    """All jobs as one file; `line` is the number of the job, from 1. Raises UsageError."""
    begin, end = bounded(text).find("{"), text.rfind("}")
    try:
        file = msgspec.json.decode(text[begin : end + 1].encode(), type=_File)
    except (msgspec.DecodeError, RecursionError, UnicodeEncodeError) as error:
        raise UsageError(
            f"not a whole JSON file of fio: {error}",
            hint="give one file of fio --output-format=json, without --status-interval",
        ) from error
    version = file.version.removeprefix("fio-")
    if not version.startswith("3."):
        raise UsageError(f"fio {version[:20]!r} is not read, only 3.x", hint="its units differ: run fio 3")
    results: list[Result] = []
    notes: list[str] = []
    for place, job in enumerate(file.jobs, 1):
        options = {**file.options, **job.options}
        checked = _verification(job, options)
        if job.error:
            notes.append(f"job {job.jobname[:64]!r} ended with error {job.error}: its numbers are of a part of the run")
        for name, side in (("read", job.read), ("write", job.write), ("trim", job.trim)):
            if side.io_bytes > 0:
                if name == "read" and _reads_back(options):
                    continue
                results.extend(_results(name, side, job, options, place, version, checked))
    if not results:
        raise UsageError("no job of this fio file moved any bytes", hint="give a run that read or wrote something")
    if any(result.verification is None for result in results):
        notes.append("the data was not checked (fio --verify)")
    return (ForeignFile(tool="fio", version=version, test="fio", results=tuple(results), notes=tuple(notes)),)


def _reads_back(options: dict[str, str]) -> bool:
    """Whether the reads of a job are its check of what it wrote."""
    return "verify" in options and options.get("rw", options.get("readwrite", "read")) in ("write", "randwrite")


def _verification(job: _Job, options: dict[str, str]) -> Verification | None:
    method = f"fio verify={options['verify'][:32]}" if "verify" in options else ""
    if not method or options.get("do_verify") == "0" or options["verify"] == "null":
        return None
    wrong = abs(job.error) == _WRONG_CHECKSUM
    if not job.read.io_bytes and not wrong:
        return None
    return Verification(method=method, bytes_checked=max(job.read.io_bytes, 1), bytes_wrong=1 if wrong else 0)


def _results(
    name: str, side: _Side, job: _Job, options: dict[str, str], place: int, version: str, checked: Verification | None
) -> list[Result]:
    _check(name, side, job)
    parameters = _parameters(name, options)
    settings: dict[str, Scalar] = {
        "name": job.jobname[:64],
        "moved_bytes": side.io_bytes,
        "duration_s": side.runtime / 1e3,
        "operations": side.total_ios,
        "error": job.error,
    }
    values: list[tuple[Quantity, float, str, Summary | None]] = [
        ("bandwidth_bytes_per_s", side.bw_bytes, f"bw_bytes {side.bw_bytes:.0f}", None),
        ("operations_per_s", side.iops, f"iops {side.iops:g}", None),
    ]
    latency = _latency(name, side, job)
    if latency is not None:
        values.append(("latency_s", latency.median, f"clat_ns 50.000000 {latency.median * 1e9:.0f}", latency))
    return [
        point(
            benchmark="fio", quantity=quantity, value=value, shown=shown, line=place, method=f"fio {version}",
            parameters=parameters, settings=settings, verification=checked, summary=summary,
        )
        for quantity, value, shown, summary in values
    ]  # fmt: skip


def _check(name: str, side: _Side, job: _Job) -> None:
    if min(side.io_bytes, side.bw_bytes, side.iops, side.runtime, side.total_ios) < 0:
        raise UsageError(f"job {job.jobname[:64]!r}: {name} has a negative number", hint="give fio's file unchanged")
    if side.runtime > 0:
        low, high = (side.io_bytes / ((side.runtime + way) / 1e3) for way in (1, -0.999))
        if not low * 0.999 <= side.bw_bytes <= high * 1.001:
            raise UsageError(
                f"job {job.jobname[:64]!r}: {name} bw_bytes {side.bw_bytes:.0f} is not io_bytes {side.io_bytes} / "
                f"runtime {side.runtime} ms",
                hint="give fio's file unchanged",
            )


def _parameters(name: str, options: dict[str, str]) -> dict[str, Scalar]:
    parameters: dict[str, Scalar] = {"operation": name, "pattern": options.get("rw", options.get("readwrite", "read"))}
    try:
        parameters["size_bytes"] = parse_size(options.get("bs", options.get("blocksize", "4096")))
    except UsageError:
        parameters["block_sizes"] = options.get("bs", "")[:64]  # several, like 4k,64k
    for theirs, ours in (("iodepth", "depth"), ("numjobs", "jobs"), ("direct", "direct")):
        if options.get(theirs, "").isdigit():
            parameters[ours] = int(options[theirs])
    parameters["engine"] = options.get("ioengine", "psync")[:32]
    return parameters


def _latency(name: str, side: _Side, job: _Job) -> Summary | None:
    latency = side.clat_ns
    if latency is None or not {"50.000000", "99.000000"} <= latency.percentile.keys():
        return None
    order = (latency.min, latency.percentile["50.000000"], latency.percentile["99.000000"], latency.max)
    if order[0] < 0 or order[0] > order[1] * 1.02 or order[1] > order[2] or order[2] > order[3] * 1.02:
        raise UsageError(
            f"job {job.jobname[:64]!r}: {name} completion latencies do not rise: {order}",
            hint="give fio's file unchanged",
        )
    return percentiles(max(latency.N, 1), *(value * 1e-9 for value in order))

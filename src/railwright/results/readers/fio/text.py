"""Reader of fio 3.x, as text, as JSON (`--output-format=json` or `json+`) and as terse lines (`--minimal`).

      read: IOPS=65.8k, BW=1028MiB/s (1078MB/s)(121GiB/120017msec)
        clat (usec): min=142, max=258129, avg=3881.27, stdev=4019.48
         | 50.00th=[ 2769], ... 99.00th=[13566]

MiB is 2^20, MB 10^6 bytes. The bandwidth is bytes / runtime of the job, including fio's own invalidation of the file. A
job that verifies reads back its own data. Those reads are the check, not a measurement.
"""

from __future__ import annotations

import re

import msgspec

from railwright.results.readers.fio import json as fio_json
from railwright.results.readers.fio import terse as fio_terse
from railwright.results.readers.foreign_file import Draft, ForeignFile, MeasuredValue, collect_files, percentiles
from railwright.results.readers.pasted.log_lines import Line, refusal, split_lines
from railwright.results.readers.pasted.printed_numbers import number, overlap
from railwright.results.records import Summary, Verification
from railwright.results.workload import Files
from railwright.topology.devices import Scalar
from railwright.units import parse_size

_BINARY = {"B": 1.0, "KiB": 2.0**10, "MiB": 2.0**20, "GiB": 2.0**30, "TiB": 2.0**40}
_DECIMAL = {"B": 1.0, "kB": 1e3, "MB": 1e6, "GB": 1e9, "TB": 1e12}
_THOUSANDS = {"": 1.0, "k": 1e3, "M": 1e6, "G": 1e9}
_SECONDS = {"nsec": 1e-9, "usec": 1e-6, "msec": 1e-3, "sec": 1.0}

_OPERATIONS = ("read", "write", "trim")
_VERSION = re.compile(r"fio-(\d{1,3}\.\d{1,3}(?:[.-]\w{1,24}){0,4})$")
_DEFINITION = re.compile(
    r"(.{1,128}): \(g=\d{1,5}\): rw=(\w{2,16}), bs=\(R\) (\d{1,12}(?:\.\d{1,3})?)(B|KiB|MiB|GiB)-.{1,160}?"
    r"ioengine=(\w{2,24}), iodepth=(\d{1,7})$"
)
_JOB = re.compile(r"(.{1,128}): \(groupid=\d{1,5}, jobs=(\d{1,6})\): err= {0,3}(-?\d{1,4})")
_RATE = re.compile(
    r"(read|write|trim) ?: IOPS=([\d.]{1,12})([kMG]?), BW=([\d.]{1,12})(B|KiB|MiB|GiB|TiB)/s "
    r"\(([\d.]{1,12})(B|kB|MB|GB|TB)/s\)"
)
_CLAT = re.compile(r"clat \((nsec|usec|msec)\): min= {0,8}([\d.]{1,12})([kMG]?), max= {0,8}([\d.]{1,12})([kMG]?)")
_PERCENTILES = re.compile(r"clat percentiles \((nsec|usec|msec)\):")
_PERCENTILE = re.compile(r"(\d{1,2}\.\d{2})th=\[ {0,12}(\d{1,15})\]")
_GROUP = re.compile(
    r"(READ|WRITE|TRIM): bw=([\d.]{1,12})(B|KiB|MiB|GiB|TiB)/s \(([\d.]{1,12})(B|kB|MB|GB|TB)/s\), .{1,120}\brun=\d"
)
_SAMPLED = re.compile(r"\bbw \( {0,4}(B|KiB|MiB|GiB)/s\): .{1,120}\bavg= ?([\d.]{1,16}),.{0,60}\bsamples=\d")
_OPTION_SIZE = re.compile(r"\bfio\b.{0,400}?\s--?bs[= ](\d{1,9}[kKmMgG]?)")
_ISSUED = re.compile(r"issued rwts: total=(\d{1,15}),(\d{1,15}),(\d{1,15}),")


class _Operation(msgspec.Struct):
    """A `read:`, `write:` or `trim:` block."""

    rate: re.Match[str]
    line: int
    clat: re.Match[str] | None = None
    unit: str = "usec"
    reads_clat: bool = False
    percentiles: dict[str, float] = {}


class _Job(msgspec.Struct):
    """A job, or a group of jobs under `--group_reporting`."""

    name: str
    jobs: int
    error: int
    operations: list[_Operation] = []
    issued: tuple[int, ...] = ()


def recognises(text: str) -> bool:
    """Report whether the text has a rate line, the sum of a group, the keys of fio's JSON, or a terse line."""
    of_job = "fio-" in text or "(groupid=" in text or "msec)" in text
    rates = (of_job and "IOPS=" in text and "BW=" in text) or ("Run status group" in text and ": bw=" in text)
    sampled = "samples=" in text and _SAMPLED.search(text) is not None
    return rates or sampled or fio_json.recognises(text) or fio_terse.recognises(text)


def read(text: str) -> tuple[ForeignFile, ...]:
    """Read all jobs into one file. Raises UsageError for contradictory numbers, a rate line of fio 2, or no rate."""
    if fio_json.recognises(text):
        return fio_json.read(text)
    if fio_terse.recognises(text):
        return fio_terse.read(text)
    draft = Draft(tool="fio", test="fio", workload=Files())
    lines = split_lines(text)
    definitions, jobs = _parse_jobs(draft, lines)
    for job in jobs:
        for operation in job.operations:
            _add(draft, definitions.get(job.name, {}), job, operation)
    if not draft.results:
        _add_groups(draft, lines)
    if not draft.results:
        _add_samples(draft, lines)
    draft.notes += [
        "MiB is 2^20 bytes; bandwidths are printed to four digits at most: use --output-format=json for more",
        "the text does not say that the data was checked",
    ]
    return collect_files(
        [draft],
        "fio's output must contain a rate (read: IOPS=..., BW=...), got none",
        "give the output starting with 'fio-3', or JSON",
    )


def _parse_jobs(draft: Draft, lines: list[Line]) -> tuple[dict[str, dict[str, Scalar]], list[_Job]]:
    """Parse the definition of each job by name, and the results that fio printed at the end."""
    definitions: dict[str, dict[str, Scalar]] = {}
    jobs: list[_Job] = []
    for line in lines:
        text = line.text.strip()
        if found := _VERSION.match(text):
            draft.version = found[1]
        elif found := _DEFINITION.match(text):
            name, pattern, size, unit, engine, depth = found.groups()
            size_bytes = round(float(size) * _BINARY[unit])
            definitions[name] = {"size_bytes": size_bytes, "pattern": pattern, "engine": engine, "depth": int(depth)}
        elif found := _JOB.match(text):
            jobs.append(_Job(found[1], int(found[2]), int(found[3])))
        else:
            if not jobs and _RATE.match(text):  # the job's own line is not in the text
                jobs.append(_Job("", 0, 0))
            if jobs:
                _read_detail(jobs[-1], text, line.number)
    return definitions, jobs


def _read_detail(job: _Job, text: str, line: int) -> None:
    last = job.operations[-1] if job.operations else None
    if text.startswith(_OPERATIONS) and "IOPS=" in text:
        if found := _RATE.match(text):
            job.operations.append(_Operation(found, line))
        elif "BW=" in text:  # otherwise prose about the output
            raise refusal(
                line,
                f"rate line must be in the format of fio 3, got {text[:80]!r}",
                "give the output in fio's default units, in bytes",
            )
    elif found := _ISSUED.match(text):
        job.issued = tuple(int(count) for count in found.groups())
    elif last is not None and "percentiles (" in text:
        found = _PERCENTILES.match(text)
        last.reads_clat = found is not None  # lines of fsync or submission latencies may follow
        last.unit = found[1] if found else last.unit
    elif last is not None and text.startswith("clat ("):
        last.clat = _CLAT.match(text)
    elif last is not None and last.reads_clat and text.startswith("|"):
        last.percentiles |= {name: float(value) for name, value in _PERCENTILE.findall(text)}


def _add(draft: Draft, definition: dict[str, Scalar], job: _Job, operation: _Operation) -> None:
    line = operation.line
    name, iops, thousands, *printed = operation.rate.groups()
    rate = _read_rate("BW", printed, line, ": the units were changed")
    operations_per_s = number(iops, "IOPS", line).value * _THOUSANDS[thousands]
    values = [
        MeasuredValue("bandwidth_bytes_per_s", rate, "{}{}/s ({}{}/s)".format(*printed)),
        MeasuredValue("operations_per_s", operations_per_s, f"{iops}{thousands} IOPS"),
    ]
    if summary := _latency(operation, job):
        shown = f"50.00th={operation.percentiles['50.00']:g} {operation.unit}"
        values.append(MeasuredValue("latency_s", summary.median, shown, summary))
    failed = None
    if abs(job.error) == fio_json.WRONG_CHECKSUM:  # fio does not print the number of wrong blocks
        failed = Verification(method="fio verify", bytes_checked=1, bytes_wrong=1)
    parameters: dict[str, Scalar] = {**definition, "operation": name, **({"jobs": job.jobs} if job.jobs else {})}
    draft.add(line, values, parameters, {"name": job.name[:64], "error": job.error}, failed)


def _add_groups(draft: Draft, lines: list[Line]) -> None:
    """Add the sums of whole groups if the text lacks the results of their jobs."""
    for line in lines:
        if found := _OPTION_SIZE.search(line.text):
            draft.parameters["size_bytes"] = parse_size(found[1])
        if found := _GROUP.match(line.text.strip()):
            name, *printed = found.groups()
            rate = _read_rate("bw", printed, line.number)
            value = MeasuredValue("bandwidth_bytes_per_s", rate, f"{printed[0]}{printed[1]}/s of the group")
            draft.add(line.number, [value], {"operation": name.lower()})


def _add_samples(draft: Draft, lines: list[Line]) -> None:
    """Add the means that fio sampled during the run if the text lacks the rates of the whole run."""
    for line in lines:
        if found := _SAMPLED.search(line.text):
            unit, mean = found.groups()
            rate = number(mean, "bw", line.number).value * _BINARY[unit]
            value = MeasuredValue("bandwidth_bytes_per_s", rate, f"{mean} {unit}/s sampled")
            draft.add(line.number, [value], {"operation": "unknown"})
    if draft.results:
        draft.notes.append("the text lacks the rate of the whole run: this is the mean of fio's samples during it")


def _read_rate(what: str, printed: list[str], line: int, remark: str = "") -> float:
    """Return a rate in bytes/s. Raises UsageError if fio's figures in powers of 1024 and of 1000 disagree."""
    binary, unit, decimal, decimal_unit = printed
    rate, again = number(binary, what, line), number(decimal, what, line)
    scale, again_scale = _BINARY[unit], _DECIMAL[decimal_unit]
    # fio rounds one of the two down, so they may differ by a whole unit of the last digit.
    slack = 2 * (rate.half * scale + again.half * again_scale)
    low, high = rate.range(scale)
    if not overlap((low - slack, high + slack), again.range(again_scale)):
        raise refusal(line, f"{binary}{unit}/s is not {decimal}{decimal_unit}/s{remark}")
    return rate.value * scale


def _latency(operation: _Operation, job: _Job) -> Summary | None:
    clat = operation.clat
    if clat is None or not {"50.00", "99.00"} <= operation.percentiles.keys():
        return None
    unit, *ends = clat.groups()
    minimum, maximum = (float(end) * _THOUSANDS[k] * _SECONDS[unit] for end, k in (ends[:2], ends[2:]))
    median, p99 = (operation.percentiles[place] * _SECONDS[operation.unit] for place in ("50.00", "99.00"))
    if not fio_json.rises(minimum, median, p99, maximum):
        order = f"{minimum:g}, {median:g}, {p99:g}, {maximum:g} s"
        raise refusal(operation.line, f"completion latencies must rise, got {order}")
    place = _OPERATIONS.index(operation.rate[1])
    return percentiles(job.issued[place] if job.issued else 1, minimum, median, p99, maximum)

"""What fio 3.x prints, as text and as JSON (`--output-format=json` or `json+`).

      read: IOPS=65.8k, BW=1028MiB/s (1078MB/s)(121GiB/120017msec)
        clat (usec): min=142, max=258129, avg=3881.27, stdev=4019.48
         | 50.00th=[ 2769], ... 99.00th=[13566]

MiB is 2^20, MB 10^6 bytes. The bandwidth is bytes / runtime of the job, which holds fio's own file invalidation.
A job that verifies reads back what it wrote: those reads are the check, not a measurement.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from railwright.errors import UsageError
from railwright.limits.model import Quantity
from railwright.results.model import Result, Summary, Verification
from railwright.results.readers import fio_json
from railwright.results.readers.log_lines import Line, Number, lines_of, number, overlap, refusal
from railwright.results.readers.model import ForeignFile, percentiles, point
from railwright.topology.model import Scalar

NAME = "fio (fio-3, IOPS= and BW=, or JSON)"

_BINARY = {"B": 1.0, "KiB": 2.0**10, "MiB": 2.0**20, "GiB": 2.0**30, "TiB": 2.0**40}
_DECIMAL = {"B": 1.0, "kB": 1e3, "MB": 1e6, "GB": 1e9, "TB": 1e12}
_THOUSANDS = {"": 1.0, "k": 1e3, "M": 1e6, "G": 1e9}
_SECONDS = {"nsec": 1e-9, "usec": 1e-6, "msec": 1e-3, "sec": 1.0}

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
_ISSUED = re.compile(r"issued rwts: total=(\d{1,15}),(\d{1,15}),(\d{1,15}),")


@dataclass
class _Operation:
    """One `read:`, `write:` or `trim:` block."""

    name: str
    line: int
    rate: re.Match[str]
    clat: re.Match[str] | None = None
    unit: str = "usec"
    percentiles: dict[str, float] = field(default_factory=dict)


@dataclass
class _Job:
    """One job, or a group of them under `--group_reporting`."""

    name: str
    jobs: int
    error: int
    line: int
    operations: list[_Operation] = field(default_factory=list)
    issued: tuple[int, ...] = ()


@dataclass(frozen=True)
class _Definition:
    """What the line that introduces a job says."""

    parameters: dict[str, Scalar]


def recognises(text: str) -> bool:
    """The words of the rate line, or the keys of fio's JSON."""
    return fio_json.recognises(text) or ("fio-" in text and "IOPS=" in text and "BW=" in text)


def read(text: str) -> tuple[ForeignFile, ...]:
    """All jobs as one file. Raises UsageError for what contradicts itself, and for fio 2."""
    if fio_json.recognises(text):
        return fio_json.read(text)
    version, definitions, jobs = _parsed(lines_of(text))
    if not any(job.operations for job in jobs):
        raise UsageError(
            "no rate of fio 3 was found (read: IOPS=..., BW=...)", hint="give the output from 'fio-3' on, or JSON"
        )
    results: list[Result] = []
    notes = ["MiB is 2^20 bytes; bandwidths are printed to four digits at most: use --output-format=json for more"]
    for job in jobs:
        definition = definitions.get(job.name)
        for operation in job.operations:
            results.extend(_results(operation, job, definition, version))
    notes.append("the data was not checked, as far as the text says")
    return (ForeignFile(tool="fio", version=version, test="fio", results=tuple(results), notes=tuple(notes)),)


def _parsed(lines: list[Line]) -> tuple[str, dict[str, _Definition], list[_Job]]:
    version, definitions, jobs = "", {}, []
    for line in lines:
        text = line.text.strip()
        if found := _VERSION.match(text):
            version = found.group(1)
        elif found := _DEFINITION.match(text):
            definitions[found.group(1)] = _Definition(
                {
                    "size_bytes": round(float(found.group(3)) * _BINARY[found.group(4)]),
                    "pattern": found.group(2),
                    "engine": found.group(5),
                    "depth": int(found.group(6)),
                }
            )
        elif found := _JOB.match(text):
            jobs.append(_Job(found.group(1), int(found.group(2)), int(found.group(3)), line.number))
        elif jobs:
            _detail(jobs[-1], text, line.number)
    return version, definitions, jobs


def _detail(job: _Job, text: str, line: int) -> None:
    last = job.operations[-1] if job.operations else None
    if text.startswith(("read", "write", "trim")) and "IOPS=" in text:
        found = _RATE.match(text)
        if found is None:
            raise refusal(line, f"not a rate of fio 3: {text[:80]!r}", "give fio's default units, in bytes")
        job.operations.append(_Operation(found.group(1), line, found))
    elif found := _ISSUED.match(text):
        job.issued = tuple(int(count) for count in found.groups())
    elif last is not None and text.startswith("clat percentiles"):
        if found := _PERCENTILES.match(text):
            last.unit = found.group(1)
    elif last is not None and text.startswith("clat ("):
        last.clat = _CLAT.match(text)
    elif last is not None and text.startswith("|"):
        last.percentiles |= {name: float(value) for name, value in _PERCENTILE.findall(text)}


def _results(operation: _Operation, job: _Job, definition: _Definition | None, version: str) -> list[Result]:
    rate, line = operation.rate, operation.line
    parameters: dict[str, Scalar] = {**(definition.parameters if definition else {})}
    parameters |= {"operation": operation.name, "jobs": job.jobs}
    binary, decimal = number(rate.group(4), "BW", line), number(rate.group(6), "BW", line)
    low, high = _scaled(binary, _BINARY[rate.group(5)])
    decimal_low, decimal_high = _scaled(decimal, _DECIMAL[rate.group(7)])
    # fio rounds down in one of the two, so a whole unit of the last digit may be between them.
    slack = 2 * (binary.half * _BINARY[rate.group(5)] + decimal.half * _DECIMAL[rate.group(7)])
    if not overlap(low - slack, high + slack, decimal_low, decimal_high):
        raise refusal(
            line, f"{rate.group(4)}{rate.group(5)}/s is not {rate.group(6)}{rate.group(7)}/s: the units were changed"
        )
    iops = number(rate.group(2), "IOPS", line)
    shown = f"{rate.group(4)}{rate.group(5)}/s ({rate.group(6)}{rate.group(7)}/s)"
    values: list[tuple[Quantity, float, str, Summary | None]] = [
        ("bandwidth_bytes_per_s", binary.value * _BINARY[rate.group(5)], shown, None),
        ("operations_per_s", iops.value * _THOUSANDS[rate.group(3)], f"{rate.group(2)}{rate.group(3)} IOPS", None),
    ]
    summary = _latency(operation, job)
    if summary is not None:
        shown = f"50.00th={operation.percentiles['50.00']:g} {operation.unit}"
        values.append(("latency_s", summary.median, shown, summary))
    settings: dict[str, Scalar] = {"name": job.name[:64], "error": job.error}
    return [
        point(
            benchmark="fio", quantity=quantity, value=value, shown=shown, line=line, method=f"fio {version}".rstrip(),
            parameters=parameters, settings=settings, summary=summary_of, verification=_failed(job),
        )
        for quantity, value, shown, summary_of in values
    ]  # fmt: skip


def _failed(job: _Job) -> Verification | None:
    # 84 is EILSEQ, fio's answer to a block whose checksum is wrong; the number of blocks is not printed.
    return Verification(method="fio verify", bytes_checked=1, bytes_wrong=1) if abs(job.error) == 84 else None


def _scaled(value: Number, scale: float) -> tuple[float, float]:
    return value.low * scale, value.high * scale


def _latency(operation: _Operation, job: _Job) -> Summary | None:
    clat = operation.clat
    if clat is None or not {"50.00", "99.00"} <= operation.percentiles.keys():
        return None
    scale = _SECONDS[operation.unit]
    least = float(clat.group(2)) * _THOUSANDS[clat.group(3)] * _SECONDS[clat.group(1)]
    most = float(clat.group(4)) * _THOUSANDS[clat.group(5)] * _SECONDS[clat.group(1)]
    median, p99 = operation.percentiles["50.00"] * scale, operation.percentiles["99.00"] * scale
    if least > median * 1.02 or median > p99 or p99 > most * 1.02:  # 1.02: fio's histogram is 1.6 % wide
        raise refusal(operation.line, f"completion latencies do not rise: {least:g}, {median:g}, {p99:g}, {most:g} s")
    place = ("read", "write", "trim").index(operation.name)
    return percentiles(job.issued[place] if job.issued else 1, least, median, p99, most)

"""Reader of the text of fio 1 and 2: a line per direction of a job.

    read : io=4096.0MB, bw=780190KB/s, iops=195047, runt=  5376msec
      clat (usec): min=20, max=2000, avg=160.00, stdev=30.00

KB and MB are 1024 and 1024^2 bytes (fio 2 HOWTO, kb_base). The bandwidth is io / runt.
"""

from __future__ import annotations

import re

from railwright.results.readers.foreign_file import Draft, ForeignFile, MeasuredValue, collect_files, latency
from railwright.results.readers.pasted.log_lines import refusal, split_lines
from railwright.results.readers.pasted.printed_numbers import disagree, number
from railwright.results.workload import Files
from railwright.topology.devices import Scalar

_RATE = re.compile(
    r"(read|write|trim) ?: io=([\d.]{1,16})([KMGT]?)B?, bw=([\d.]{1,16})([KMGT]?)B/s, iops=([\d.]{1,16})([kM]?),"
    r" runt= {0,12}(\d{1,12})msec"
)
_GROUP = re.compile(
    r"(READ|WRITE|TRIM): io=([\d.]{1,16})([KMGT]?)B, aggrb=([\d.]{1,16})([KMGT]?)B/s, .{0,120}"
    r"maxt= {0,12}(\d{1,12})msec"
)
"""The sum of a group, used if the text lacks the results of its jobs."""
_DEFINITION = re.compile(
    r"(.{1,128}): \(g=\d{1,5}\): rw=(\w{2,16}), bs=(\d{1,12})([KMG]?)-.{1,160}?ioengine=(\w{2,24}), iodepth=(\d{1,7})"
)
_JOB = re.compile(r"(.{1,128}): \(groupid=\d{1,5}, jobs=(\d{1,6})\)")
_LATENCY = re.compile(r"^clat \((usec|msec)\): .{0,80}avg= {0,12}([\d.]{1,16})")
_VERSION = re.compile(r"fio-([12]\.[\w.-]{1,24})$")
_UNITS = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}
_THOUSANDS = {"": 1.0, "k": 1e3, "M": 1e6}
_SECONDS = {"usec": 1e-6, "msec": 1e-3}
_AGREEMENT = 0.02
_LONG_ENOUGH_MS = 100


def recognises(text: str) -> bool:
    """Report whether the text has a rate line."""
    return ("runt=" in text and "iops=" in text and "bw=" in text) or ("aggrb=" in text and "maxt=" in text)


def read(text: str) -> tuple[ForeignFile, ...]:
    """Read all jobs into one file. Raises UsageError for a bandwidth that is not bytes over time."""
    draft = Draft(tool="fio", test="fio", workload=Files(), notes=["KB is 1024 bytes", "the data was not checked"])
    definitions: dict[str, dict[str, Scalar]] = {}
    parameters: dict[str, Scalar] = {}
    operation = ""
    for line in split_lines(text):
        words = line.text.strip()
        if found := _VERSION.match(words):
            draft.version = found[1]
        elif found := _DEFINITION.match(words):
            name, pattern, size, unit, engine, depth = found.groups()
            size_bytes = int(size) * _UNITS[unit]
            definitions[name] = {"size_bytes": size_bytes, "pattern": pattern, "engine": engine, "depth": int(depth)}
        elif found := _JOB.match(words):
            parameters = {**definitions.get(found[1], {}), "jobs": int(found[2])}
        elif found := _RATE.match(words):
            operation = found[1]
            _add(draft, {**parameters, "operation": operation}, found, line.number)
        elif operation and (found := _LATENCY.match(words)):
            mean = number(found[2], "latency", line.number)
            value = latency(mean, f"{found[1]} mean", _SECONDS[found[1]])
            draft.add(line.number, [value], {**parameters, "operation": operation})
            operation = ""
    if not draft.results:
        _add_groups(draft, text)
    hint = "give the output starting with the name of the job"
    return collect_files(
        [draft], "fio's output must contain a rate (read : io=..., bw=..., iops=..., runt=...), got none", hint
    )


def _add_groups(draft: Draft, text: str) -> None:
    for line in split_lines(text):
        if found := _GROUP.match(line.text.strip()):
            name, moved, moved_unit, rate, rate_unit, milliseconds = found.groups()
            value = number(rate, "aggrb", line.number).value * _UNITS[rate_unit]
            about = number(moved, "io", line.number).value * _UNITS[moved_unit] / max(int(milliseconds) / 1e3, 1e-3)
            if int(milliseconds) >= _LONG_ENOUGH_MS and disagree(value, about, 2 * _AGREEMENT):
                what = f"aggrb={rate}{rate_unit}B/s is not io={moved}{moved_unit}B / {milliseconds} ms"
                raise refusal(line.number, what)
            measured = MeasuredValue("bandwidth_bytes_per_s", value, f"{rate}{rate_unit}B/s of the group")
            draft.add(line.number, [measured], {"operation": name.lower()}, {"duration_s": int(milliseconds) / 1e3})


def _add(draft: Draft, parameters: dict[str, Scalar], found: re.Match[str], line: int) -> None:
    moved, rate = number(found[2], "io", line), number(found[4], "bw", line)
    value, milliseconds = rate.value * _UNITS[found[5]], int(found[8])
    about = moved.value * _UNITS[found[3]] / (milliseconds / 1e3) if milliseconds else 0.0
    slack = moved.half * _UNITS[found[3]] / max(milliseconds / 1e3, 1e-3) + rate.half * _UNITS[found[5]]
    if milliseconds >= _LONG_ENOUGH_MS and disagree(value, about, _AGREEMENT, slack):
        raise refusal(line, f"bw={found[4]}{found[5]}B/s is not io={found[2]}{found[3]}B / {milliseconds} ms")
    operations = number(found[6], "iops", line).value * _THOUSANDS[found[7]]
    values = [
        MeasuredValue("bandwidth_bytes_per_s", value, f"{found[4]}{found[5]}B/s"),
        MeasuredValue("operations_per_s", operations, f"{found[6]}{found[7]} iops"),
    ]
    draft.add(line, values, parameters, {"duration_s": milliseconds / 1e3})

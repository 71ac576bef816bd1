"""Reader of NVIDIA's gdsio: a line per run (GPUDirect Storage 1.0 to 1.13).

    IoType: READ XferType: GPUD Threads: 8 DataSetSize: 818796544/4096000(KiB) IOSize: 1024(KiB)
    Throughput: 6.524658 GiB/sec, Avg_Latency: 1197.370995 usecs ops: 799606 total_time 119.679102 secs

DataSetSize is the amount moved / the size of all files; GiB is 2^30 bytes.
"""

from __future__ import annotations

import re

from railwright.results.readers.foreign_file import Draft, ForeignFile, bandwidth, collect_files, latency
from railwright.results.readers.pasted.log_lines import refusal, split_lines
from railwright.results.readers.pasted.printed_numbers import Number, number
from railwright.results.workload import Files
from railwright.topology.devices import Scalar

_RUN = re.compile(
    r"IoType: (\w{2,16}) XferType: (\w{2,24}) Threads: (\d{1,7})(?: IoDepth: (\d{1,7}))? "
    r"DataSetSize: (\d{1,16})(?:/(\d{1,16}))?\(KiB\) IOSize: ([\d-]{1,48})\(KiB\)\s{1,8}"
    r"Throughput: (\S{1,24}) GiB/sec, Avg_Latency: (\S{1,24}) usecs ops: (\d{1,16}) total_time (\S{1,24}) secs"
)
_COMMAND = re.compile(r"\bgdsio(?: -\w{1,2} \S{1,200})+")
_OPTION = re.compile(r" -(\w{1,2}) (\S{1,64})")
_SHORT_RESULT = re.compile(r"Throughput: (\S{1,24}) GiB/sec, Avg_Latency: (\S{1,24}) usecs")
_OPERATIONS = {"0": "read", "1": "write", "2": "randread", "3": "randwrite"}
_TRANSFERS = {"0": "GPUD", "1": "CPUONLY", "2": "CPU_GPU", "3": "CPU_ASYNC_GPU", "5": "ASYNC", "6": "BATCH"}
"""The meanings of gdsio's -I and -x (gdsio -h)."""
_UNITS = {"K": 2**10, "M": 2**20, "G": 2**30}
_PATHS = {
    "GPUD": "storage to GPU memory by cuFile", "CPUONLY": "storage to host memory",
    "CPU_GPU": "storage to host memory, then copied to the GPU",
}  # fmt: skip
# Start and end clocks differ per thread, so gdsio's own columns agree only to a few parts in a thousand.
_AGREEMENT = 0.02


def recognises(text: str) -> bool:
    """Report whether the text has the fixed words of a result line."""
    return "Throughput:" in text and "GiB/sec, Avg_Latency:" in text


def read(text: str) -> tuple[ForeignFile, ...]:
    """Read all runs into one file, each with a bandwidth and a mean latency. Raises UsageError for a contradiction."""
    lines = split_lines(text)
    draft = Draft(tool="gdsio", test="gdsio", workload=Files())
    command: dict[str, str] = {}
    for place, line in enumerate(lines):
        if "gdsio" in line.text and (given := _COMMAND.search(line.text)):
            command = dict(_OPTION.findall(given[0]))
        if "IoType:" not in line.text:
            own = place == 0 or "IoType:" not in lines[place - 1].text
            if own and (short := _SHORT_RESULT.search(line.text)):
                _add_short(draft, command, short, line.number)
            continue
        following = lines[place + 1].text.strip() if place + 1 < len(lines) else ""
        found = _RUN.search(line.text if "Throughput:" in line.text else f"{line.text.rstrip()} {following}")
        if found is not None:
            _add_full(draft, found, line.number)
        elif "XferType:" in line.text:
            raise refusal(line.number, f"a line of gdsio must be complete, got {line.text.strip()[:80]!r}")
    draft.notes += [
        "GiB is 2^30 bytes; the latency is a mean over all operations of all threads",
        "the text does not say that the data was checked",
    ]
    if any(result.parameters["transfer"] == "GPUD" for result in draft.results):
        draft.notes.append(
            "GPUD is the cuFile call: gdsio does not print whether nvidia-fs, P2PDMA or compatibility mode ran"
        )
    return collect_files(
        [draft],
        "gdsio's output must contain a result line (IoType: ... total_time ... secs), got none",
        "give the line as gdsio printed it",
    )


def _add_short(draft: Draft, command: dict[str, str], found: re.Match[str], line: int) -> None:
    """Add a line without its first half, using the options of the command above it. Its numbers cannot be checked."""
    rate, time = (number(printed, "number", line) for printed in found.groups())
    size = command.get("i", "")
    size_bytes = (
        int(size[:-1]) * _UNITS[size[-1].upper()] if size[:-1].isdecimal() and size[-1].upper() in _UNITS else 0
    )
    transfer = _TRANSFERS.get(command.get("x", ""), "unknown")
    threads = command.get("w", "")
    parameters: dict[str, Scalar] = {
        **({"size_bytes": size_bytes} if size_bytes else {}),
        "operation": _OPERATIONS.get(command.get("I", ""), "unknown"),
        "transfer": transfer,
        **({"threads": int(threads)} if threads.isdecimal() else {}),
    }
    _add_run(draft, line, rate, time, parameters, {})


def _add_full(draft: Draft, found: re.Match[str], line: int) -> None:
    """Add a complete result line. Raises UsageError if its numbers contradict each other."""
    io_type, transfer, threads, depth, moved, files, io_size, *printed = found.groups()
    rate, time, seconds = (number(printed[place], "number", line) for place in (0, 1, 3))
    operations, moved_bytes = int(printed[2]), int(moved) * 1024
    value = rate.value * 2**30
    if seconds.value <= 0 or abs(moved_bytes / seconds.value - value) > _AGREEMENT * value + rate.half * 2**30:
        raise refusal(line, f"throughput {rate.text} GiB/s is not {moved} KiB / {seconds.text} s of the same line")
    sizes = [int(part) * 1024 for part in io_size.split("-") if part]
    if len(sizes) == 1 and abs(operations * sizes[0] - moved_bytes) > _AGREEMENT * moved_bytes:
        raise refusal(line, f"{operations} operations of {io_size} KiB do not move {moved} KiB")
    parameters: dict[str, Scalar] = {
        "size_bytes": max(sizes) if sizes else 0,
        "operation": io_type.lower(),
        "transfer": transfer,
        "threads": int(threads),
        **({"depth": int(depth)} if depth else {}),
        **({"io_sizes_kib": io_size} if len(sizes) > 1 else {}),
    }
    settings: dict[str, Scalar] = {"operations": operations, "duration_s": seconds.value, "moved_bytes": moved_bytes}
    if files:
        settings["files_bytes"] = int(files) * 1024
    _add_run(draft, line, rate, time, parameters, settings)


def _add_run(
    draft: Draft, line: int, rate: Number, time: Number, parameters: dict[str, Scalar], settings: dict[str, Scalar]
) -> None:
    if (transfer := str(parameters["transfer"])) in _PATHS:
        settings["crosses"] = _PATHS[transfer]
    draft.add(line, [bandwidth(rate, 2**30, "GiB/sec"), latency(time, "usecs mean")], parameters, settings)

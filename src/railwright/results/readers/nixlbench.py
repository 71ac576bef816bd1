"""Reader of nixlbench: the table of NIXL 0.2 (four rate columns) and those since 0.5 (prep, post, transfer).

    Block Size (B)      Batch Size     B/W (GB/Sec)   Avg Lat. (us)  Avg Prep (us)  P99 Prep (us)  ...
    4096                1              0.291436       14.1           24.0           24.0           ...

GB is 10^9 bytes. `Avg Lat.` is the total time / operations, an inverse throughput rather than a round trip (nixlbench
src/utils/utils.cpp `printStats`), so it becomes a setting of the bandwidth and not a latency.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from msgspec import field

from railwright.results.readers.foreign_file import Draft, ForeignFile, bandwidth, collect_files
from railwright.results.readers.pasted.log_lines import (
    Line,
    group_by_origin,
    last_row,
    parse_columns,
    refusal,
    split_lines,
    split_sections,
)
from railwright.results.readers.pasted.printed_numbers import Number, number, overlap, parse_integer
from railwright.results.records import Verification
from railwright.results.workload import Files, Message, Workload, is_gpu_memory
from railwright.topology.devices import Scalar

_OPTION = re.compile(r"\(--([a-z_]{2,32})(?:=[^)]{0,120})?\)\s{0,60}: ?(\S{0,64})")
_LARGEST = re.compile(r"--max_block_size[ =](\d{1,18})(?:\s|$)")
_COLUMN = re.compile(
    r"Block Size \(B\)|Batch Size|Aggregate B/W \(GB/Sec\)|B/W \((?:GB|GiB|MiB)/Sec\)|Network Util \(%\)"
    r"|(?:Avg|P99) (?:Lat\.|Prep|Post|Tx) \(us\)"
)
_RATES = {"B/W (GB/Sec)": 1e9, "B/W (GiB/Sec)": 2.0**30, "B/W (MiB/Sec)": 2.0**20}
_VARIED = {
    "backend": "backend", "op_type": "operation", "initiator_seg_type": "initiator", "target_seg_type": "target",
    "scheme": "scheme", "mode": "mode", "num_threads": "threads",
}  # fmt: skip
_HELD = (
    "worker_type", "enable_pt", "progress_threads", "num_initiator_dev", "num_target_dev", "num_iter", "warmup_iter",
    "large_blk_iter_ftr", "pipeline_depth", "recreate_xfer", "storage_enable_direct", "total_buffer_size",
    "posix_api_type", "check_consistency",
)  # fmt: skip
_TIMES = {
    "Avg Lat. (us)": "mean_s_per_operation", "Avg Prep (us)": "prep_mean_s", "P99 Prep (us)": "prep_p99_s",
    "Avg Post (us)": "post_mean_s", "P99 Post (us)": "post_p99_s",
    "Avg Tx (us)": "transfer_mean_s", "P99 Tx (us)": "transfer_p99_s",
}  # fmt: skip
_FILES = frozenset({"POSIX", "GDS", "GDS_MT", "HF3FS", "GUSLI"})
_OBJECTS = frozenset({"OBJ", "AZURE_BLOB"})
_STORAGE = _FILES | _OBJECTS | {"INFINIA"}
"""The backends that move data to storage rather than to another process (src/utils/utils.h of nixlbench)."""
_FAILED_CHECK = "Consistency check failed"


_MOST_THREADS = 1024


class _Run(Draft, kw_only=True):
    options: dict[str, str] = field(default_factory=dict)
    """The configuration, by nixlbench's own names."""
    check_failed: bool = False
    shown_threads: int = 0
    """The number of threads that the rates imply, if there is no configuration."""

    def is_checked(self) -> bool:
        """Report whether nixlbench compared the data."""
        return self.options.get("check_consistency") == "1"

    def settle_ranks(self) -> None:
        """Set one rank for storage and two for a pair of processes.

        The number stays unknown for a table over several pairs, or without a configuration.
        """
        if not self.options or self.options.get("backend") in _STORAGE:
            self.ranks = 1 if self.options else None
        else:
            self.ranks = None if "Aggregate B/W (GB/Sec)" in self.columns else 2


def recognises(text: str) -> bool:
    """Report whether the text has the header of the table."""
    return "Block Size (B)" in text and "Batch Size" in text and "B/W (" in text


def _workload(parameters: dict[str, Scalar]) -> Workload | None:
    """Return the workload of messages to another process, or of the storage backend."""
    backend = str(parameters.get("backend", "")).upper()
    from_gpu, to_gpu = (is_gpu_memory(parameters.get(end)) for end in ("initiator", "target"))
    if backend in _FILES:
        return Files(to_gpu=from_gpu)
    return None if backend in _OBJECTS else Message(one_sided=True, from_gpu=from_gpu, to_gpu=to_gpu)


def read(text: str) -> tuple[ForeignFile, ...]:
    """Read every table of the text. Raises UsageError for a contradictory table."""
    return collect_files(
        (run for stream in group_by_origin(split_lines(text)) for run in _read_runs(stream)),
        "nixlbench's output must contain a row (Block Size, Batch Size, B/W ...), got none",
        "give the initiator's output, with the configuration above the table",
    )


def _is_header(text: str) -> bool:
    return text.lstrip().startswith("Block Size (B)")


def _read_runs(stream: list[Line]) -> Iterator[_Run]:
    options: dict[str, str] = {}
    largest = ""
    for part in split_sections(stream, lambda line: "NIXLBench Configuration" in line.text or _is_header(line.text)):
        if part:
            run = _read_run(part, options, largest)
            yield run
            commands = [line.text for line in part if "nixlbench " in line.text]
            largest = next((found[1] for text in commands if (found := _LARGEST.search(text))), largest)
            options = {} if run.results else run.options  # the configuration precedes the header of its table


def _read_run(part: list[Line], options: dict[str, str], largest: str) -> _Run:
    run = _Run(tool="nixlbench", test="nixlbench", last_line=last_row(part), options=dict(options))
    run.check_failed = any(_FAILED_CHECK in line.text for line in part)
    for line in part:
        text = line.text.strip()
        if _is_header(text):
            run.columns = parse_columns(text, _COLUMN, line.number)
            largest = run.options.get("max_block_size", largest)
            if largest.isdecimal() and len(largest) < 19:
                run.settings |= {"last_size_bytes": int(largest), "step_factor": 2}
        elif "(--" in text:
            run.options |= dict(_OPTION.findall(text))
        elif run.columns and text[:1].isdigit():
            _read_row(run, text.split(), line.number)
    run.settle_ranks()
    run.notes = [*_notes(run), *run.notes]
    run.workload = _workload(run.results[0].parameters) if run.results else None
    return run


def _read_row(run: _Run, words: list[str], line: int) -> None:
    if len(words) < 2 or not words[0].isdecimal() or not words[1].isdecimal():
        return
    cells = run.cells(words, line)
    if not cells:
        return
    size, batch = (
        parse_integer(cells.pop("Block Size (B)"), "block size", line),
        parse_integer(cells.pop("Batch Size"), "batch", line),
    )
    if (size, batch) <= run.last or not size or not batch:
        raise refusal(line, f"block size {size} and batch {batch} follow {run.last[0]} and {run.last[1]}")
    run.last = (size, batch)
    numbers = {name: number(cell, name, line) for name, cell in cells.items()}
    if "B/W (GB/Sec)" not in numbers or "Avg Lat. (us)" not in numbers:
        raise refusal(line, "the table must have columns 'B/W (GB/Sec)' and 'Avg Lat. (us)'")
    _check(run, numbers, size, line)
    _add(run, numbers, size, batch, line)


def _add(run: _Run, numbers: dict[str, Number], size: int, batch: int, line: int) -> None:
    options, rate = run.options, numbers["B/W (GB/Sec)"]
    varied = {ours: _scalar(options[theirs]) for theirs, ours in _VARIED.items() if options.get(theirs)}
    settings: dict[str, Scalar] = {name: _scalar(options[name]) for name in _HELD if options.get(name)}
    settings |= {ours: numbers[name].value * 1e-6 for name, ours in _TIMES.items() if name in numbers}
    if aggregate := numbers.get("Aggregate B/W (GB/Sec)"):
        settings["aggregate_bytes_per_s"] = aggregate.value * 1e9
    ends = [str(varied[end]).lower() for end in ("initiator", "target") if end in varied]
    checked = None
    if run.is_checked() or run.check_failed:
        # One check follows all iterations. It does not print the number of wrong bytes, so at least one is assumed.
        checked = Verification(
            method="nixlbench --check_consistency", bytes_checked=size * batch, bytes_wrong=int(run.check_failed)
        )
    run.settle_ranks()
    path = ">".join(ends) if len(ends) == 2 else ""
    parameters = {"size_bytes": size, "batch": batch, **varied}
    run.add(line, [bandwidth(rate, 1e9, "GB/Sec")], parameters, settings, checked, path=path)


def _check(run: _Run, numbers: dict[str, Number], size: int, line: int) -> None:
    """Check that B/W = block / latency, times the threads since 0.4. The three rates of 0.2 are equal.

    Without the configuration the first row gives the number of threads, and the others must agree.
    """
    rate, latency = numbers["B/W (GB/Sec)"], numbers["Avg Lat. (us)"]
    threads = run.options.get("num_threads", "")
    if not threads and latency.low > 0:
        run.shown_threads = run.shown_threads or max(1, round(rate.value * latency.value * 1e3 / size))
    if latency.low > 0 and not any(
        overlap(rate.range(), (size * n / latency.high / 1e3, size * n / latency.low / 1e3))
        for n in {1, int(threads) if threads.isdecimal() else min(run.shown_threads, _MOST_THREADS)}
    ):
        computed = f"average latency {latency.text} us = {size / latency.value / 1e3:.6g} GB/s"
        raise refusal(line, f"B/W {rate.text} GB/s is not block size {size} / {computed}")
    for name, scale in _RATES.items():
        other = numbers.get(name)
        # Six significant digits, because half a unit of a printed integer understates its rounding.
        if other and abs(other.value * scale - rate.value * 1e9) > 2e-5 * rate.value * 1e9 + other.half * scale:
            raise refusal(line, f"{name} {other.text} is not B/W {rate.text} GB/s")


def _scalar(text: str) -> Scalar:
    return int(text) if text.isdecimal() and len(text) < 19 else text


def _notes(run: _Run) -> Iterator[str]:
    yield "GB is 10^9 bytes; the average latency is total time / operations, not a round trip"
    if run.shown_threads > 1:
        yield f"B/W is {run.shown_threads} times block size / latency: that many threads ran at once"
    if not run.options:
        yield "the text lacks the configuration: backend, memory and direction are unknown"
    elif not run.is_checked():
        yield "the data was not checked"
    if run.check_failed:
        yield "nixlbench reports a failed consistency check without its row: all rows count as wrong"
    if "Network Util (%)" in run.columns:
        yield "the network utilisation assumes 50 GB/s per pair, whatever the NIC: it is left out"

"""What nixlbench prints: the table of NIXL 0.2 (four columns of rates) and the ones since 0.5 (prep, post, transfer).

    Block Size (B)      Batch Size     B/W (GB/Sec)   Avg Lat. (us)  Avg Prep (us)  P99 Prep (us)  ...
    4096                1              0.291436       14.1           24.0           24.0           ...

GB is 10^9 bytes. `Avg Lat.` is the total time / operations, an inverse throughput and no round trip (nixlbench
src/utils/utils.cpp `printStats`), so it is kept beside the bandwidth and not as a latency.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from railwright.errors import UsageError
from railwright.results.model import Result, Verification
from railwright.results.readers.log_lines import (
    Line,
    Number,
    by_origin,
    cut_short,
    lines_of,
    number,
    overlap,
    refusal,
    sections,
    whole,
)
from railwright.results.readers.model import ForeignFile, point
from railwright.topology.model import Scalar

NAME = "nixlbench (columns Block Size (B) and Batch Size)"

_OPTION = re.compile(r"\(--([a-z_]{2,32})(?:=[^)]{0,120})?\)\s{0,60}: ?(\S{0,64})")
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
_STORAGE = frozenset({"GDS", "GDS_MT", "POSIX", "HF3FS", "OBJ", "GUSLI", "AZURE_BLOB", "INFINIA"})
_FAILED_CHECK = "Consistency check failed"


@dataclass
class _Run:
    """One table while it is read."""

    options: dict[str, str] = field(default_factory=dict)
    columns: list[str] = field(default_factory=list)
    results: list[Result] = field(default_factory=list)
    last: tuple[int, int] = (-1, -1)
    check_failed: bool = False
    notes: list[str] = field(default_factory=list)


def recognises(text: str) -> bool:
    """The words of the table's header."""
    return "Block Size (B)" in text and "Batch Size" in text and "B/W (" in text


def read(text: str) -> tuple[ForeignFile, ...]:
    """Every table of the text. Raises UsageError for one that contradicts itself."""
    files: list[tuple[int, ForeignFile]] = []
    for stream in by_origin(lines_of(text)):
        options: dict[str, str] = {}
        for part in sections(stream, lambda line: "NIXLBench Configuration" in line.text or _is_header(line.text)):
            run = _run(part, options)
            options = {} if run.results else run.options  # the configuration stands above its table's header
            if run.results:
                files.append((int(run.results[0].settings["line"]), _finished(run)))
    if not files:
        raise UsageError(
            "no row of a nixlbench table was found (Block Size, Batch Size, B/W ...)",
            hint="give the initiator's output, with the configuration above the table",
        )
    return tuple(file for _, file in sorted(files, key=lambda pair: pair[0]))


def _is_header(text: str) -> bool:
    return text.lstrip().startswith("Block Size (B)")


def _run(part: list[Line], options: dict[str, str]) -> _Run:
    run = _Run(options=dict(options))
    run.check_failed = any(_FAILED_CHECK in line.text for line in part)
    for line in part:
        text = line.text.strip()
        if _is_header(text):
            columns = _COLUMN.findall(text)
            if "".join(columns).replace(" ", "") != text.replace(" ", ""):
                raise refusal(line.number, f"the columns {text[:100]!r} are not known")
            run.columns = columns
        elif "(--" in text:
            run.options |= dict(_OPTION.findall(text))
        elif run.columns and text[:1].isdigit():
            _row(run, text.split(), line.number, part[-1].number)
    return run


def _row(run: _Run, tokens: list[str], line: int, last_line: int) -> None:
    if len(tokens) < 2 or not tokens[0].isdigit() or not tokens[1].isdigit():
        return
    if len(tokens) != len(run.columns):
        if line == last_line and len(tokens) < len(run.columns):
            run.notes.append(cut_short(line, len(tokens), len(run.columns)))
            return
        raise refusal(line, f"{len(tokens)} columns where the header has {len(run.columns)}")
    cells = dict(zip(run.columns, tokens, strict=True))
    size, batch = whole(cells.pop("Block Size (B)"), "block size", line), whole(cells.pop("Batch Size"), "batch", line)
    if (size, batch) <= run.last or not size or not batch:
        raise refusal(line, f"block size {size} and batch {batch} after {run.last[0]} and {run.last[1]}")
    run.last = (size, batch)
    numbers = {name: number(cell, name, line) for name, cell in cells.items()}
    if "B/W (GB/Sec)" not in numbers or "Avg Lat. (us)" not in numbers:
        raise refusal(line, "the table has no column 'B/W (GB/Sec)' or 'Avg Lat. (us)'")
    _check(run, numbers, size, line)
    run.results.append(_result(run, numbers, size, batch, line))


def _check(run: _Run, numbers: dict[str, Number], size: int, line: int) -> None:
    """B/W = block / latency, times the threads since 0.4; and the three rates of 0.2 are one."""
    rate, latency = numbers["B/W (GB/Sec)"], numbers["Avg Lat. (us)"]
    threads = {1, int(run.options.get("num_threads", "1")) if run.options.get("num_threads", "1").isdigit() else 1}
    if latency.low > 0 and not any(
        overlap(rate.low, rate.high, size * n / latency.high / 1e3, size * n / latency.low / 1e3) for n in threads
    ):
        raise refusal(
            line,
            f"B/W {rate.text} GB/s is not block size {size} / average latency {latency.text} us = "
            f"{size / latency.value / 1e3:.6g} GB/s",
        )
    for name, scale in _RATES.items():
        other = numbers.get(name)
        # Six significant digits: the half unit of a printed integer says too little of how it was rounded.
        if other and abs(other.value * scale - rate.value * 1e9) > 2e-5 * rate.value * 1e9 + other.half * scale:
            raise refusal(line, f"{name} {other.text} is not B/W {rate.text} GB/s")


def _result(run: _Run, numbers: dict[str, Number], size: int, batch: int, line: int) -> Result:
    rate = numbers["B/W (GB/Sec)"]
    varied = {ours: _scalar(run.options[theirs]) for theirs, ours in _VARIED.items() if run.options.get(theirs)}
    parameters: dict[str, Scalar] = {"size_bytes": size, "batch": batch, **varied}
    settings: dict[str, Scalar] = {name: _scalar(run.options[name]) for name in _HELD if run.options.get(name)}
    settings |= {ours: numbers[name].value * 1e-6 for name, ours in _TIMES.items() if name in numbers}
    if "Aggregate B/W (GB/Sec)" in numbers:
        settings["aggregate_bytes_per_s"] = numbers["Aggregate B/W (GB/Sec)"].value * 1e9
    ends = [str(varied[end]).lower() for end in ("initiator", "target") if end in varied]
    return point(
        benchmark="nixlbench",
        quantity="bandwidth_bytes_per_s",
        value=rate.value * 1e9,
        shown=f"{rate.text} GB/Sec",
        line=line,
        method="nixlbench",
        parameters=parameters,
        settings=settings,
        path=">".join(ends) if len(ends) == 2 else "",
        ranks=_ranks(run),
        verification=_verification(run, size * batch),
    )


def _scalar(text: str) -> Scalar:
    return int(text) if text.isdigit() and len(text) < 19 else text


def _ranks(run: _Run) -> int | None:
    if not run.options or run.options.get("backend") in _STORAGE:
        return 1 if run.options else None
    return None if "Aggregate B/W (GB/Sec)" in run.columns else 2


def _verification(run: _Run, moved_bytes: int) -> Verification | None:
    if run.options.get("check_consistency") != "1" and not run.check_failed:
        return None
    # One check after all iterations; how many bytes were wrong is not printed, so at least one.
    wrong = 1 if run.check_failed else 0
    return Verification(method="nixlbench --check_consistency", bytes_checked=moved_bytes, bytes_wrong=wrong)


def _finished(run: _Run) -> ForeignFile:
    notes = ["GB is 10^9 bytes; the average latency is total time / operations, not a round trip"]
    if not run.options:
        notes.append("the configuration is not in the text: backend, memory and direction are unknown")
    elif run.options.get("check_consistency") != "1":
        notes.append("the data was not checked")
    if run.check_failed:
        notes.append("nixlbench says that a consistency check failed, not in which row: all rows count as wrong")
    if "Network Util (%)" in run.columns:
        notes.append("network utilisation is of a fixed 50 GB/s per pair, whatever the NIC: it is left out")
    return ForeignFile(
        tool="nixlbench",
        test="nixlbench",
        ranks=_ranks(run),
        results=tuple(run.results),
        notes=(*notes, *run.notes),
    )

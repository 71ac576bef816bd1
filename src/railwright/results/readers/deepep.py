"""Reader of DeepEP's tests (deepseek-ai/DeepEP, tests/test_internode.py, test_intranode.py, test_low_latency.py).

    [tuning] SMs 24, NVL chunk 4, RDMA chunk 8: 40.10 GB/s (RDMA), 131.00 GB/s (NVL)
    [tuning] Best dispatch (FP8): SMs 24, NVL chunk 28, RDMA chunk 8: 199 + 1234 us, 58.1 GB/s (RDMA), 189.1 GB/s (NVL)
    [rank 3] Dispatch bandwidth: 43.41 GB/s, avg_t=173.07 us | Combine bandwidth: 44.88 GB/s, avg_t=324.00 us

GB/s is 10^9 bytes/s of logical data: tokens times their bytes, whatever crosses a link. A token that several experts of
one host need crosses the network once, so the figure may exceed the rate of a port.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from railwright.results.readers.foreign_file import Draft, ForeignFile, MeasuredValue, bandwidth, collect_files
from railwright.results.readers.pasted.log_lines import split_lines
from railwright.results.readers.pasted.printed_numbers import number
from railwright.results.workload import Unlimited
from railwright.topology.devices import Scalar

_TUNING = re.compile(r"\[tuning\] (Best (?:dispatch|combine)(?: \(\w{1,12}\))?|SMs \d)(.{0,300})")
_RATE = re.compile(r"(\d[\d.]{0,12}) GB/s \((RDMA|NVL)\)")
_CHUNKS = re.compile(r"(SMs|NVL chunk|RDMA chunk) (\d{1,6})")
_LOW_LATENCY = re.compile(r"\b(Dispatch \+ combine|Dispatch|Combine) bandwidth: (\d[\d.]{0,12}) GB/s")
_RANK = re.compile(r"\[rank (\d{1,6})\]")
_WHY = "no limit is derived for logical bytes: how many of them cross each link depends on the routing of the tokens"
_NOTE = (
    "GB/s counts logical bytes: a token for several experts of one host crosses the network once, so 90 GB/s on a port"
    " of 50 GB/s can be right"
)


def recognises(text: str) -> bool:
    """Report whether the text has a line of DeepEP's tests with a rate."""
    return (
        ("[tuning]" in text and _RATE.search(text) is not None)
        or ("ombine bandwidth: " in text and _LOW_LATENCY.search(text) is not None)
    )  # fmt: skip


def read(text: str) -> tuple[ForeignFile, ...]:
    """Read the best configurations, or all of them if the text ends before the best. Raises UsageError without any."""
    lines = split_lines(text)
    rows = [row for line in lines for row in _read_line(line.number, line.text)]
    best = [row for row in rows if str(row[2]["figure"]).startswith("best")]
    low_latency = [row for row in rows if str(row[2]["figure"]).startswith(("dispatch", "combine"))]
    draft = Draft(tool="DeepEP", test="dispatch and combine", workload=Unlimited(why=_WHY))
    for line, value, parameters in best + low_latency or rows:
        draft.add(line, [value], parameters)
    draft.notes.append(_NOTE)
    if best and len(rows) > len(best) + len(low_latency):
        draft.notes.append(f"{len(rows) - len(best) - len(low_latency)} rates of other configurations are left out")
    elif rows and not best and not low_latency:
        draft.notes.append("the text has no line with the best configuration: every one that was tried is shown")
    return collect_files([draft], "DeepEP's output must contain a rate, got none", "give the lines with [tuning]")


_Row = tuple[int, MeasuredValue, dict[str, Scalar]]


def _read_line(line: int, text: str) -> Iterator[_Row]:
    if tuning := _TUNING.search(text):
        is_best = tuning[1].startswith("Best")
        chosen = " ".join(f"{name} {value}" for name, value in _CHUNKS.findall(tuning[0]))
        for rate, link in _RATE.findall(tuning[2]):
            name = tuning[1].replace("Best", "best") if is_best else chosen
            yield line, bandwidth(number(rate, link, line), 1e9, "GB/s"), {"figure": f"{name}, {link}"}
    elif "bandwidth: " in text:
        rank = _RANK.search(text)
        for phase, rate in _LOW_LATENCY.findall(text):
            parameters: dict[str, Scalar] = {"figure": phase.lower(), **({"rank": int(rank[1])} if rank else {})}
            yield line, bandwidth(number(rate, phase, line), 1e9, "GB/s"), parameters

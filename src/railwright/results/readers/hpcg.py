"""Reader of HPCG 3.0 and 3.1, and of NVIDIA's and AMD's versions: lines of `Part::Word=value`.

Machine Summary::Distributed Processes=8
Final Summary::HPCG result is VALID with a GFLOP/s rating of=123.45

HPCG 3.0 and MKL's version write the same keys as YAML. MKL's version also prints its result:

    Machine Summary:
      Distributed Processes: 8
    __________ Final Summary __________:
      HPCG result is VALID with a GFLOP/s rating of: 3.28908

If the text lacks the result, the raw total is used instead:

    GFLOP/s Summary::Raw Total=196.268

NVIDIA's version prints its result on the terminal, with its memory bandwidth:

    2x2x2 process grid
    final =  202.6 GF (1536.3 GB/s Effective)   25.3 GF_per ( 192.0 GB/s Effective)
"""

from __future__ import annotations

import re

import msgspec

from railwright.results.readers.foreign_file import Draft, ForeignFile, MeasuredValue, collect_files
from railwright.results.readers.pasted.log_lines import Line, refusal, sort_by_origin
from railwright.results.readers.pasted.printed_numbers import Number, number, overlap

_RATE = re.compile(
    r"(?:^|:: ?)\s{0,8}HPCG result is (VALID|INVALID)\b.{0,40}?(?:rating of\s?[=:]?\s?(\d\S{0,23}))?\s*$"
)
_PROCESSES = re.compile(r"(?:^|:: ?)\s{0,8}Distributed Processes[=:]\s?(\d{1,9})")
_THREADS = re.compile(r"(?:^|:: ?)\s{0,8}Threads per processes?[=:]\s?(\d{1,6})")
_GRID = re.compile(r"(?:^|:: ?)\s{0,8}Global n([xyz])[=:]\s?(\d{1,9})")
_VERSION = re.compile(r"^\s{0,8}version=(\d[\d.]{0,15})|\bversion[=: ]\s?V?(\d[\d.]{0,15})\s*$")
_NVIDIA_RESULT = re.compile(
    r"\bfinal\s?=\s{0,8}(\S{1,24}) GF \(\s{0,4}(\S{1,24}) GB/s(?: Effective)?\)\s{1,8}(\S{1,24}) GF_per"
)
_PROCESS_GRID = re.compile(r"(\d{1,6})x(\d{1,6})x(\d{1,6}) process grid")
_GPU = re.compile(r"GPU: '([^']{2,60})'")
_RAW = re.compile(r"GFLOP/s Summary\s?::\s?Raw Total=(\S{1,24})")
_READ_WRITE = re.compile(r"GB/s Summary\s?::\s?Raw Total B/W=(\S{1,24})")


def recognises(text: str) -> bool:
    """Report whether the text has the fixed words of a result line."""
    return (
        "HPCG result is" in text
        or "GFLOP/s Summary::Raw Total=" in text
        or ("GF_per" in text and "process grid" in text and "final" in text)
    )


def read(text: str) -> tuple[ForeignFile, ...]:
    """Read every result. Raises UsageError for a result that HPCG calls invalid, or if there is none."""
    draft = Draft(tool="HPCG", test="hpcg")
    raw: tuple[str, int] | None = None
    for line in sort_by_origin(text):
        if found := _RAW.search(line.text):
            raw = found[1], line.number
        elif found := _NVIDIA_RESULT.search(line.text):
            _read_nvidia(draft, found, line.number)
        elif (found := _RATE.search(line.text)) and (found[1] == "INVALID" or found[2]):
            _add_once(draft, found, line.number)
        else:
            _take_setting(draft, line)
    if raw is not None and not draft.results:
        rate, place = raw
        _add(draft, number(rate, "GFLOP/s", place), "GFLOP/s", place)
        draft.notes.append("a raw total: the text lacks HPCG's last line, which says whether the result is valid")
    draft.notes.append("HPCG is limited by memory bandwidth: its baseline is STREAM on the same machine")
    return collect_files(
        [draft],
        "HPCG's output must contain a result (Final Summary::HPCG result is VALID), got none",
        "give the whole file that HPCG wrote",
    )


def _take_setting(draft: Draft, line: Line) -> None:
    if found := _PROCESSES.search(line.text):
        draft.ranks = int(found[1])
    elif found := _THREADS.search(line.text):
        draft.settings["threads"] = int(found[1])
    elif found := _GRID.search(line.text):
        draft.settings[f"n{found[1]}"] = int(found[2])
    elif found := _READ_WRITE.search(line.text):
        draft.settings["memory_bytes_per_s"] = number(found[1], "GB/s", line.number).value * 1e9
    elif found := _VERSION.search(line.text):
        draft.version = found[1] or found[2]
    elif found := _PROCESS_GRID.search(line.text):
        draft.ranks = int(found[1]) * int(found[2]) * int(found[3])
    elif found := _GPU.search(line.text):
        draft.gpus = (found[1],)


def _add_once(draft: Draft, found: re.Match[str], line: int) -> None:
    """Add a result once, although MKL's version prints it and also writes it to its file."""
    if found[1] == "INVALID":
        raise refusal(line, "HPCG reports that its result is not valid", "look for FAILED in the file that HPCG wrote")
    rate = number(found[2], "GFLOP/s", line)
    low, high = rate.range(1e9)
    for place, one in enumerate(draft.results):
        if one.summary is not None and low <= one.summary.median <= high:
            draft.results[place] = msgspec.structs.replace(one, settings={**one.settings, **draft.settings})
            return
    _add(draft, rate, "GFLOP/s", line)


def _add(draft: Draft, rate: Number, unit: str, line: int) -> None:
    draft.add(line, [MeasuredValue("flop_per_s", rate.value * 1e9, f"{rate.text} {unit}")], {})


def _read_nvidia(draft: Draft, found: re.Match[str], line: int) -> None:
    rate, each = number(found[1], "GF", line), number(found[3], "GF_per", line)
    if draft.ranks and draft.ranks > 1 and not overlap(rate.range(), each.range(draft.ranks)):
        raise refusal(line, f"{rate.text} GF is not {draft.ranks} processes x {each.text} GF")
    draft.settings["memory_bytes_per_s"] = number(found[2], "GB/s", line).value * 1e9
    _add(draft, rate, "GF", line)

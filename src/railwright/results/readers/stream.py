"""Reader of STREAM 5.9 and 5.10, and of BabelStream 3.x to 5.x, the same test on GPUs.

    Number of Threads counted = 16
    Function    Best Rate MB/s  Avg time     Min time     Max time
    Triad:          52888.8     0.004916     0.004538     0.006513

MB/s is 10^6 bytes/s (stream.c). Copy and Scale move two arrays, Add and Triad three.
"""

from __future__ import annotations

import re

from railwright.results.readers.foreign_file import Draft, ForeignFile, bandwidth, collect_files
from railwright.results.readers.pasted.log_lines import Line, refusal, split_runs
from railwright.results.readers.pasted.printed_numbers import number, overlap
from railwright.results.workload import Memory

_HEAD = re.compile(r"Function\s{1,16}(Best Rate MB/s|MBytes/sec|GBytes/sec|MB/s|Rate \([MG]B/s\))\s")
_ROW = re.compile(r"(Copy|Scale|Add|Triad|Mul|Dot|Nstream):?\s{1,24}(\S{1,24})((?:\s{1,24}\S{1,24}){2,4})\s*$")
_ROW_ALONE = re.compile(
    r"\b(?:Copy|Scale|Add|Triad):\s{1,24}\d[\d.]{1,20}(?:\s{1,24}\d\.\d{4,8}){3}\s*?$", re.MULTILINE
)
"""A row of stream.c with MB/s and seconds, recognizable without its header."""
_LEAST_ROWS = 2
_SIZE = re.compile(r"(?:Array size|Total Aggregate Array size) ?[=:] ?(\d{1,18})(?: \(elements\))?")
_MEGABYTES = re.compile(r"Array size: ([\d.]{1,16}) ([MG])B")
_THREADS = re.compile(r"Number of Threads (?:counted|requested) ?= ?(\d{1,6})")
_ON_GPU = re.compile(r"(?:Using )?(?:CUDA|HIP|OpenCL|SYCL) [dD]evice(?: \d{1,4})?:? \"?(\w[^\"]{1,60}?)(?:\"|\s*$)")
_ARRAYS = {"Copy": 2, "Scale": 2, "Mul": 2, "Dot": 2, "Add": 3, "Triad": 3, "Nstream": 4}
_RATES = ("Best Rate", "Bytes/sec", "Rate (MB", "Rate (GB", "BabelStream")
_VALID = ("Solution Validates", "Validation PASSED")


def recognises(text: str) -> bool:
    """Report whether the text has the header and a row, or rows alone."""
    is_headed = "Function" in text and any(word in text for word in _RATES)
    return ("Triad" in text or "Copy" in text) and (is_headed or len(_ROW_ALONE.findall(text)) >= _LEAST_ROWS)


def read(text: str) -> tuple[ForeignFile, ...]:
    """Read every run.

    Raises UsageError for a rate that is not the bytes moved over the minimum time, or for a text without rows.
    """
    hint = "give the output from its header to the Triad line"
    return collect_files(
        map(_read_run, split_runs(text, _begins)),
        "STREAM's output must contain a row (Copy, Scale, Add, Triad with a rate and times), got none",
        hint,
    )


def _begins(line: Line) -> bool:
    return "STREAM version" in line.text or line.text.strip() == "BabelStream"


def _read_run(lines: list[Line]) -> Draft:
    draft = Draft(tool="STREAM", test="stream", ranks=1, hosts=1, notes=["MB/s is 10^6 bytes/s"])
    unit, elements = "", 0
    for line in lines:
        text = line.text.strip()
        if found := _THREADS.search(text):
            draft.settings["threads"] = int(found[1])
        elif found := _MEGABYTES.search(text):
            draft.settings["array_bytes"] = int(float(found[1]) * (1e6 if found[2] == "M" else 1e9))
        elif found := _SIZE.search(text):
            elements = int(found[1])
        elif found := _ON_GPU.search(text):
            draft.gpus, draft.tool = (found[1],), "BabelStream"
        elif found := _HEAD.search(f"{text} "):
            unit = found[1]
        elif (found := _ROW.match(text)) and (unit or _ROW_ALONE.fullmatch(text)):
            _add(draft, found, unit or "Best Rate MB/s", elements, line.number)
    if not any(words in line.text for line in lines for words in _VALID):
        draft.notes.append("the text does not say that STREAM checked its arrays")
    draft.workload = Memory(on_gpu=bool(draft.gpus))
    return draft


def _add(draft: Draft, found: re.Match[str], unit: str, elements: int, line: int) -> None:
    name, rate, times = found[1], number(found[2], "rate", line), found[3].split()
    scale = 1e9 if "GB" in unit else 1e6
    shortest = min((number(word, "time", line) for word in times[:3]), key=lambda one: one.value)
    if elements and shortest.value > 0 and unit.startswith("Best"):
        moved = elements * 8 * _ARRAYS[name]  # doubles, unless STREAM_TYPE was changed to a type of half the size
        possible = [(moved * part / shortest.high, moved * part / max(shortest.low, 1e-12)) for part in (1.0, 0.5)]
        if not any(overlap(rate.range(scale), one) for one in possible):
            what = f"{rate.text} MB/s is not {_ARRAYS[name]} arrays of {elements} elements in {shortest.text} s"
            raise refusal(line, what)
    draft.add(line, [bandwidth(rate, scale, unit.split()[-1].strip("()"))], {"kernel": name.lower()})

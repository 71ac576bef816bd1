"""Reader of rocm_bandwidth_test for AMD GPUs: a matrix each for unidirectional and bidirectional copies.

          Device: 1,  AMD Instinct MI300X,  GPU-XX,  c1:0.0
          Unidirectional copy peak bandwidth GB/s
          D/D       0           1
          0         N/A         55.601

CPUs and GPUs are numbered together; the list above the matrices tells them apart. GB are 10^9 bytes, and a
bidirectional rate is the sum of both directions.
"""

from __future__ import annotations

import re

import msgspec

from railwright.results.readers.foreign_file import Draft, ForeignFile, bandwidth, collect_files
from railwright.results.readers.pasted.log_lines import Line, group_by_origin, last_row, split_lines
from railwright.results.readers.pasted.printed_numbers import number
from railwright.results.workload import Copy

_MATRIX = re.compile(r"(Uni|B|Bi)directional copy (?:peak|average) bandwidth GB/s")
_DEVICE = re.compile(r"Device: (\d{1,4}),\s{1,8}(\S.{0,60}?)(,\s{1,8}GPU-\w{1,40}.{0,60})?\s*$")
_VERSION = re.compile(r"RocmBandwidthTest Version: (\d[\w.]{0,16})")


class _Matrix(msgspec.Struct, kw_only=True):
    both: bool
    columns: list[str] = []


def recognises(text: str) -> bool:
    """Report whether the text has the heading, which TransferBench has too, and the corner of a matrix."""
    return "copy peak bandwidth GB/s" in text and "D/D" in text


def read(text: str) -> tuple[ForeignFile, ...]:
    """Read the lines of each origin as a run. Raises UsageError for a matrix whose rows and header differ in width."""
    return collect_files(
        map(_read_run, group_by_origin(split_lines(text))),
        "the output of rocm_bandwidth_test must contain a matrix (copy peak bandwidth GB/s), got none",
        "give the output starting with its list of devices",
    )


def _read_run(lines: list[Line]) -> Draft:
    draft = Draft(tool="rocm_bandwidth_test", test="rocm_bandwidth_test", workload=Copy(), last_line=last_row(lines))
    draft.notes.append("the data was not checked")
    names: dict[str, str] = {}
    gpus: dict[str, None] = {}
    matrix: _Matrix | None = None
    for line in lines:
        words = line.text.split()
        if found := _VERSION.search(line.text):
            draft.version = found[1]
        elif found := _DEVICE.search(line.text):
            kind = "gpu" if found[3] or "Instinct" in found[2] or "Radeon" in found[2] else "memory"
            names[found[1]] = f"{kind}{sum(name.startswith(kind) for name in names.values())}"
            if kind == "gpu":
                gpus.setdefault(found[2])
        elif found := _MATRIX.search(line.text):
            matrix = _Matrix(both=found[1] != "Uni")
        elif matrix is not None and words[:1] == ["D/D"]:
            matrix.columns = words[1:]
        elif matrix is not None and matrix.columns and words and words[0].isdecimal():
            _read_row(draft, matrix, names, words, line.number)
        elif words:
            matrix = None
    draft.gpus = tuple(gpus)
    if draft.results and not names:
        draft.notes.append("the text does not say which of the devices are GPUs")
    return draft


def _read_row(draft: Draft, matrix: _Matrix, names: dict[str, str], words: list[str], line: int) -> None:
    for column, word in draft.cells_of_matrix(matrix.columns, words, line):
        if word == "N/A" or column == words[0]:
            continue
        printed = number(word, "bandwidth", line)
        source, target = names.get(words[0], ""), names.get(column, "")
        path = f"{source}>{target}" if source and target else ""
        test = "_to_".join(_name_kind(end) for end in (source, target)) + ("_bidirectional" if matrix.both else "")
        value = bandwidth(printed, 0.5e9 if matrix.both else 1e9, "GB/s")
        parameters = {"test": test, "copy": path or f"{words[0]}>{column}"}
        draft.add(line, [value], parameters, {"direction": "both" if matrix.both else "one"}, path=path)


def _name_kind(name: str) -> str:
    return "device" if name.startswith("gpu") else "host" if name else "any"

"""Reader of High-Performance Linpack: xhpl 2.0 to 2.3 (also inside hpcc), NVIDIA HPL and rocHPL.

    T/V                N    NB     P     Q               Time                 Gflops
    WR11C2R4        5120   128     2     2              26.71             3.3515e+00
    ||Ax-b||_oo/(eps*(||A||_oo*||x||_oo+||b||_oo)*N)=   4.41990053e-03 ...... PASSED

NVIDIA's version adds `( 4.213e+04)`, the rate per GPU. Gflops = (2/3 N^3 + 3/2 N^2) / time / 10^9 (hpl testing/ptest
HPL_pdtest.c), which is checked within the rounding of both.
"""

from __future__ import annotations

import re

import msgspec

from railwright.results.readers.foreign_file import Draft, ForeignFile, MeasuredValue, collect_files
from railwright.results.readers.pasted.log_lines import Line, group_by_origin, refusal, split_lines
from railwright.results.readers.pasted.printed_numbers import Number, number, overlap
from railwright.results.records import Verification
from railwright.results.workload import Linpack
from railwright.topology.devices import Scalar

_ROW = re.compile(
    r"(W[RC]\w{1,12}) +(?:\d{1,4} +)?(\d{1,10}) +(\d{1,7}) +(\d{1,7}) +(\d{1,7}) +(\S{1,24}) +(\S{1,24})"
    r"(?: +\( *(\S{1,24})\))?$"
)
"""AMD's Zen HPL has a column for the row-swap method after the variant."""
_ROW_ALONE = re.compile(r"\bW[RC]\w{0,2}\d\d[CLR]\d\w{0,2}[CLR]\d\w?(?: +\d{1,10}){4,5} +[\d.]{1,20} +\d[\d.e+]{1,20}")
_VERSION = re.compile(r"(HPLinpack|HPL-NVIDIA|HPL-MxP-NVIDIA|rocHPL) (?:version )?(\d{1,4}(?:\.\d{1,6}){0,3})")
_RESIDUAL = re.compile(r"\|\|Ax-b\|\|_oo/\(.{20,80}\)= +(\S{1,32}) \.{3,12} (PASSED|FAILED)")
_FAILED = re.compile(r"\.{3,12}[ ]{1,4}FAILED\b")
_NO_NUMBERS = ("nan", "inf", "infinity")
"""The texts that C prints for residuals that are not finite."""
_TOOLS = {"HPL-NVIDIA": "NVIDIA HPL", "HPL-MxP-NVIDIA": "NVIDIA HPL-MxP", "rocHPL": "rocHPL"}


def recognises(text: str) -> bool:
    """Report whether the text has the header of the table, or a row, whose variant is unmistakable."""
    has_words = ("T/V" in text and "Gflops" in text) or ("||Ax-b||_oo" in text and "FAILED" in text)
    return has_words or (
        "Gflops" not in text and ("WR" in text or "WC" in text) and _ROW_ALONE.search(text) is not None
    )


def read(text: str) -> tuple[ForeignFile, ...]:
    """Read all runs into one file. Raises UsageError for a row whose rate is not its size over its time."""
    draft = Draft(tool="HPL", test="hpl", workload=Linpack(by_vendor=True))
    for run in [run for stream in group_by_origin(split_lines(text)) for run in _runs(stream)]:
        _add(draft, run)
    ranks = {result.ranks for result in draft.results}
    draft.ranks = ranks.pop() if len(ranks) == 1 else None
    if "MxP" in draft.tool:
        draft.test, draft.workload = "hpl_mxp", None  # no limit is known for mixed precision
        draft.notes.append("HPL-MxP solves in low precision: its flop/s are not FP64 flop/s")
    if "Begin of HPL section" in text:
        draft.notes.append("an HPC Challenge file: only its HPL and STREAM sections are read")
    failed = len(_FAILED.findall(text))
    wrong = f", and {failed} residuals FAILED: those solutions are wrong" if failed else ""
    return collect_files(
        [draft],
        f"HPL's output must contain a row (WR..., N, NB, P, Q, time, Gflops), got none{wrong}",
        "give HPL.out, or the output with the line that begins with W",
    )


class _Run(msgspec.Struct):
    """A row with the lines above and below it."""

    row: re.Match[str]
    line: int
    tool: str
    version: str
    residual: re.Match[str] | None = None


def _runs(stream: list[Line]) -> list[_Run]:
    runs: list[_Run] = []
    tool, version = "HPL", ""
    for line in stream:
        text = line.text.strip()
        if found := _VERSION.search(text):
            if found[1] != "HPLinpack" or not version:  # NVIDIA's version prints both
                version = found[2]
            tool = _TOOLS.get(found[1], tool)
        elif found := _row(text):
            # Only NVIDIA's version has a per-GPU column.
            runs.append(_Run(found, line.number, "NVIDIA HPL" if tool == "HPL" and found[8] else tool, version))
        elif runs and runs[-1].residual is None and (found := _RESIDUAL.search(text)):
            runs[-1].residual = found
    return runs


def _row(text: str) -> re.Match[str] | None:
    """Find the row in a line, also among other words if lines were joined."""
    if found := _ROW.match(text):
        return found
    among = _ROW_ALONE.search(text) if " W" in text else None
    return _ROW.match(among[0]) if among else None


def _add(draft: Draft, run: _Run) -> None:
    row, line = run.row, run.line
    order, block, rows, columns = (int(row[place]) for place in (2, 3, 4, 5))
    seconds, gflops = number(row[6], "time", line), number(row[7], "Gflops", line)
    _check(order, seconds, gflops, line)
    draft.tool, draft.version, draft.ranks = run.tool, run.version, rows * columns
    settings: dict[str, Scalar] = {"duration_s": seconds.value, "matrix_bytes": 8 * order * order}
    if row[8]:
        share = number(row[8], "Gflops per GPU", line)
        if not overlap(share.range(), gflops.range(1 / draft.ranks)):
            raise refusal(line, f"{share.text} Gflops per GPU is not {gflops.text} / {draft.ranks} GPUs")
        settings["flop_per_s_per_gpu"] = share.value * 1e9
    checked = None
    if run.residual is None:
        draft.notes.append(
            f"line {line} has no residual below it: the solution was not checked, or the run ended there"
        )
    else:
        passed = run.residual[2] == "PASSED"
        if passed or run.residual[1].lower().lstrip("+-") not in _NO_NUMBERS:
            settings["scaled_residual"] = number(run.residual[1], "residual", line).value
        # The residual checks the whole solution vector, not its single values.
        wrong = 0 if passed else 8 * order
        checked = Verification(method="HPL scaled residual", bytes_checked=8 * order, bytes_wrong=wrong)
    value = MeasuredValue("flop_per_s", gflops.value * 1e9, f"{gflops.text} Gflops")
    parameters: dict[str, Scalar] = {"n": order, "nb": block, "p": rows, "q": columns, "variant": row[1]}
    draft.add(line, [value], parameters, settings, checked)


def _check(order: int, seconds: Number, gflops: Number, line: int) -> None:
    if seconds.high <= 0 or gflops.value <= 0 or not order:
        raise refusal(
            line, f"N, time and Gflops must be above 0, got N {order}, time {seconds.text} s, {gflops.text} Gflops"
        )
    operations = (2 / 3 * order**3 + 3 / 2 * order**2) / 1e9
    slowest, fastest = operations / seconds.high, operations / max(seconds.low, 1e-9)
    if not overlap(gflops.range(), (slowest, fastest)):
        computed = f"{seconds.text} s for N = {order}: {operations / max(seconds.value, 1e-9):.4g}"
        raise refusal(line, f"{gflops.text} Gflops is not (2/3 N^3 + 3/2 N^2) / {computed}")

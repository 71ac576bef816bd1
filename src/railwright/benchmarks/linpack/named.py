"""Runs a user's xhpl with an HPL.dat for the point, and converts its output to a record."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec.structs import replace

from railwright.benchmarks.benchmark import Program
from railwright.benchmarks.linpack import hpl_dat
from railwright.benchmarks.record import failed_if
from railwright.errors import CannotJudge, UsageError
from railwright.results.readers.linpack import hpl
from railwright.results.records import Result

if TYPE_CHECKING:
    from railwright.benchmarks.linpack.options import Point

_INPUTS, _OUTPUTS = ("HPL.dat", "hpccinf.txt"), ("HPL.out", "hpccoutf.txt")
"""The input and output files of HPL, and of the HPL inside HPC Challenge."""


def parse_program(text: str) -> str:
    """Return the absolute path of a program. Raises UsageError if it cannot be run."""
    path = Path(text)
    if "\0" in text or not path.is_file():
        raise UsageError(f"no program at {text[:200]!r}", hint="give the path of an xhpl, of HPL or NVIDIA HPL")
    if not path.stat().st_mode & 0o111:
        raise UsageError(f"{text[:200]!r} cannot be executed", hint=f"chmod +x {text[:200]}")
    return str(path.resolve())


def program(path: str, case: Point, threshold: float, blank: Result) -> Program:
    """Describe the program's run for a point; `blank` is the record that receives its result."""
    asked = hpl_dat.write(hpl_dat.HplDat((case.n,), (case.nb,), (case.grid,), threshold))

    def read(text: str) -> Sequence[Result]:
        return [_record(path, blank, row) for file in hpl.read(text) for row in file.results]

    return Program(argv=(path,), files=dict.fromkeys(_INPUTS, asked), outputs=_OUTPUTS, threads=case.threads, read=read)


def _record(path: str, blank: Result, row: Result) -> Result:
    """Convert a row of the program's table.

    Raises CannotJudge for another point's row, which shows that the program did not read the HPL.dat.
    """
    ran, wanted = (tuple(one.parameters[name] for name in ("n", "nb", "p", "q")) for one in (row, blank))
    if ran != wanted:
        raise CannotJudge(
            f"{path} ran N, NB, P, Q = {ran}, but {wanted} was requested: it did not read this run's HPL.dat"
        )
    residual = row.settings.get("scaled_residual")
    is_wrong = row.verification is not None and row.verification.bytes_wrong
    settings = {"program": path, "variant": str(row.parameters["variant"]), **row.settings}
    found = replace(blank, settings=settings, verification=row.verification)
    if is_wrong:
        return failed_if(found, f"the scaled residual is {residual}, which {Path(path).name} calls FAILED")
    return replace(found, samples=row.samples, summary=row.summary)

"""Runs a user's HPL program for a point, with an HPL.dat, and converts its output to a record."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec.structs import replace

from railwright.benchmarks.benchmark import Program
from railwright.benchmarks.job import Machine
from railwright.benchmarks.linpack import hpl_dat
from railwright.benchmarks.record import failed_if
from railwright.errors import CannotJudge, UsageError
from railwright.expected.linpack import USER_PROGRAM
from railwright.results.readers.linpack import hpl
from railwright.results.records import Result

if TYPE_CHECKING:
    from railwright.benchmarks.linpack.options import Point

AUTO_ARGUMENTS = "auto"
ARGUMENTS_HELP = "auto (by the program's name), or its arguments; {dat}, {n}, {nb}, {p} and {q} are those of the point"
_DAT = "HPL.dat"
_INPUTS, _OUTPUTS = (_DAT, "hpccinf.txt"), ("HPL.out", "hpccoutf.txt")
"""The input and output files of HPL, and of the HPL inside HPC Challenge."""
_USUAL_ARGUMENTS = {"hpl.sh": "--dat {dat}", "rochpl": "-i {dat}"}
"""NVIDIA's container starts HPL by hpl.sh; rocHPL's program is rochpl. Others read HPL.dat."""
_PROGRESS = re.compile(r"(?:Prog|Fraction)[a-z]*\s*[=:]\s*([\d.]{1,8})\s*%")
"""`Prog= 12.34%` of NVIDIA HPL, `Fraction= 12.3%` of HPL with HPL_PROGRESS_REPORT and of rocHPL."""
_NAME = re.compile(r"\{(\w+)\}")
_MOST_ARGUMENTS = 2000


def parse_program(text: str) -> str:
    """Return the path of a program. Raises UsageError for a text that is none."""
    if "\0" in text or "/" not in text:
        raise UsageError(f"must be a path, got {text[:80]!r}", hint="give the path of an xhpl, hpl.sh or rochpl")
    return str(Path(text).absolute())


def parse_arguments(text: str) -> str:
    """Check a program's arguments. Raises UsageError for unbalanced quotes and unknown names in braces."""
    if len(text) > _MOST_ARGUMENTS:
        raise UsageError(f"must have at most {_MOST_ARGUMENTS} characters, got {len(text)}")
    _fill(text, dict.fromkeys(("dat", "n", "nb", "p", "q"), "1"))
    return text


def _fill(text: str, values: dict[str, str]) -> list[str]:
    """Split a text as a shell would, and put the values in the place of their names. Raises UsageError."""
    try:
        words = shlex.split(text)
        return [_NAME.sub(lambda found: values[found[1]], word) for word in words]
    except (ValueError, KeyError) as error:
        raise UsageError(
            f"cannot be used as arguments: {text[:80]!r} ({error})",
            hint="quote as in a shell; in braces only {dat}, {n}, {nb}, {p} and {q}",
        ) from error


def refuse_missing(program_path: str, machine: Machine) -> None:
    """Raise UsageError if the program cannot be run on this host. Other hosts are found out when it starts there."""
    path = Path(program_path)
    if not program_path or machine.hosts:
        return
    if not path.is_file():
        raise UsageError(f"no program at {program_path[:200]!r}", hint="give the path of an xhpl, hpl.sh or rochpl")
    if not path.stat().st_mode & 0o111:
        raise UsageError(f"{program_path[:200]!r} cannot be executed", hint=f"chmod +x {program_path[:200]}")


def program(path: str, arguments: str, case: Point, threshold: float, blank: Result) -> Program:
    """Describe the program's run for a point; `blank` is the record that receives its result."""
    asked = hpl_dat.write(hpl_dat.HplDat((case.n,), (case.nb,), (case.grid,), threshold))
    values = {"dat": _DAT, "n": str(case.n), "nb": str(case.nb), "p": str(case.p), "q": str(case.q)}
    text = _USUAL_ARGUMENTS.get(Path(path).name, "") if arguments == AUTO_ARGUMENTS else arguments

    def read(text: str) -> Sequence[Result]:
        return [_record(path, blank, row) for file in hpl.read(text) for row in file.results]

    return Program(
        argv=(path, *_fill(text, values)),
        files=dict.fromkeys(_INPUTS, asked),
        outputs=_OUTPUTS,
        threads=case.threads,
        read=read,
        progress=progress,
    )


def progress(line: str) -> str:
    """Return the share that is done, such as `12.3 %`, if a line of output shows it."""
    found = _PROGRESS.search(line)
    return f"{found[1]} %" if found else ""


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
    settings = {"program": path, "solver": USER_PROGRAM, "variant": str(row.parameters["variant"]), **row.settings}
    found = replace(blank, settings=settings, verification=row.verification)
    if is_wrong:
        return failed_if(found, f"the scaled residual is {residual}, which {Path(path).name} calls FAILED")
    return replace(found, samples=row.samples, summary=row.summary)

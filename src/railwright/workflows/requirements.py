"""The paths that `--require` names directly or in files."""

from __future__ import annotations

from collections.abc import Iterator
from fnmatch import fnmatchcase
from pathlib import Path

from railwright.benchmarks.registry import EVERY
from railwright.diagnosis.verdicts.policy import MAX_REQUIREMENTS, Requirement, parse_requirements
from railwright.errors import UsageError
from railwright.reading import read_at_most
from railwright.results.declarations import Declarations, list_ceilings

_MAX_BYTES = 1000 * MAX_REQUIREMENTS


def load_requirements(given: tuple[str, ...]) -> tuple[Requirement, ...]:
    """Load the paths that must be ok. Raises UsageError for an unknown name, and for an invalid or empty file."""
    known = [benchmark.name for benchmark in EVERY]
    found: dict[Requirement, None] = {}
    for text in given:
        lines = list(_read_lines(text))
        parsed = parse_requirements(lines, known)
        if not parsed:
            raise UsageError(
                f"--require must name a path, got {text[:60]!r}, which is empty",
                hint="write a benchmark's name, or a file of names",
            )
        found |= dict.fromkeys(parsed)
    return tuple(found)


def select_required(
    names: tuple[str, ...], required: tuple[Requirement, ...], declarations: Declarations
) -> tuple[str, ...]:
    """Return the benchmarks that the requirements need, with their ceilings; without requirements, all of `names`.

    A requirement that matches none of `names` selects from all benchmarks.
    """
    if not required:
        return names
    everything = [benchmark.name for benchmark in EVERY]
    wanted: set[str] = set()
    for requirement in required:
        matching = {name for name in names if fnmatchcase(name, requirement.benchmark)}
        wanted |= matching or {name for name in everything if fnmatchcase(name, requirement.benchmark)}
    wanted |= {ceiling for name in wanted for ceiling in list_ceilings(name, declarations)}
    return tuple(name for name in everything if name in wanted)


def _read_lines(text: str) -> Iterator[str]:
    path = Path(text)
    if not path.is_file():
        yield text
        return
    try:
        lines = read_at_most(path, _MAX_BYTES).decode().splitlines()
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not text"
        raise UsageError(f"cannot read {text[:60]!r}: {reason}", hint="write one path per line") from error
    if len(lines) > MAX_REQUIREMENTS:
        raise UsageError(
            f"{text[:60]!r} has more than {MAX_REQUIREMENTS} lines", hint=f"give at most {MAX_REQUIREMENTS} paths"
        )
    yield from lines

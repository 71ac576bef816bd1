"""The paths that must be ok for exit status 0, for a prolog or for the acceptance of a machine.

A requirement is the name of a benchmark, optionally with a path: `NAME memory0>gpu*`. Both may contain shell
wildcards.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase
from typing import NamedTuple

from railwright.checks.finding import Finding
from railwright.diagnosis.verdicts.judged import JudgedPath, State
from railwright.errors import EXIT_OK, EXIT_SLOW, EXIT_UNJUDGED, UsageError, unknown_name

UNJUDGED: tuple[State, ...] = ("suspicious", "failed", "unknown")
"""The states of points and paths that should have a verdict and have none."""
MAX_REQUIREMENTS = 1000
"""The largest number of requirements in a file."""
_MAX_CHARACTERS = 400
"""The time to translate a pattern of brackets grows with the square of its length."""


class Requirement(NamedTuple):
    """A pattern for the paths that must be ok."""

    benchmark: str
    path: str

    def __str__(self) -> str:
        return f"{self.benchmark} {self.path}" if self.path else self.benchmark

    def matches(self, path: JudgedPath) -> bool:
        """Report whether the requirement matches a judged path."""
        return self.names(path.benchmark, path.path)

    def names(self, benchmark: str, path: str) -> bool:
        """Report whether the requirement matches the names of a benchmark and a path."""
        return fnmatchcase(benchmark, self.benchmark) and (not self.path or fnmatchcase(path, self.path))


def parse_requirements(lines: Iterable[str], known: Sequence[str]) -> tuple[Requirement, ...]:
    """Parse one requirement per line; comments begin with `#`. Raises UsageError for an unknown benchmark."""
    found: dict[Requirement, None] = {}
    for line in lines:
        words = line.partition("#")[0].split()
        if not words:
            continue
        requirement = Requirement(words[0], " ".join(words[1:]))
        if len(str(requirement)) > _MAX_CHARACTERS:
            reason = f"a required path must have at most {_MAX_CHARACTERS} characters, got {len(str(requirement))}"
            raise UsageError(reason, hint="write a benchmark's name and a path")
        if not any(fnmatchcase(name, requirement.benchmark) for name in known):
            raise unknown_name("benchmark to require", requirement.benchmark, known)
        found[requirement] = None
    return tuple(found)


def find_unmet(paths: Sequence[JudgedPath], required: Iterable[Requirement]) -> tuple[tuple[str, str], ...]:
    """Return every required path that is not ok, with its state: `missing` if a requirement matches nothing."""
    found: dict[tuple[str, str], None] = {}
    for requirement in required:
        matching = [path for path in paths if requirement.matches(path)]
        if not matching:
            found[str(requirement), "missing"] = None
        for path in matching:
            if path.verdict.state != "ok":
                found[f"{path.benchmark} {path.path}", path.verdict.state] = None
    return tuple(found)


def required_status(missed: Iterable[tuple[str, str]]) -> int:
    """Return the exit status for the result of `find_unmet`.

    0: every required path is ok; 1: a path is slow; 3: a path is waived, missing, a reference or not judged.
    """
    states = {state for _, state in missed}
    return EXIT_OK if not states else EXIT_SLOW if "slow" in states else EXIT_UNJUDGED


def exit_status(paths: Iterable[JudgedPath], findings: Iterable[Finding]) -> int:
    """Return the exit status. 1: something is slow or misconfigured; 3: something was not judged; 0: all is ok."""
    states = [path.verdict.state for path in paths]
    certainties = [finding.certainty for finding in findings]
    if "slow" in states or "seen" in certainties or "likely" in certainties:
        return EXIT_SLOW
    if any(state in UNJUDGED for state in states) or "could not look" in certainties or "ok" not in states:
        return EXIT_UNJUDGED
    return EXIT_OK

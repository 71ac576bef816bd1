"""Which paths must be ok for exit status 0: for a prolog, or for the acceptance of a machine.

A requirement is the name of a benchmark, or that and a path, `NAME memory0>gpu*`. Both may have the
wildcards of file names.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase
from typing import NamedTuple

from railwright.checks.finding import Finding
from railwright.diagnosis.verdicts.judged import JudgedPath, State
from railwright.errors import EXIT_OK, EXIT_SLOW, EXIT_UNJUDGED, unknown_name

_UNJUDGED: tuple[State, ...] = ("suspicious", "failed", "unknown")
MOST = 1000
"""Requirements: a file of more lines is no policy."""


class Requirement(NamedTuple):
    """What a path must match in order to be required."""

    benchmark: str
    path: str

    def __str__(self) -> str:
        return f"{self.benchmark} {self.path}" if self.path else self.benchmark

    def matches(self, path: JudgedPath) -> bool:
        """Whether a judged path is meant."""
        return self.names(path.benchmark, path.path)

    def names(self, benchmark: str, path: str) -> bool:
        """The same, of a benchmark's name and a path's."""
        return fnmatchcase(benchmark, self.benchmark) and (not self.path or fnmatchcase(path, self.path))


def parse_requirements(lines: Iterable[str], known: Sequence[str]) -> tuple[Requirement, ...]:
    """One requirement a line; comments begin with `#`. Raises UsageError for a name that no benchmark has."""
    found: dict[Requirement, None] = {}
    for line in lines:
        words = line.partition("#")[0].split()
        if not words:
            continue
        one = Requirement(words[0], " ".join(words[1:]))
        if not any(fnmatchcase(name, one.benchmark) for name in known):
            raise unknown_name("benchmark to require", one.benchmark, known)
        found[one] = None
    return tuple(found)


def unmet(paths: Sequence[JudgedPath], required: Iterable[Requirement]) -> tuple[tuple[str, str], ...]:
    """Every required path that is not ok, with its state: `missing` where a requirement matches nothing."""
    found: dict[tuple[str, str], None] = {}
    for one in required:
        matching = [path for path in paths if one.matches(path)]
        if not matching:
            found[str(one), "missing"] = None
        for path in matching:
            if path.verdict.state != "ok":
                found[f"{path.benchmark} {path.path}", path.verdict.state] = None
    return tuple(found)


def required_status(missed: Iterable[tuple[str, str]]) -> int:
    """Of what `unmet` gives. 0: every required path is ok; 1: one is slow; 3: one is waived, missing, a reference or
    could not be judged.
    """
    states = {state for _, state in missed}
    return EXIT_OK if not states else EXIT_SLOW if "slow" in states else EXIT_UNJUDGED


def exit_status(paths: Iterable[JudgedPath], findings: Iterable[Finding]) -> int:
    """1: something is slow or misconfigured; 3: something, or everything, could not be judged; 0: all is ok."""
    states = [path.verdict.state for path in paths]
    certainties = [finding.certainty for finding in findings]
    if "slow" in states or "seen" in certainties or "likely" in certainties:
        return EXIT_SLOW
    if any(state in _UNJUDGED for state in states) or "could not look" in certainties or "ok" not in states:
        return EXIT_UNJUDGED
    return EXIT_OK

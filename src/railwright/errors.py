"""The errors that a user can see, with their exit statuses.

    RailwrightError               status 2  usage error or internal error
    ├── UsageError                status 2  the command line or an input file is wrong
    └── CannotJudge               status 3  something needed could not be read or measured
        └── UnreachableHosts      status 3  hosts cannot be reached

An error states the exact cause once, if it is known, with the value seen. It ends with the next step.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

EXIT_OK = 0
EXIT_SLOW = 1
EXIT_USAGE = 2
EXIT_UNJUDGED = 3
EXIT_CLOSED_PIPE = 141
"""The reader of the output left before its end, as `| head` does: the status of a program that SIGPIPE ends."""


class RailwrightError(Exception):
    """An error that ends the command. `hint` is the next step for the user."""

    exit_status = EXIT_USAGE
    is_consequence = False
    """Whether the end of another process probably caused it."""

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.message}\nhint: {self.hint}" if self.hint else self.message


class UsageError(RailwrightError):
    """The command line or an input file is invalid."""


class CannotJudge(RailwrightError):
    """A required value could not be read, or not be measured now, so no verdict is possible."""

    exit_status = EXIT_UNJUDGED


class UnreachableHosts(CannotJudge):
    """Hosts that cannot be reached or used: a sentence for each. The command line prints equal causes once."""

    def __init__(self, troubles: Mapping[str, str], *, of: str = "", hint: str = "") -> None:
        super().__init__(": ".join(filter(None, (of, "; ".join(troubles.values())))), hint=hint)
        self.troubles = dict(troubles)


def unknown_name(kind: str, name: str, known: Iterable[str]) -> UsageError:
    """Build the error for a name that does not exist. Its hint lists the nearest names, or else all known names."""
    import difflib  # a tenth of the time of --help

    names = sorted(known)
    near = difflib.get_close_matches(name, names, n=3, cutoff=0.6)
    hint = f"did you mean {', '.join(near)}?" if near else f"known: {', '.join(names)}"
    return UsageError(f"there is no {kind} named {name[:80]!r}", hint=hint)

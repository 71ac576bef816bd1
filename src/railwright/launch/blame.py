"""Attribution of a failed launch: finds the rank that ended first.

Launchers end the remaining ranks themselves, and sockets close in any order. A rank that receives SIGTERM reports it
before it exits. So ranks that ended silently ended first, and a host that lost power sends nothing at all. If the
launcher names a rank or a host, that takes precedence.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice, zip_longest
from pathlib import Path

from railwright.launch.causes import find_cause, is_warning
from railwright.process import ChildResult, describe_status

_GONE = "gone"
_STATES = {"R": "running", "S": "asleep", "D": "waiting for a device", "T": "stopped", "t": "traced", "Z": "dead"}
_RANK_PATTERN = re.compile(
    r"process rank (\d{1,9}) with PID \d{1,9} .{0,300}exited on signal|Process name: \[\S{1,255},(\d{1,9})\]"
)
_HOST_PATTERN = re.compile(r"(?:Remote host:|RUNNING AT|Remote daemon:.{0,300} on node|Node failure on)\s+(\S+)")
"""The messages in which ORTE, PRRTE, Hydra and Slurm name the rank or host that ended first. All then end the rest."""
_TASK_PATTERN = re.compile(r"^srun: error: \S{1,255}: tasks? (\d{1,9})")
"""The message in which srun names a task that ended."""
_CANCELLED_PATTERN = re.compile(r"\bCANCELLED AT\b|job step aborted", re.IGNORECASE)
"""The messages after which srun names the tasks that it ended itself."""
_SHOWN_ERRORS, _SHOWN_CHARACTERS = 2, 300
_ERROR_PATTERN = re.compile(
    r"\b(?:errors?|fail(?:ed|s|ure)?|cannot|could not|unable|not found|denied|refused|no such|invalid|exceeded)\b",
    re.IGNORECASE,
)
_CONTINUES_PATTERN = re.compile(r"[a-z]+(?:[ ,]|\.(?!\S))")
"""The beginning of a line that continues a sentence: a word in lower case, not a name as in `node1: no answer`."""
_WRAPPED_CHARACTERS = 50
"""The length below which a launcher does not wrap a line."""
_LINE_CHARACTERS = 1024
_READ_LINES = 200
"""The number of lines that are read at the beginning of an output, and at its end."""
_SIGNAL_PATTERN = re.compile(r"signal \d+|Fatal Python error", re.IGNORECASE)
_OWN_STATUS_PATTERN = re.compile(r"unable to launch the specified|tried to fork a new process|^Abort\(\d+\)")
"""Messages after which a status above 128 is no signal: it is ORTE's own, or the last byte of an abort's code."""


@dataclass
class RankState:
    """The state of a rank, from its messages and from the kernel."""

    host: str = "?"
    pid: int = 0
    is_here: bool = True
    """Whether the rank runs on this machine."""
    step: str = "start"
    said_bye: bool = False
    was_asked: bool = False
    """Whether the rank received SIGTERM."""
    is_lost: bool = False
    """Whether the rank's socket closed without `Bye`."""

    def describe(self, rank: int) -> str:
        """Return the rank with its host, process id and step."""
        return f"rank {rank} (host {self.host}, pid {self.pid}) at step {self.step!r}"

    def describe_activity(self) -> str:
        """Return the kernel's state of the rank as a suffix, such as `, stopped`. Empty if it runs on another host."""
        letter = self._state_letter()
        return f", {_STATES.get(letter, letter)}" if letter else ""

    def is_stopped(self) -> bool:
        """Report whether a local rank is stopped, traced or gone."""
        return self._state_letter() in ("T", "t", _GONE)

    def has_ended(self) -> bool:
        """Report whether the rank will send no more messages."""
        return self.said_bye or self.was_asked or self.is_lost

    def _state_letter(self) -> str:
        """Return the state letter of proc_pid_stat(5), or an empty string for a rank on another host."""
        if not self.is_here:
            return ""
        try:
            return Path(f"/proc/{self.pid}/stat").read_text("utf-8", "replace").rpartition(")")[2].split()[0]
        except (OSError, IndexError):
            return _GONE


@dataclass(frozen=True)
class Placement:
    """The placement of ranks on hosts in blocks. Without hosts, all ranks are on this machine."""

    ranks: int
    hosts: Sequence[str]

    def find_ranks(self, host: str) -> set[int]:
        """Return the ranks on a host. Empty for a host that is not part of the launch."""
        hosts = self.hosts
        return {n for n in range(self.ranks) if hosts and hosts[n * len(hosts) // self.ranks] == host}

    def find_hosts(self, ranks: Iterable[int]) -> set[str]:
        """Find the hosts of the ranks. Empty without hosts."""
        hosts = self.hosts
        return {hosts[n * len(hosts) // self.ranks] for n in ranks if hosts}

    def find_named(self, why: str) -> set[int]:
        """Find the ranks of the hosts in an error like `host3: no answer; host5 cannot be reached from host0`."""
        hosts = set(self.hosts)
        found: set[int] = set()
        for part in why.split("; "):
            found |= self.find_ranks(next((word for word in part.replace(":", " ").split() if word in hosts), ""))
        return found

    def find_first_ended(self, output: Sequence[str], *, are_tasks_ranks: bool = False) -> set[int]:
        """Find the ranks that ended first according to the launcher's output. Empty if it names none.

        `are_tasks_ranks` reports whether srun started the ranks themselves, and not a daemon on each host.
        """
        for line in _join_wrapped(_select_lines(output)):
            are_tasks_ranks = are_tasks_ranks and not _CANCELLED_PATTERN.search(line)
            task = _TASK_PATTERN.match(line) if are_tasks_ranks else None
            if found := task or _RANK_PATTERN.search(line):
                return {int(next(filter(None, found.groups())))} & set(range(self.ranks))
            if (found := _HOST_PATTERN.search(line)) and (ranks := self.find_ranks(found[1])):
                return ranks
        return set()

    def find_silent(self, states: dict[int, RankState]) -> set[int]:
        """Find the ranks that ended or fell silent without a SIGTERM. Empty if no rank received one."""
        any_asked = any(state.was_asked for state in states.values())
        return {n for n, state in states.items() if any_asked and not state.was_asked and not state.said_bye}


def _select_lines(output: Sequence[str]) -> list[str]:
    """Return the beginnings of the first and last lines of an output: a program may print thousands."""
    lines = list(output)
    kept = lines if len(lines) <= 2 * _READ_LINES else lines[:_READ_LINES] + lines[-_READ_LINES:]
    return [line[:_LINE_CHARACTERS] for line in kept]


def _join_wrapped(output: Iterable[str]) -> list[str]:
    """Return the lines of a launcher without ornaments, and each sentence that it wrapped in a single line."""
    lines: list[str] = []
    wraps = False
    for raw in output:
        line = raw.strip(" -*=\t\0")
        if wraps and _CONTINUES_PATTERN.match(line) and len(lines[-1]) < _LINE_CHARACTERS:
            lines[-1] = f"{lines[-1]} {line}"
        elif line:
            lines.append(line)
        wraps = len(line) >= _WRAPPED_CHARACTERS and line[-1] not in ".:;!?"
    return lines


def _list_errors(lines: Sequence[str]) -> Iterator[str]:
    """Yield the lines that tell an error; one that ends in a colon with the next, such as the name of a program."""
    for line, following in zip_longest(lines, lines[1:], fillvalue=""):
        if _ERROR_PATTERN.search(line):
            yield f"{line} {following}".strip() if line.endswith(":") else line


def summarize_end(finished: ChildResult, observed: Iterable[str] = ()) -> str:
    """Return a launcher's status, and what `summarize_output` says of its output and of this machine."""
    is_own_status = finished.returncode > 0 and any(map(_OWN_STATUS_PATTERN.search, finished.output))
    status = f"exit status {finished.returncode}" if is_own_status else describe_status(finished.returncode)
    return ", ".join(filter(None, (status, summarize_output(finished.output, observed))))


def summarize_output(output: Sequence[str], observed: Iterable[str] = ()) -> str:
    """Return the cause that a launcher's output or this machine tells, and the lines that say most. May be empty.

    These are the line that names a signal or a host, or else the first errors, or else the last line.
    """
    selected = _select_lines(output)
    lines = _join_wrapped(line for line in selected if not is_warning(line)) or _join_wrapped(selected)
    patterns = (_SIGNAL_PATTERN, _HOST_PATTERN)
    matches = (next((line for line in reversed(lines) if pattern.search(line)), "") for pattern in patterns)
    errors = "; ".join(islice(_list_errors(lines), _SHOWN_ERRORS))
    message = next((line for line in matches if line), errors or (lines[-1] if lines else ""))
    causes = list(filter(None, (find_cause(lines), *observed)))
    because = f"probably because {' and '.join(causes)}" if causes else ""
    return ", ".join(filter(None, (because, f"its output: {message[:_SHOWN_CHARACTERS]!r}" if message else "")))

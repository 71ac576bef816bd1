"""Who of a launch's ranks ended first: launchers end the others themselves, and sockets close in any order.

A rank that is asked to end says so before it does. So those that ended without a word did it first, and of a host
whose power is lost nothing comes at all. Where the launcher names a rank or a host, that is believed first.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from railwright.process import Finished, describe_status

_GONE = "gone"
_STATES = {"R": "running", "S": "asleep", "D": "waiting for a device", "T": "stopped", "t": "traced", "Z": "dead"}
_NAMES_A_RANK = re.compile(r"process rank (\d+) with PID \d+ .*exited on signal")
_NAMES_A_HOST = re.compile(r"(?:Remote host:|RUNNING AT|Remote daemon:.* on node)\s+(\S+)")
"""The words of PRRTE and Hydra for who ended first; the other ranks they then kill themselves."""
_TELLS_A_SIGNAL = re.compile(r"signal \d+|Fatal Python error", re.IGNORECASE)


@dataclass
class RankState:
    """What a rank has said of itself, and what the kernel says of it."""

    host: str = "?"
    pid: int = 0
    is_here: bool = True
    """Whether it runs on this machine."""
    step: str = "start"
    said_bye: bool = False
    was_asked: bool = False
    """Whether it was asked to end."""
    is_lost: bool = False
    """Whether its socket has closed."""

    def describe(self, rank: int) -> str:
        """Which rank it is, and where it was."""
        return f"rank {rank} (host {self.host}, pid {self.pid}) at step {self.step!r}"

    def describe_activity(self) -> str:
        """What the kernel says a rank of this machine is doing: one that is stopped or asleep holds up the others."""
        letter = self._letter()
        return f", {_STATES.get(letter, letter)}" if letter else ""

    def is_stopped(self) -> bool:
        """Whether it is a rank of this machine that does not run, and is not waiting either."""
        return self._letter() in ("T", "t", _GONE)

    def has_ended(self) -> bool:
        """Whether nothing more is to come from it."""
        return self.said_bye or self.was_asked or self.is_lost

    def _letter(self) -> str:
        """Of its state in proc_pid_stat(5); empty for a rank elsewhere."""
        if not self.is_here:
            return ""
        try:
            return Path(f"/proc/{self.pid}/stat").read_text("utf-8", "replace").rpartition(")")[2].split()[0]
        except (OSError, IndexError):
            return _GONE


@dataclass(frozen=True)
class Placement:
    """`ranks` ranks on these hosts, in blocks; on this machine where there are none."""

    ranks: int
    hosts: Sequence[str]

    def on(self, host: str) -> set[int]:
        """The ranks of a host."""
        hosts = self.hosts
        return {n for n in range(self.ranks) if hosts and hosts[n * len(hosts) // self.ranks] == host}

    def find_named(self, why: str) -> set[int]:
        """The ranks of the hosts that an error names: `host3: no answer; host5 cannot be reached from host0`."""
        hosts = set(self.hosts)
        found: set[int] = set()
        for part in why.split("; "):
            found |= self.on(next((word for word in part.replace(":", " ").split() if word in hosts), ""))
        return found

    def find_first_ended(self, output: Iterable[str]) -> set[int]:
        """The ranks that the launcher says ended first."""
        for line in output:
            if found := _NAMES_A_RANK.search(line):
                return {int(found[1])}
            if (found := _NAMES_A_HOST.search(line)) and (ranks := self.on(found[1])):
                return ranks
        return set()

    def find_silent(self, states: dict[int, RankState]) -> set[int]:
        """The ranks that ended, or are still silent, without having been asked to end; none if none was asked."""
        asked = any(state.was_asked for state in states.values())
        return {n for n, state in states.items() if asked and not state.was_asked and not state.said_bye}


def summarize_end(finished: Finished) -> str:
    """A launcher's status, and the line in which it names a signal or a host, or else its last one."""
    lines = [line.strip(" -*=\t\0") for line in reversed(finished.output)]
    lines = [line for line in lines if line]
    told = (next((line for line in lines if one.search(line)), "") for one in (_TELLS_A_SIGNAL, _NAMES_A_HOST))
    said = next((line for line in told if line), lines[0] if lines else "")
    status = describe_status(finished.returncode)
    return status + (f", it says {said[:200]!r}" if said else "")

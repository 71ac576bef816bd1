"""Hosts that are machines of their own, by ssh or Slurm: each is asked before ranks are started on it.

It answers with its railwright, its kernel's start, its addresses, and where it sees us.
"""

from __future__ import annotations

import sys
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Self

import msgspec

from railwright import __version__
from railwright.errors import UsageError

_MARK = "railwright:"
_PROGRAM = (
    "import json, os, pathlib, railwright; "
    "from railwright.benchmarks.sockets.addresses import addresses_of_host; "
    "boot = pathlib.Path('/proc/sys/kernel/random/boot_id').read_text().strip(); "
    "seen = (os.environ.get('SLURM_LAUNCH_NODE_IPADDR') or os.environ.get('SSH_CONNECTION', '')).split()[:3:2]; "
    f"print('{_MARK}' + json.dumps(dict(version=railwright.__version__, boot=boot, "
    "host=os.environ.get('SLURMD_NODENAME', ''), seen=seen, has=list(addresses_of_host())[:64])))"
)
PROBE_COMMAND = (sys.executable, "-P", "-c", _PROGRAM)
"""The program that answers on a host."""


class Answer(msgspec.Struct, frozen=True):
    """The answer of a host."""

    version: str
    boot: str
    """Random, of the kernel's start."""
    host: str
    """Slurm's name for it, where Slurm asked."""
    seen: tuple[str, ...]
    """Our address, as it sees it; by ssh also its own, at which it was reached."""
    has: tuple[tuple[str, str], ...]
    """Its interfaces and their addresses."""

    def trouble(self) -> str:
        """Why no rank can be started there; empty where one can."""
        if self.version != __version__:
            return f"it has railwright {self.version[:40]}, and here is {__version__}"
        return ""

    def address_on(self, host: str, interfaces: Sequence[str]) -> str:
        """Its address on the first of those interfaces. Raises UsageError, naming those of `host`, if it has none."""
        there = [address for name, address in self.has if name == interfaces[0]]
        if not there:
            names = ", ".join(dict.fromkeys(name for name, _ in self.has if name != "lo"))
            raise UsageError(f"{host} has no address on {interfaces[0]}", hint=f"it has {names or 'none'}")
        return there[0]


def parse_answers(lines: Iterable[str]) -> list[Answer]:
    """The answers among lines of output; what is no answer is passed over."""
    found = []
    for line in lines:
        _, mark, text = line.partition(_MARK)
        if mark:
            try:
                found.append(msgspec.json.decode(text, type=Answer))
            except msgspec.DecodeError:
                continue
    return found


@dataclass
class RemoteReach(ABC):
    """The common part of all ways to such hosts."""

    hosts: tuple[str, ...]
    _answers: dict[str, Answer] = field(default_factory=dict, init=False)

    shares_files = False
    interfaces = ()
    host_cpus = None
    rate_bytes_per_s = 1e9 / 8
    """Of a network that nobody has described; only for how long a plan takes, and so for when silence is a hang."""

    @abstractmethod
    def check(self) -> None:
        """Ask every host. Raises CannotJudge, naming those that do not answer as they must, each with its cause."""

    def fabric(self, _interfaces: Sequence[str]) -> None:  # noqa: B027 - None is the answer
        """No host tells the rates between it and the others."""

    def part(self, hosts: tuple[str, ...]) -> Self:
        """The way to some of the hosts, without the others."""
        return replace(self, hosts=hosts)

    def answers(self) -> dict[str, Answer]:
        """The answer of each host. Asks them if nobody has yet; raises as `check`."""
        if not self._answers:
            self.check()
        return self._answers

    @property
    def shares_cpus(self) -> bool:
        """Whether two of the names are one machine, by their boot ids. Asks the hosts if needed; raises as `check`."""
        answers = self.answers()
        return len({answer.boot for answer in answers.values()}) < len(answers)

    def around(self, argv: Sequence[str]) -> list[str]:
        """The command line itself: it runs here."""
        return list(argv)

    @abstractmethod
    def addresses(self) -> tuple[str, ...]:
        """Our own addresses, as the hosts see them."""

    def address(self) -> str:
        """The first of our addresses."""
        return self.addresses()[0]

"""Hosts that are separate machines, reached by ssh or Slurm. Each is probed before ranks are started on it.

A host answers with its railwright version, its boot id, its addresses, and our address as it sees it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import msgspec

from railwright import __version__
from railwright.errors import UsageError
from railwright.installation import PYTHON

if TYPE_CHECKING:
    from typing import Self  # there since Python 3.11

_MARK = "railwright:"
_PROGRAM = (
    "import json, os, pathlib, railwright; "
    "from railwright.benchmarks.sockets.addresses import list_addresses; "
    "boot = pathlib.Path('/proc/sys/kernel/random/boot_id').read_text().strip(); "
    "seen = (os.environ.get('SLURM_LAUNCH_NODE_IPADDR') or os.environ.get('SSH_CONNECTION', '')).split()[:3:2]; "
    f"print('{_MARK}' + json.dumps(dict(version=railwright.__version__, boot=boot, "
    "host=os.environ.get('SLURMD_NODENAME', ''), seen=seen, has=list(list_addresses())[:512])))"
)
PROBE_COMMAND = (*PYTHON, "-c", _PROGRAM)
"""The program that runs on a host and prints its answer."""


class Answer(msgspec.Struct, frozen=True):
    """The answer of a host."""

    version: str
    boot: str
    """The kernel's boot id, which is random and new at each boot."""
    host: str
    """The host's Slurm node name. Empty if the host was reached by ssh."""
    seen: tuple[str, ...]
    """Our address as the host sees it. With ssh, the address at which the host was reached follows."""
    has: tuple[tuple[str, str], ...]
    """The host's interfaces with their addresses."""

    def trouble(self) -> str:
        """Return the reason why no rank can be started on the host, or an empty string."""
        if self.version != __version__:
            return f"railwright must be {__version__}, got {self.version[:40]}"
        return ""

    def find_address(self, host: str, interfaces: Sequence[str]) -> str:
        """Return the host's first address on the first of the interfaces. Raises UsageError if there is none."""
        found = [address for name, address in self.has if name == interfaces[0]]
        if not found:
            names = ", ".join(dict.fromkeys(name for name, _ in self.has if name != "lo"))
            raise UsageError(f"{host} has no address on {interfaces[0]}", hint=f"its interfaces: {names or 'none'}")
        return found[0]


def parse_answers(lines: Iterable[str]) -> list[Answer]:
    """Extract the answers from lines of output. Other lines are ignored."""
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
    """The base class of reaches to separate machines."""

    hosts: tuple[str, ...]
    _answers: dict[str, Answer] = field(default_factory=dict, init=False)

    shares_files = False
    interfaces = ()
    host_cpus = None
    rate_bytes_per_s = 1e9 / 8
    """The assumed rate of an unknown network. Plans estimate their duration by it, and how long silence may last."""

    @abstractmethod
    def check(self) -> None:
        """Probe every host. Raises CannotJudge, which names each host without a valid answer, with the cause."""

    def fabric(self, _interfaces: Sequence[str]) -> None:  # noqa: B027 - None is the answer
        """Return None: the rates between separate machines are unknown."""

    def part(self, hosts: tuple[str, ...]) -> Self:
        """Return a reach of these hosts only."""
        return replace(self, hosts=hosts)

    def answers(self) -> dict[str, Answer]:
        """Return the answer of each host. Probes the hosts on the first call. Raises as `check`."""
        if not self._answers:
            self.check()
        return self._answers

    @property
    def shares_cpus(self) -> bool:
        """Whether two of the names are the same machine, by boot id. Probes the hosts if needed. Raises as `check`."""
        answers = self.answers()
        return len({answer.boot for answer in answers.values()}) < len(answers)

    def wrap_command(self, argv: Sequence[str]) -> list[str]:
        """Return the command line unchanged, since it runs on this machine."""
        return list(argv)

    @abstractmethod
    def addresses(self) -> tuple[str, ...]:
        """Return our own addresses as the hosts see them. Raises as `check`."""

    def address(self) -> str:
        """Return the first of our addresses."""
        return self.addresses()[0]

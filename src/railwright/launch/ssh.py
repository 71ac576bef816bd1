"""Hosts that are reached by plain ssh, with keys and no questions, as MPI needs it anyway.

Before each launch every host is asked, side by side, for its railwright: that ssh lets us in, that Python and
railwright are at the same place there, at which address the host sees us (SSH_CONNECTION), which is where its ranks
will stream to, and whether it is a machine of its own.
"""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from railwright import __version__
from railwright.errors import CannotJudge, UsageError
from railwright.process import Finished, run

_SLOW_SIDE_BYTES_PER_S = 1e9 / 8
"""Of a network that nobody has described; only for how long a plan takes, and so for when silence is a hang."""
_CONNECT_S = 5
_WITHIN_S = 20.0
_ASKED_AT_ONCE = 16
_SSH_FAILED = 255  # ssh's own status where it could not connect; any other is the remote program's
_MARK = "railwright:"
_ASK = (
    "import os, pathlib, railwright; "
    "from railwright.benchmarks.sockets.addresses import addresses_of_host; "
    "boot = pathlib.Path('/proc/sys/kernel/random/boot_id').read_text().strip(); "
    f"print('{_MARK}', railwright.__version__, boot, *os.environ.get('SSH_CONNECTION', '').split(' ')[:3:2], "
    "*('='.join(pair) for pair in addresses_of_host()))"
)


class _Answer(NamedTuple):
    """The answer of a host."""

    boot: str
    """Random, of the kernel's start."""
    we_are: str
    """Our address, as it sees it."""
    it_is: str
    """Its address, at which it was reached."""
    has: tuple[tuple[str, str], ...]
    """Its interfaces and their addresses."""


@dataclass
class SshReach:
    """Raises UsageError where there is no ssh, or no such configuration."""

    hosts: tuple[str, ...]
    config: str | None = None
    """A file for `ssh -F`; None: the user's own."""
    _answers: tuple[_Answer, ...] = field(default=(), init=False)

    name = "ssh"
    shares_files = False
    interfaces: tuple[str, ...] = field(default=(), init=False)
    rate_bytes_per_s: float | None = field(default=_SLOW_SIDE_BYTES_PER_S, init=False)

    def __post_init__(self) -> None:
        found = shutil.which("ssh")
        if found is None:
            raise UsageError("ssh is not installed", hint="apt-get install openssh-client")
        self._ssh = found
        if self.config is not None and not os.access(self.config, os.R_OK):
            raise UsageError(f"{self.config[:200]} cannot be read", hint="--ssh-config takes a file like ~/.ssh/config")

    @property
    def shares_cpus(self) -> bool:
        """Whether two of the names are one machine, by their boot ids. Asks the hosts if needed; raises as `check`."""
        if not self._answers:
            self.check()
        return len({answer.boot for answer in self._answers}) < len(self.hosts)

    def around(self, argv: Sequence[str]) -> list[str]:
        """The command line itself: it runs here."""
        return list(argv)

    def agent(self, scratch: Path | None = None) -> list[str]:
        """ssh, which never asks and gives up in time; also once the other side is gone."""
        del scratch
        options = [
            *("BatchMode=yes", f"ConnectTimeout={_CONNECT_S}", "ConnectionAttempts=1"),
            *("ServerAliveInterval=5", "ServerAliveCountMax=3"),
        ]
        config = ["-F", str(Path(self.config).absolute())] if self.config is not None else []
        return [self._ssh, *config, *(word for option in options for word in ("-o", option))]

    def address(self) -> str:
        """The first address at which a host sees us."""
        return self.addresses()[0]

    def addresses(self) -> tuple[str, ...]:
        """All addresses at which hosts see us, each once."""
        return tuple(dict.fromkeys(answer.we_are for answer in self._answers))

    def addresses_on(self, interfaces: Sequence[str]) -> tuple[str, ...]:
        """The address of each host on the first of some interfaces; without any, the one at which ssh reached it.

        Raises UsageError for a host that has none there. Call `check` first.
        """
        if not interfaces:
            return tuple(answer.it_is for answer in self._answers)
        found = []
        for host, answer in zip(self.hosts, self._answers, strict=True):
            there = [address for name, address in answer.has if name == interfaces[0]]
            if not there:
                names = ", ".join(dict.fromkeys(name for name, _ in answer.has if name != "lo"))
                raise UsageError(f"{host} has no address on {interfaces[0]}", hint=f"it has {names or 'none'}")
            found.append(there[0])
        return tuple(found)

    def check(self) -> None:
        """Ask every host. Raises CannotJudge, naming those that do not answer as they must, each with its cause."""
        with ThreadPoolExecutor(min(_ASKED_AT_ONCE, len(self.hosts))) as executor:
            answers = list(executor.map(self._ask, self.hosts))
        troubles = [f"{host}: {said}" for host, said in zip(self.hosts, answers, strict=True) if isinstance(said, str)]
        if troubles:
            hint = f"try: {shlex.join([*self.agent()[:1], *self.agent()[1:3], troubles[0].partition(': ')[0], 'true'])}"
            raise CannotJudge("; ".join(troubles), hint=hint)
        self._answers = tuple(answer for answer in answers if isinstance(answer, _Answer))

    def _ask(self, host: str) -> _Answer | str:
        """The answer of a host, or the reason why there is none."""
        # ssh gives one line to the other side's shell, so its words are quoted for that.
        line = shlex.join([sys.executable, "-P", "-c", _ASK])
        finished = run([*self.agent(), host, line], timeout_s=_WITHIN_S)
        answer = next((said.split() for said in finished.output if said.startswith(_MARK)), None)
        if answer is None or finished.returncode != 0:
            return _trouble(finished)
        if answer[1] != __version__:
            return f"it has railwright {answer[1][:40]}, and here is {__version__}"
        if len(answer) < 5:
            return "its sshd does not say where it sees us (SSH_CONNECTION)"
        has = tuple((name, address) for name, _, address in (word.partition("=") for word in answer[5:]))
        return _Answer(boot=answer[2], we_are=answer[3], it_is=answer[4], has=has)


def _trouble(finished: Finished) -> str:
    said = next((line.strip() for line in reversed(finished.output) if line.strip()), "")
    if finished.timed_out:
        return f"no answer within {_WITHIN_S:.0f} s"
    if finished.returncode == _SSH_FAILED:
        return said or "ssh failed without a word"
    return f"{sys.executable} with railwright is not there ({said[:200] or finished.describe()})"

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

from railwright.errors import CannotJudge, UsageError
from railwright.launch.asked import ASKING, Answer, answers_in
from railwright.process import Finished, run

_SLOW_SIDE_BYTES_PER_S = 1e9 / 8
"""Of a network that nobody has described; only for how long a plan takes, and so for when silence is a hang."""
_CONNECT_S = 5
_WITHIN_S = 20.0
_ASKED_AT_ONCE = 16
_SSH_FAILED = 255  # ssh's own status where it could not connect; any other is the remote program's


@dataclass
class SshReach:
    """Raises UsageError where there is no ssh, or no such configuration."""

    hosts: tuple[str, ...]
    config: str | None = None
    """A file for `ssh -F`; None: the user's own."""
    _answers: tuple[Answer, ...] = field(default=(), init=False)

    name = "ssh"
    shares_files = False
    interfaces: tuple[str, ...] = field(default=(), init=False)
    rate_bytes_per_s: float | None = field(default=_SLOW_SIDE_BYTES_PER_S, init=False)
    host_cpus: float | None = field(default=None, init=False)

    def part(self, hosts: tuple[str, ...]) -> SshReach:
        """Some of these hosts, reached without the others."""
        return SshReach(hosts, self.config)

    def fabric(self, _interfaces: Sequence[str]) -> None:
        """No host tells the rates between it and the others."""

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
        return len({answer.boot for answer in self._answers}) < len(self._answers)

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
        return tuple(dict.fromkeys(answer.seen[0] for answer in self._answers))

    def addresses_on(self, interfaces: Sequence[str]) -> tuple[str, ...]:
        """The address of each host on the first of some interfaces; without any, the one at which ssh reached it.

        Raises UsageError for a host that has none there. Call `check` first.
        """
        if not interfaces:
            return tuple(answer.seen[1] for answer in self._answers)
        pairs = zip(self.hosts, self._answers, strict=True)
        return tuple(answer.address_on(host, interfaces) for host, answer in pairs)

    def check(self) -> None:
        """Ask every host. Raises CannotJudge, naming those that do not answer as they must, each with its cause."""
        with ThreadPoolExecutor(min(_ASKED_AT_ONCE, len(self.hosts))) as executor:
            answers = list(executor.map(self._ask, self.hosts))
        troubles = [f"{host}: {said}" for host, said in zip(self.hosts, answers, strict=True) if isinstance(said, str)]
        self._answers = tuple(answer for answer in answers if isinstance(answer, Answer))
        if troubles:
            hint = f"try: {shlex.join([*self.agent()[:1], *self.agent()[1:3], troubles[0].partition(': ')[0], 'true'])}"
            raise CannotJudge("; ".join(troubles), hint=hint)

    def _ask(self, host: str) -> Answer | str:
        """The answer of a host, or the reason why there is none."""
        # ssh gives one line to the other side's shell, so its words are quoted for that.
        finished = run([*self.agent(), host, shlex.join(ASKING)], timeout_s=_WITHIN_S)
        answer = next(iter(answers_in(finished.output)), None)
        if answer is None or finished.returncode != 0:
            return _trouble(finished)
        if not answer.trouble() and len(answer.seen) < 2:
            return "its sshd does not say where it sees us (SSH_CONNECTION)"
        return answer.trouble() or answer


def _trouble(finished: Finished) -> str:
    said = next((line.strip() for line in reversed(finished.output) if line.strip()), "")
    if finished.timed_out:
        return f"no answer within {_WITHIN_S:.0f} s"
    if finished.returncode == _SSH_FAILED:
        return said or "ssh failed without a word"
    return f"{sys.executable} with railwright is not there ({said[:200] or finished.describe()})"

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
from dataclasses import dataclass
from pathlib import Path

from railwright.errors import CannotJudge, UsageError
from railwright.launch.asked import PROBE_COMMAND, Answer, RemoteReach, parse_answers
from railwright.process import Finished, run

_CONNECT_S = 5
_WITHIN_S = 20.0
_ASKED_AT_ONCE = 16
_SSH_FAILED = 255  # ssh's own status where it could not connect; any other is the remote program's


@dataclass
class SshReach(RemoteReach):
    """Raises UsageError where there is no ssh, or no such configuration."""

    config: str | None = None
    """A file for `ssh -F`; None: the user's own."""

    name = "ssh"

    def __post_init__(self) -> None:
        found = shutil.which("ssh")
        if found is None:
            raise UsageError("ssh is not installed", hint="apt-get install openssh-client")
        self._ssh = found
        if self.config is not None and not os.access(self.config, os.R_OK):
            raise UsageError(f"{self.config[:200]} cannot be read", hint="--ssh-config takes a file like ~/.ssh/config")

    def agent(self, _scratch: Path | None = None) -> list[str]:
        """ssh, which never asks and gives up in time; also once the other side is gone."""
        options = [
            *("BatchMode=yes", f"ConnectTimeout={_CONNECT_S}", "ConnectionAttempts=1"),
            *("ServerAliveInterval=5", "ServerAliveCountMax=3"),
        ]
        config = ["-F", str(Path(self.config).absolute())] if self.config is not None else []
        return [self._ssh, *config, *(word for option in options for word in ("-o", option))]

    def addresses(self) -> tuple[str, ...]:
        """All addresses at which hosts see us, each once."""
        return tuple(dict.fromkeys(answer.seen[0] for answer in self.answers().values()))

    def addresses_on(self, interfaces: Sequence[str]) -> tuple[str, ...]:
        """The address of each host on the first of some interfaces; without any, the one at which ssh reached it.

        Raises UsageError for a host that has none there.
        """
        answers = self.answers().items()
        return tuple(answer.address_on(host, interfaces) if interfaces else answer.seen[1] for host, answer in answers)

    def check(self) -> None:
        """Ask every host. Raises CannotJudge, naming those that do not answer as they must, each with its cause."""
        with ThreadPoolExecutor(min(_ASKED_AT_ONCE, len(self.hosts))) as executor:
            answers = dict(zip(self.hosts, executor.map(self._ask, self.hosts), strict=True))
        troubles = [f"{host}: {said}" for host, said in answers.items() if isinstance(said, str)]
        self._answers = {host: said for host, said in answers.items() if isinstance(said, Answer)}
        if troubles:
            hint = f"try: {shlex.join([*self.agent()[:1], *self.agent()[1:3], troubles[0].partition(': ')[0], 'true'])}"
            raise CannotJudge("; ".join(troubles), hint=hint)

    def _ask(self, host: str) -> Answer | str:
        """The answer of a host, or the reason why there is none."""
        # ssh gives one line to the other side's shell, so its words are quoted for that.
        finished = run([*self.agent(), host, shlex.join(PROBE_COMMAND)], timeout_s=_WITHIN_S)
        answer = next(iter(parse_answers(finished.output)), None)
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

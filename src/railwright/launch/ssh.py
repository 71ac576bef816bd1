"""Hosts reached by ssh with keys and without prompts, as MPI requires anyway.

Before each launch all hosts are probed in parallel. The probe checks that ssh can log in and that Python and railwright
have the same paths there. It returns our address as the host sees it (SSH_CONNECTION), to which its ranks will connect,
and the boot id, which is the same for two names of one machine.
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

from railwright.errors import CannotJudge, UnreachableHosts, UsageError
from railwright.launch.remote import PROBE_COMMAND, Answer, RemoteReach, parse_answers
from railwright.process import ChildResult, query
from railwright.system_packages import install_command

_CONNECT_S = 5
_TIMEOUT_S = 20.0
_ASKED_AT_ONCE = 16
_SSH_FAILED = 255  # ssh's own status if it could not connect; any other is that of the remote program


@dataclass
class SshReach(RemoteReach):
    """A reach by ssh. Raises UsageError if ssh is not installed or the configuration cannot be read."""

    config: str | None = None
    """A file for `ssh -F`. None means the user's own configuration."""
    is_asked: bool = True
    """Whether to probe the hosts. A plan may be of hosts that do not exist yet, and assumes separate machines."""
    rate_bytes_per_s: float = RemoteReach.rate_bytes_per_s

    name = "ssh"

    def __post_init__(self) -> None:
        found = shutil.which("ssh")
        if found is None:
            raise UsageError("ssh is not installed", hint=install_command("openssh-client"))
        self._ssh = found
        if self.config is not None and not os.access(self.config, os.R_OK):
            raise UsageError(f"{self.config[:200]} cannot be read", hint="give --ssh-config a file like ~/.ssh/config")

    @property
    def shares_cpus(self) -> bool:
        """Whether two of the names are the same machine. Probes the hosts if they may be asked. Raises as `check`."""
        return self.is_asked and super().shares_cpus

    def agent(self, _scratch: Path | None = None) -> list[str]:
        """Return the ssh command line, which never prompts, and gives up in time on a host that does not answer."""
        options = [
            *("BatchMode=yes", f"ConnectTimeout={_CONNECT_S}", "ConnectionAttempts=1"),
            *("ServerAliveInterval=5", "ServerAliveCountMax=3"),
            "ClearAllForwardings=yes",  # those of the user's configuration hold ports that a second session lacks
        ]
        config = ["-F", str(Path(self.config).absolute())] if self.config is not None else []
        return [self._ssh, *config, *(word for option in options for word in ("-o", option))]

    def addresses(self) -> tuple[str, ...]:
        """Return all addresses at which hosts see us, without duplicates. Raises as `check`."""
        return tuple(dict.fromkeys(answer.seen[0] for answer in self.answers().values()))

    def find_addresses(self, interfaces: Sequence[str]) -> tuple[str, ...]:
        """Return each host's address on the first of the interfaces. Without interfaces, that at which ssh reached it.

        Raises UsageError for a host that has no address there.
        """
        answers = self.answers().items()
        return tuple(
            answer.find_address(host, interfaces) if interfaces else answer.seen[1] for host, answer in answers
        )

    def check(self) -> None:
        """Probe every host. Raises UnreachableHosts with each host that gives no valid answer."""
        with ThreadPoolExecutor(min(_ASKED_AT_ONCE, len(self.hosts))) as executor:
            answers = dict(zip(self.hosts, executor.map(self._ask, self.hosts), strict=True))
        troubles = {host: f"{host}: {answer}" for host, answer in answers.items() if isinstance(answer, str)}
        self._answers = {host: answer for host, answer in answers.items() if isinstance(answer, Answer)}
        if troubles:
            hint = f"try: {shlex.join([*self.agent()[:3], next(iter(troubles)), 'true'])}"
            raise UnreachableHosts(troubles, hint=hint)

    def _ask(self, host: str) -> Answer | str:
        """Return the answer of a host, or the reason why there is none."""
        # ssh passes a single line to the remote shell, so the command is quoted.
        try:
            finished = query([*self.agent(), host, shlex.join(PROBE_COMMAND)], timeout_s=_TIMEOUT_S)
        except CannotJudge as error:
            return error.message
        answer = next(iter(parse_answers(finished.output)), None)
        if answer is None or finished.returncode != 0:
            return _explain_failure(finished)
        if not answer.trouble() and len(answer.seen) < 2:
            return "its sshd does not set SSH_CONNECTION"
        return answer.trouble() or answer


def _explain_failure(finished: ChildResult) -> str:
    message = next((line.strip() for line in reversed(finished.output) if line.strip()), "")
    if finished.timed_out:
        return f"no answer within {_TIMEOUT_S:.0f} s"
    if finished.returncode == _SSH_FAILED:
        return message or "ssh failed without a message"
    return f"{sys.executable} cannot import railwright ({message[:200] or finished.describe()})"

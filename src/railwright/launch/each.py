"""A launcher without MPI: one rank on each of several hosts, started in parallel by ssh or by a lab's agent.

MPI's launcher needs the network between the hosts, and one dead host ends the whole launch. Here the ranks talk only
to the parent, so that a faulty network can be examined.

    python -m railwright.launch.each FILE

starts the ranks and exits after the last one. If a rank fails, its host is printed and the other ranks are ended.
"""

from __future__ import annotations

import contextlib
import shlex
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import msgspec

from railwright.installation import PYTHON
from railwright.launch.doors import Endpoint
from railwright.launch.hosts import Reach
from railwright.launch.local import RANK_PROGRAM, LocalLauncher, open_endpoint
from railwright.launch.rank import FROM_INPUT, RANK_OF_EACH
from railwright.process import Child, describe_status, die_with_parent
from railwright.writing import write_file

_FILE = "each.json"
_PASSED_PREFIXES = ("RAILWRIGHT_", "PYTHON")
_TICK_S = 0.02
_LAST_LINES = 3


class _Start(msgspec.Struct, frozen=True):
    """The start of one rank: its host, the agent's command line, and the rank's environment."""

    host: str
    argv: tuple[str, ...]
    environment: dict[str, str]


@dataclass
class EachLauncher(LocalLauncher):
    """Starts rank n on host n. A rank ends with its parent on this machine, and with its stream on other hosts."""

    reach: Reach
    hosts: tuple[str, ...]

    def __post_init__(self) -> None:
        self.name = self.reach.name

    def check(self) -> None:
        """Probe hosts that are separate machines. Raises CannotJudge, which names each unreachable host with the cause.

        A namespace of this machine can always be entered, even if its network is broken.
        """
        if not self.reach.shares_files:
            self.reach.check()

    def door(self, scratch: Path, job: bytes) -> Endpoint:
        """Open the socket that the ranks connect to."""
        return open_endpoint(self.reach, scratch, job)

    def command(self, ranks: int, scratch: Path, environment: Mapping[str, str]) -> list[str]:
        """Return the command line that starts one rank on each host."""
        if ranks != len(self.hosts):
            raise ValueError(f"ranks must be {len(self.hosts)}, got {ranks}")
        agent = self.reach.agent(scratch)
        line = "exec " + shlex.join([*RANK_PROGRAM, FROM_INPUT])
        passed = {name: value for name, value in environment.items() if name.startswith(_PASSED_PREFIXES)}
        starts = [
            _Start(host, (*agent, host, line), passed | {RANK_OF_EACH: str(number)})
            for number, host in enumerate(self.hosts)
        ]
        file = scratch / _FILE
        write_file(file, msgspec.json.encode(starts))
        return [*PYTHON, "-m", "railwright.launch.each", str(file)]


def main() -> None:
    """Start all ranks. If one fails, print its host and exit with status 1."""
    die_with_parent()
    starts = msgspec.json.decode(Path(sys.argv[1]).read_bytes(), type=list[_Start])
    with contextlib.ExitStack() as stack:
        running = {
            start.host: stack.enter_context(Child(start.argv, given=msgspec.json.encode(start.environment)))
            for start in starts
        }
        while running:
            for host, child in list(running.items()):
                status = child.poll()
                if status is None:
                    continue
                if status:
                    message = "; ".join(child.wait(1.0).output[-_LAST_LINES:])
                    sys.stdout.write(f"{host}: {describe_status(status)} {message}\n")
                    sys.exit(1)
                del running[host]
            time.sleep(_TICK_S)


if __name__ == "__main__":
    main()

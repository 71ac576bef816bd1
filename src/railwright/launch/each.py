"""One rank on each of several hosts, started side by side by the hosts' own agent: ssh, or a lab's. There is no MPI.

MPI's launcher needs the network between the hosts, and one host that is gone takes the whole launch with it. Here the
ranks hear of nobody but the parent, so that a network with faults can be looked at.

    python -m railwright.launch.each FILE

starts them and stays until all have ended. The first that fails is named, and ends the others.
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

from railwright.launch.doors import Endpoint
from railwright.launch.hosts import Reach
from railwright.launch.local import RANK_PROGRAM, LocalLauncher, open_endpoint
from railwright.launch.rank import FROM_INPUT, RANK_OF_EACH
from railwright.process import Child, describe_status, die_with_parent

_FILE = "each.json"
_PASSED_PREFIXES = ("RAILWRIGHT_", "PYTHON")
_TICK_S = 0.02
_LAST_LINES = 3


class _Start(msgspec.Struct, frozen=True):
    """One rank: its host, the agent's command line, and the environment that the rank reads."""

    host: str
    argv: tuple[str, ...]
    environment: dict[str, str]


@dataclass
class EachLauncher(LocalLauncher):
    """Starts rank n on the n-th host of a reach. Elsewhere it ends with its stream, on this machine with its parent."""

    reach: Reach
    hosts: tuple[str, ...]

    def __post_init__(self) -> None:
        self.name = self.reach.name

    def check(self) -> None:
        """Ask the hosts where only that tells whether they can be reached. Raises CannotJudge, naming host and cause.

        A namespace of this machine can always be entered, whatever is wrong with its network.
        """
        if not self.reach.shares_files:
            self.reach.check()

    def door(self, scratch: Path, job: bytes) -> Endpoint:
        """Where the ranks stream to."""
        return open_endpoint(self.reach, scratch, job)

    def command(self, ranks: int, scratch: Path, environment: Mapping[str, str]) -> list[str]:
        """The command line that starts one rank on each host."""
        if ranks != len(self.hosts):
            raise ValueError(f"{len(self.hosts)} ranks are placed, not {ranks}")
        agent = self.reach.agent(scratch)
        line = "exec " + shlex.join([*RANK_PROGRAM, FROM_INPUT])
        passed = {name: value for name, value in environment.items() if name.startswith(_PASSED_PREFIXES)}
        starts = [
            _Start(host, (*agent, host, line), passed | {RANK_OF_EACH: str(number)})
            for number, host in enumerate(self.hosts)
        ]
        file = scratch / _FILE
        file.touch(0o600)
        file.write_bytes(msgspec.json.encode(starts))
        return [sys.executable, "-P", "-m", "railwright.launch.each", str(file)]


def main() -> None:
    """Start all ranks; exit status 1, and the name of the host, when one fails."""
    die_with_parent()
    starts = msgspec.json.decode(Path(sys.argv[1]).read_bytes(), type=list[_Start])
    with contextlib.ExitStack() as stack:
        going = {
            start.host: stack.enter_context(Child(start.argv, given=msgspec.json.encode(start.environment)))
            for start in starts
        }
        while going:
            for host, child in list(going.items()):
                status = child.poll()
                if status is None:
                    continue
                if status:
                    said = "; ".join(child.wait(1.0).output[-_LAST_LINES:])
                    sys.stdout.write(f"{host}: {describe_status(status)} {said}\n")
                    sys.exit(1)
                del going[host]
            time.sleep(_TICK_S)


if __name__ == "__main__":
    main()

"""The launcher for a single rank on this machine, without MPI. It is the base class of all launchers."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from railwright.installation import PYTHON
from railwright.launch.doors import Endpoint, open_local_endpoint, open_network_endpoint
from railwright.launch.hosts import Reach

RANK_PROGRAM = (*PYTHON, "-m", "railwright.launch.rank")
"""The command line of a rank. `-P` keeps Python files in the working directory from shadowing ours."""


class LocalLauncher:
    """Starts a benchmark of one rank as a child process."""

    name = "local"
    starts_ranks_as_tasks = False
    """True if the ranks are tasks of Slurm: srun then prints the number of a rank that ends."""

    @property
    def runs_on(self) -> str:
        """The host on which the launcher itself runs. Empty means this machine."""
        return ""

    def check(self) -> None:
        """Raise CannotJudge, with host and cause, if a host cannot be reached."""

    def door(self, _scratch: Path, _job: bytes) -> Endpoint:
        """Open the socket that the ranks connect to."""
        return open_local_endpoint()

    def command(self, ranks: int, _scratch: Path, _environment: Mapping[str, str]) -> list[str]:
        """Return the command line that starts `ranks` ranks with the environment."""
        if ranks != 1:
            raise ValueError(f"ranks must be 1 in the local launcher, got {ranks}")
        return list(RANK_PROGRAM)

    def environment(self, _scratch: Path) -> dict[str, str]:
        """Return additions to the ranks' environment."""
        return {}

    def translate(self, environment: Mapping[str, str]) -> dict[str, str]:
        """Return the whole environment of a launch in the words of the launcher's MPI."""
        return dict(environment)

    def clean_up(self, started: float) -> None:
        """Remove leftovers of ranks that died in a launch begun at `started` (epoch seconds)."""


def open_endpoint(reach: Reach, scratch: Path, job: bytes) -> Endpoint:
    """Open a socket file if the hosts see our files, or else a port."""
    return (
        open_local_endpoint(scratch / "stream") if reach.shares_files else open_network_endpoint(reach.addresses(), job)
    )

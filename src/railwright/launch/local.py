"""The way ranks are started: by itself one rank on this machine, without MPI; other launchers start more of them."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path

from railwright.launch.doors import Endpoint, open_local_endpoint, open_network_endpoint
from railwright.launch.hosts import Reach

RANK_PROGRAM = (sys.executable, "-P", "-m", "railwright.launch.rank")
"""With `-P`, or Python files of the folder in which somebody stands would be imported before ours."""


class LocalLauncher:
    """Starts a benchmark of one rank as a plain child."""

    name = "local"

    @property
    def runs_on(self) -> str:
        """The host on which the launcher itself runs and dies; empty: this one."""
        return ""

    def check(self) -> None:
        """Raises CannotJudge, with name and cause, for a host that cannot be reached."""

    def door(self, _scratch: Path, _job: bytes) -> Endpoint:
        """Where the ranks stream to."""
        return open_local_endpoint()

    def command(self, ranks: int, _scratch: Path, _environment: Mapping[str, str]) -> list[str]:
        """The command line that starts `ranks` ranks, which get that environment."""
        if ranks != 1:
            raise ValueError(f"the local launcher starts one rank, not {ranks}")
        return list(RANK_PROGRAM)

    def environment(self, _scratch: Path) -> dict[str, str]:
        """The additions to the ranks' environment."""
        return {}

    def clean_up(self, started: float) -> None:
        """Remove what ranks that died in a launch begun at `started` (epoch seconds) left behind."""


def open_endpoint(reach: Reach, scratch: Path, job: bytes) -> Endpoint:
    """A door at a file if the hosts see our files, else one at a port."""
    return (
        open_local_endpoint(scratch / "stream") if reach.shares_files else open_network_endpoint(reach.addresses(), job)
    )

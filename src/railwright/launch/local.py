"""One rank on this machine, without MPI."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path

from railwright.launch.doors import Door, LocalDoor

RANK_PROGRAM = (sys.executable, "-P", "-m", "railwright.launch.rank")
"""With `-P`, or Python files of the folder in which somebody stands would be imported before ours."""


class LocalLauncher:
    """Starts a benchmark of one rank as a plain child."""

    name = "local"
    runs_on = ""

    def check(self) -> None:
        """Do nothing: this host can be reached."""

    def door(self, scratch: Path, job: bytes) -> Door:
        """Where the rank streams to."""
        del scratch, job
        return LocalDoor()

    def command(self, ranks: int, scratch: Path, environment: Mapping[str, str]) -> list[str]:
        """The command line that starts `ranks` ranks: exactly one."""
        del scratch, environment
        if ranks != 1:
            raise ValueError(f"the local launcher starts one rank, not {ranks}")
        return list(RANK_PROGRAM)

    def environment(self, scratch: Path) -> dict[str, str]:
        """The additions to the ranks' environment: none."""
        del scratch
        return {}

    def clean_up(self, started: float) -> None:
        """Do nothing: a plain child leaves no files."""
        del started

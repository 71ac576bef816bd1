"""The launcher for `srun --mpi=pmix` and `srun --mpi=pmi2`, which starts ranks without `mpirun`."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from railwright.launch.hosts import Hosts
from railwright.launch.local import RANK_PROGRAM, LocalLauncher
from railwright.launch.mpi import MpiLauncher
from railwright.launch.mpi_hosts import HostsLauncher
from railwright.launch.slurm.allocation import STEP, SlurmReach
from railwright.writing import write_file

_PLACES_FILE = "places"


@dataclass
class SrunLauncher(HostsLauncher):
    """A `HostsLauncher` that uses srun with one of its MPI plugins."""

    plugin: str = ""

    name = "srun"
    runs_on = ""
    starts_ranks_as_tasks = True

    def command(self, ranks: int, scratch: Path, environment: Mapping[str, str]) -> list[str]:
        """Return the command line that starts `ranks` ranks in the order of the hosts, not in Slurm's."""
        del environment  # srun forwards its own environment
        if ranks != self.hosts.ranks:
            raise ValueError(f"ranks must be {self.hosts.ranks}, got {ranks}")
        write_file(self._places(scratch), "".join(f"{name}\n" * self.hosts.ranks_per_host for name in self.hosts.names))
        return [
            *STEP,
            f"--mpi={self.plugin}",
            f"--nodes={len(self.hosts.names)}",
            f"--ntasks={ranks}",
            "--distribution=arbitrary",
            "--overcommit",  # more ranks than allocated cores share them, as with mpirun
            "--kill-on-bad-exit=1",
            *RANK_PROGRAM,
        ]

    def environment(self, scratch: Path) -> dict[str, str]:
        """Return the environment as for mpirun, without mpirun's own variables, with the file that places ranks."""
        found = super().environment(scratch)
        mine = {name: value for name, value in found.items() if name not in ("TMPDIR", "HYDRA_LAUNCHER_EXTRA_ARGS")}
        if "TMPDIR" in os.environ:
            mine["TMPDIR"] = os.environ["TMPDIR"]
        return mine | {"SLURM_HOSTFILE": str(self._places(scratch))}

    @staticmethod
    def _places(scratch: Path) -> Path:
        """Return the file that lists the node of each rank, one per line."""
        return scratch / _PLACES_FILE


def choose_launcher(mpi: MpiLauncher, hosts: Hosts) -> LocalLauncher:
    """Choose the launcher for the hosts. Raises CannotJudge if the requested one cannot start ranks there."""
    if isinstance(hosts.reach, SlurmReach):
        plugin = hosts.reach.srun_plugin(mpi.flavour)
        if plugin:
            return SrunLauncher(mpi, hosts, plugin)
    return HostsLauncher(mpi, hosts)

"""The launcher for `mpirun` over several hosts. The reach supplies its remote agent: ssh, or a lab's own.

mpirun starts one daemon on each other host through the agent, and each daemon starts that host's ranks. mpirun gets a
list of the variables to pass to the ranks, because ssh does not forward them.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from railwright.errors import CannotJudge
from railwright.launch.doors import Endpoint
from railwright.launch.hosts import Hosts
from railwright.launch.local import RANK_PROGRAM, LocalLauncher, open_endpoint
from railwright.launch.mpi import MpiLauncher
from railwright.writing import write_file

_HOSTS_FILE = "hosts"
_PASSED_PREFIXES = ("RAILWRIGHT_", "MPI4PY_", "UCX_", "NIXL_", "NCCL_", "CUDA_", "FI_", "MPIR_", "MPICH_")
_SHARED_FILE_VARIABLES = ("TMPDIR", "HWLOC_XMLFILE")
_SCRATCH_VARIABLES = ("PRTE_MCA_prte_tmpdir_base", "OMPI_MCA_btl_sm_backing_directory")
_ONE_MACHINE_SETTINGS = {
    # UCX sees that all hosts are one machine, and would bypass the network.
    "UCX_TLS": "tcp,self",
    # Open MPI sees free cores on each host, and would let every rank poll for its whole time slice.
    "OMPI_MCA_mpi_yield_when_idle": "1",
}


@dataclass
class HostsLauncher(LocalLauncher):
    """Starts ranks on `hosts` with `mpi`. Raises CannotJudge for MPICH and an address with colons."""

    mpi: MpiLauncher
    hosts: Hosts

    name = "mpirun"

    def __post_init__(self) -> None:
        if self.mpi.flavour == "mpich":
            found = [address for address in (self.hosts.reach.address(), *self.hosts.names) if ":" in address]
            if found:
                reason = f"address must not contain colons for MPICH's launcher, got {found[0]}"
                raise CannotJudge(reason, hint="use Open MPI's mpirun in a network with IPv6 only")

    @property
    def runs_on(self) -> str:
        """The first host if mpirun is started inside it, as in a namespace. Empty if mpirun runs on this machine."""
        return self.hosts.names[0] if self.hosts.reach.wrap_command(["true"]) != ["true"] else ""

    def check(self) -> None:
        """Raise CannotJudge, with host and cause, if a host cannot be reached."""
        self.hosts.reach.check()

    def door(self, scratch: Path, job: bytes) -> Endpoint:
        """Open the socket that the ranks connect to."""
        return open_endpoint(self.hosts.reach, scratch, job)

    def command(self, ranks: int, scratch: Path, environment: Mapping[str, str]) -> list[str]:
        """Return the command line that starts `ranks` ranks, evenly spread, in the order of the hosts."""
        if ranks != self.hosts.ranks:
            raise ValueError(f"ranks must be {self.hosts.ranks}, got {ranks}")
        passed = sorted(name for name in environment if self._is_passed(name))
        choose = self._openmpi_options if self.mpi.flavour == "openmpi" else self._mpich_options
        options = choose(scratch, passed)
        return self.hosts.reach.wrap_command([str(self.mpi.mpirun), "-n", str(ranks), *options, *RANK_PROGRAM])

    def _is_passed(self, name: str) -> bool:
        return name.startswith(_PASSED_PREFIXES) or (self.hosts.reach.shares_files and name in _SHARED_FILE_VARIABLES)

    def _openmpi_options(self, scratch: Path, passed: list[str]) -> list[str]:
        file = scratch / _HOSTS_FILE  # not --host, which splits an IPv6 address at its colons
        lines = (f"{name} slots={self.hosts.ranks_per_host}\n" for name in self.hosts.names)
        write_file(file, "".join(lines))
        agent = " ".join(self._agent(scratch))
        options = ["--hostfile", str(file), "--bind-to", "none", "--map-by", "slot", "--leave-session-attached"]
        option, plm = ("--mca", "rsh") if self.mpi.starts_by_orte else ("--prtemca", "ssh")
        options += [option, "plm", plm, option, f"plm_{plm}_agent", agent]
        # Only this host has the keys. With a tree, daemons of other hosts would have to start further daemons.
        options += [option, f"plm_{plm}_no_tree_spawn", "1"]
        if not self.hosts.reach.shares_files:
            options += ["--wdir", "/"]
        return options + [word for name in passed for word in ("-x", name)]

    def _mpich_options(self, scratch: Path, passed: list[str]) -> list[str]:
        options = ["-launcher", "rsh", "-launcher-exec", self._agent(scratch)[0]]
        options += ["-localhost", self.hosts.reach.address()]
        options += ["-hosts", ",".join(self.hosts.names), "-ppn", str(self.hosts.ranks_per_host)]
        if not self.hosts.reach.shares_files:
            options += ["-wdir", "/"]
        return [*options, "-genvlist", ",".join(passed)]

    def _agent(self, scratch: Path) -> list[str]:
        words = self.hosts.reach.agent(scratch)
        for word in words:
            if any(character.isspace() or character == ":" for character in word):
                reason = f"mpirun's agent must not contain spaces or colons, got {word[:200]!r}"
                hint = "move railwright or ssh's configuration to a path without them"
                raise CannotJudge(reason, hint=hint)
        return words

    def environment(self, scratch: Path) -> dict[str, str]:
        """Return the environment of `mpi`, with the variables that select interfaces and adapt MPI to the reach."""
        found = self.mpi.environment(scratch) | _interface_variables(self.hosts.used_interfaces)
        if self.hosts.reach.shares_cpus:
            found |= _keep_user_settings(_ONE_MACHINE_SETTINGS)
        if not self.hosts.reach.shares_files:  # mpirun forwards these to hosts that have no such folder
            found = {name: value for name, value in found.items() if name not in _SCRATCH_VARIABLES}
        if self.mpi.flavour == "mpich":
            found["HYDRA_LAUNCHER_EXTRA_ARGS"] = " ".join(self._agent(scratch)[1:])
        return found

    def translate(self, environment: Mapping[str, str]) -> dict[str, str]:
        """Return the environment in the words of `mpi`."""
        return self.mpi.translate(environment)

    def clean_up(self, started: float) -> None:
        """Clean up on this host. On other hosts, their next launch removes leftovers."""
        self.mpi.clean_up(started)


def _interface_variables(names: tuple[str, ...]) -> dict[str, str]:
    """Return the variables that select interfaces in each library, or exclude the loopback without `names`.

    A user's own settings are kept.
    """
    if not names:
        # A host may have routed addresses on its loopback interface, which Open MPI would try to use.
        wanted = {"OMPI_MCA_btl_tcp_if_exclude": "lo"}
        return {} if "OMPI_MCA_btl_tcp_if_include" in os.environ else _keep_user_settings(wanted)
    return _keep_user_settings({
        "OMPI_MCA_btl_tcp_if_include": ",".join(names),
        "UCX_NET_DEVICES": ",".join(names),
        "FI_TCP_IFACE": names[0],  # it accepts a single interface
        "NCCL_SOCKET_IFNAME": f"={','.join(names)}",  # exact names, not prefixes
    })  # fmt: skip


def _keep_user_settings(wanted: dict[str, str]) -> dict[str, str]:
    return {name: os.environ.get(name, value) for name, value in wanted.items()}

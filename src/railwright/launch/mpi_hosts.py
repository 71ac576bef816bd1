"""Ranks on several hosts under `mpirun`, whose remote agent is that of the hosts' reach: ssh, or a lab's own.

mpirun starts one daemon on each other host by the agent, and each daemon that host's ranks. What a rank's environment
must hold is named to mpirun, since ssh passes nothing on.
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

_HOSTS_FILE = "hosts"
_PASSED_PREFIXES = ("RAILWRIGHT_", "MPI4PY_", "UCX_", "NIXL_", "NCCL_", "CUDA_", "FI_", "MPIR_", "MPICH_")
_OF_SHARED_FILES = ("TMPDIR", "HWLOC_XMLFILE")
_IN_SCRATCH = ("PRTE_MCA_prte_tmpdir_base", "OMPI_MCA_btl_sm_backing_directory")
_OF_ONE_MACHINE = {
    # UCX sees that all hosts are one machine, and would pass the network by.
    "UCX_TLS": "tcp,self",
    # Open MPI sees free cores on each host, and would let every rank poll until its turn ends.
    "OMPI_MCA_mpi_yield_when_idle": "1",
}


@dataclass
class HostsLauncher(LocalLauncher):
    """`mpi` over `hosts`. Raises CannotJudge where this mpirun cannot reach them."""

    mpi: MpiLauncher
    hosts: Hosts

    name = "mpirun"

    def __post_init__(self) -> None:
        if self.mpi.flavour == "mpich":
            seen = [address for address in (self.hosts.reach.address(), *self.hosts.names) if ":" in address]
            if seen:
                reason = f"MPICH's launcher takes addresses apart at their colons, and there is {seen[0]}"
                raise CannotJudge(reason, hint="use Open MPI's mpirun where there is IPv6 only")

    @property
    def runs_on(self) -> str:
        """The first host where mpirun is started inside it, as in a namespace; empty: it runs here."""
        return self.hosts.names[0] if self.hosts.reach.around(["true"]) != ["true"] else ""

    def check(self) -> None:
        """Raises CannotJudge, naming host and cause, where one cannot be reached."""
        self.hosts.reach.check()

    def door(self, scratch: Path, job: bytes) -> Endpoint:
        """Where the ranks stream to."""
        return open_endpoint(self.hosts.reach, scratch, job)

    def command(self, ranks: int, scratch: Path, environment: Mapping[str, str]) -> list[str]:
        """The command line that starts `ranks` ranks, as many on each host, the first host's first."""
        if ranks != self.hosts.ranks:
            raise ValueError(f"{self.hosts.ranks} ranks are placed, not {ranks}")
        passed = sorted(name for name in environment if self._is_passed(name))
        choose = self._openmpi if self.mpi.flavour == "openmpi" else self._mpich
        options = choose(scratch, passed)
        return self.hosts.reach.around([str(self.mpi.mpirun), "-n", str(ranks), *options, *RANK_PROGRAM])

    def _is_passed(self, name: str) -> bool:
        return name.startswith(_PASSED_PREFIXES) or (self.hosts.reach.shares_files and name in _OF_SHARED_FILES)

    def _openmpi(self, scratch: Path, passed: list[str]) -> list[str]:
        file = scratch / _HOSTS_FILE  # and not --host, which takes an IPv6 address apart at its colons
        lines = (f"{name} slots={self.hosts.ranks_per_host}\n" for name in self.hosts.names)
        file.write_text("".join(lines), encoding="ascii")
        agent = " ".join(self._agent(scratch))
        options = ["--hostfile", str(file), "--bind-to", "none", "--map-by", "slot", "--leave-session-attached"]
        options += ["--prtemca", "plm", "ssh", "--prtemca", "plm_ssh_agent", agent]
        # Only this host has the keys, and the other way round it would be a daemon of a host that starts others.
        options += ["--prtemca", "plm_ssh_no_tree_spawn", "1"]
        if not self.hosts.reach.shares_files:
            options += ["--wdir", "/"]
        return options + [word for name in passed for word in ("-x", name)]

    def _mpich(self, scratch: Path, passed: list[str]) -> list[str]:
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
                reason = f"mpirun takes its agent apart at spaces and colons, and there is one in {word[:200]!r}"
                hint = "install railwright, or keep ssh's configuration, at a path without them"
                raise CannotJudge(reason, hint=hint)
        return words

    def environment(self, scratch: Path) -> dict[str, str]:
        """The environment of `mpi`, and the interfaces of MPI and UCX."""
        found = self.mpi.environment(scratch) | _interfaces(self.hosts.used_interfaces)
        if self.hosts.reach.shares_cpus:
            found |= _unless_set(_OF_ONE_MACHINE)
        if not self.hosts.reach.shares_files:  # mpirun passes these on to where there is no such folder
            found = {name: value for name, value in found.items() if name not in _IN_SCRATCH}
        if self.mpi.flavour == "mpich":
            found["HYDRA_LAUNCHER_EXTRA_ARGS"] = " ".join(self._agent(scratch)[1:])
        return found

    def clean_up(self, started: float) -> None:
        """Clean up as on one host. What ranks left on other hosts is removed by the next launch there."""
        self.mpi.clean_up(started)


def _interfaces(names: tuple[str, ...]) -> dict[str, str]:
    """The variables of each library together. What the user has set is kept."""
    if not names:
        # A host may have routed addresses on its loopback interface, and Open MPI would try to reach them there.
        wanted = {"OMPI_MCA_btl_tcp_if_exclude": "lo"}
        return {} if "OMPI_MCA_btl_tcp_if_include" in os.environ else _unless_set(wanted)
    return _unless_set({
        "OMPI_MCA_btl_tcp_if_include": ",".join(names),
        "UCX_NET_DEVICES": ",".join(names),
        "FI_TCP_IFACE": names[0],  # it takes one
    })  # fmt: skip


def _unless_set(wanted: dict[str, str]) -> dict[str, str]:
    return {name: os.environ.get(name, value) for name, value in wanted.items()}

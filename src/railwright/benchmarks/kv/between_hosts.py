"""The parts of NIXL's benchmarks that matter between hosts: the NICs that UCX may use, and the exchange of metadata."""

from __future__ import annotations

import os

from railwright.benchmarks.benchmark import AnyJob, AnyRank
from railwright.benchmarks.job import Case, Launch, Machine
from railwright.benchmarks.kv import agents
from railwright.benchmarks.kv.services import Service, etcd_address
from railwright.benchmarks.options import Options, choice, option, single_choice
from railwright.benchmarks.together import open_on_all_ranks
from railwright.errors import CannotJudge
from railwright.topology.devices import Scalar, Topology
from railwright.topology.near_nics import name_nic, rank_nics

DEFAULT, NEAR, FAR = "default", "near", "far"
NIC_VARIABLE, TRANSPORT_VARIABLE = "UCX_NET_DEVICES", "UCX_TLS"
_ONE_MACHINE_TRANSPORTS = "tcp,self,cuda_copy"
"""The transports between namespaces of one machine: others would pass the network by."""


class NicOptions(Options, frozen=True):
    """The option of all transfers between hosts."""

    nics: tuple[str, ...] = option(
        DEFAULT,
        "the NIC of each side: default (UCX's choice), near, far (by the path to its memory), or several",
        choice(DEFAULT, NEAR, FAR),
    )


class MetadataOptions(NicOptions, frozen=True):
    """Options of transfers whose agents exchange metadata in one way."""

    metadata: str = option("mpi", "how agents exchange metadata: mpi, socket or etcd", single_choice(*agents.WAYS))
    etcd: Service | None = option("", "the address of a running etcd, like http://127.0.0.1:2379", etcd_address)


class NicCase(Case, frozen=True, kw_only=True):
    """The NIC of a launch, and the hosts if there are other pairs."""

    nic: str = DEFAULT
    between: str = ""


def list_cases(options: NicOptions, machine: Machine) -> list[NicCase]:
    """Return the cases of a launch between two processes, one for each choice of NIC."""
    between = ",".join(machine.hosts) if machine.paired else ""
    return [NicCase(nic=nic, between=between) for nic in options.nics]


def launch_pair(options: NicOptions, machine: Machine) -> tuple[Launch[NicCase], ...]:
    """Return a launch of two processes for each choice of NIC."""
    return tuple(Launch(case=case, ranks=2) for case in list_cases(options, machine))


def explain_no_nic(job: AnyJob, *devices: str) -> str:
    """Return the reason why a launch cannot choose the NICs of these memories or GPUs, or an empty string."""
    if job.case.nic == DEFAULT:
        return ""
    for device in devices:
        nics = rank_nics(job.topology, device)
        if not nics:
            return f"no NIC with a name and a path to {device} is known"
        if job.case.nic == FAR and nics[0][0] == nics[-1][0]:
            return f"no NIC is farther from {device} than another"
    return ""


def list_memories(job: AnyJob) -> tuple[str, str]:
    """Return the ids of the two ranks' memories, without their hosts."""
    first, second = (job.find_memory(rank).partition("@")[0] for rank in range(2))
    return first, second


def find_nic(topology: Topology, device: str, which: str) -> str:
    """Return UCX's name of the nearest or the farthest NIC of a memory or a GPU, such as `mlx5_0:1`."""
    nics = rank_nics(topology, device)
    return name_nic(nics[0 if which == NEAR else -1][1])


def require_metadata(rank: AnyRank) -> None:
    """Raise Unavailable on both ranks if one of them cannot exchange metadata in the requested way. Collective."""
    options = rank.job.options

    def check() -> str:
        if problem := agents.find_problem(options.metadata, options.etcd, rank.job):
            raise CannotJudge(problem)
        return str(options.metadata)

    open_on_all_ranks(rank, check)


def choose_transports(rank: AnyRank, device: str) -> dict[str, Scalar]:
    """Set this rank's variables of NIXL's UCX, and return them for the record. Call it after MPI has loaded.

    `device` is the id of this rank's memory or GPU.
    """
    job, case, chosen = rank.job, rank.job.case, dict[str, str]()
    if case.nic != DEFAULT:
        chosen[NIC_VARIABLE] = find_nic(job.topology, device, case.nic)
    in_one_machine = bool(job.hosts) and job.machine.hosts_share_gpus
    if in_one_machine and os.environ.get(TRANSPORT_VARIABLE, "tcp,self") == "tcp,self":
        chosen[TRANSPORT_VARIABLE] = _ONE_MACHINE_TRANSPORTS
    os.environ.update(chosen)
    settings: dict[str, Scalar] = {"hosts_in_one_machine": True} if in_one_machine else {}
    return settings | ({"ucx_set": " ".join(f"{name}={value}" for name, value in chosen.items())} if chosen else {})

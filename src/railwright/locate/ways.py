"""The kinds of probes of a search: TCP from chosen ports, RDMA, or MPI or NCCL over their own transports."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import msgspec

from railwright.benchmarks.benchmark import AnyBenchmark
from railwright.benchmarks.job import Launch
from railwright.benchmarks.mpi import flows as mpi_flows
from railwright.benchmarks.mpi.pair import launch_hosts
from railwright.benchmarks.nccl import flows as nccl_flows
from railwright.benchmarks.rdma import flows as rdma_flows
from railwright.benchmarks.sockets import pinned_flows
from railwright.benchmarks.wanted_flow import FlowRequest, FlowRounds
from railwright.diagnosis.localise import latency, load
from railwright.launch.each import EachLauncher
from railwright.launch.hosts import Hosts
from railwright.launch.local import LocalLauncher
from railwright.launch.mpi import MpiLauncher
from railwright.launch.mpi_hosts import HostsLauncher
from railwright.locate.place import Place

LONG_PACKETS, _LONG_PART = 6, 0.02
"""The number of long packets, and their rate over a port's rate: a link ten times too slow still carries them."""
_HEADER_BYTES = 48
"""The headers of IPv6 and UDP; IPv4's are shorter."""
STREAM_S = pinned_flows.Flows(rounds=()).stream_s
COVER_STREAM_S, _SHORTEST_STREAM_S = 0.8, 0.02

_OWN_NIC = {"NCCL_PXN_DISABLE": "1"}
"""Makes a GPU send by its own NIC, never through another GPU, so that a finding can name the port."""

WORDS = {
    "tcp": "TCP, one stream for each flow",
    "mpi": "MPI, by whatever way it takes",
    "nccl": "NCCL between GPUs, by whatever way it takes",
    "rdma": "RDMA writes, one stream for each flow",
}
"""The description of each kind of probe in a report, by name."""

Rounds = tuple[tuple[FlowRequest, ...], ...]


@dataclass(frozen=True)
class ProbeKind:
    """A kind of probe."""

    name: str
    benchmark: AnyBenchmark
    launch: Callable[[Rounds, str, int], Launch[Any]]
    """Builds the launch of rounds with a purpose, given the number of ranks."""
    launcher: Callable[[tuple[str, ...]], LocalLauncher]
    """Returns the launcher of the ranks on these hosts."""
    ranks_per_host: int = 1
    """1, or the number of ports of a host, each of which has a rank."""
    one_way: bool = False
    """Whether two hosts must not send to each other at the same time: see `Rounds.one_way`."""


def tcp_probes(place: Place) -> ProbeKind:
    """Return probes with a TCP stream for each flow, from a port that takes the wanted path."""

    def launch(rounds: Rounds, purpose: str, ranks: int) -> Launch[pinned_flows.Flows]:
        return Launch(case=_tcp_case(place, rounds, purpose), ranks=ranks)

    return ProbeKind("tcp", pinned_flows.BENCHMARK, launch, lambda hosts: EachLauncher(place.reach, hosts))


def mpi_probes(hosts: Hosts, mpirun: str | None) -> ProbeKind:
    """Return probes with MPI messages between hosts. Raises CannotJudge without mpirun, UsageError for a wrong one."""
    return _probes_by_mpirun("mpi", mpi_flows.BENCHMARK, hosts, mpirun, one_way=True)


def rdma_probes(hosts: Hosts, mpirun: str | None, ports: int = 1) -> ProbeKind:
    """Return probes with RDMA writes between `ports` ports of each host, whose ranks mpirun starts and connects by TCP.

    Raises CannotJudge without mpirun, UsageError for a wrong one.
    """
    return _probes_by_mpirun("rdma", rdma_flows.BENCHMARK, hosts, mpirun, ranks_per_host=ports)


def _probes_by_mpirun(
    name: str,
    benchmark: AnyBenchmark,
    hosts: Hosts,
    mpirun: str | None,
    *,
    one_way: bool = False,
    ranks_per_host: int = 1,
) -> ProbeKind:
    mpi = MpiLauncher(mpirun)

    def launch(rounds: Rounds, purpose: str, ranks: int) -> Launch[FlowRounds]:
        (over_tcp,) = launch_hosts(ranks)
        case = FlowRounds(rounds=rounds, stream_s=_choose_stream_s(purpose))
        return Launch(case=case, ranks=ranks, environment=_unless_set(over_tcp.environment))

    def launcher(names: tuple[str, ...]) -> LocalLauncher:
        return HostsLauncher(mpi, hosts.part(names))

    return ProbeKind(name, benchmark, launch, launcher, ranks_per_host, one_way)


def nccl_probes(hosts: Hosts, mpirun: str | None, gpus: int) -> ProbeKind:
    """Return probes with NCCL between `gpus` GPUs of each host, whose ranks mpirun starts.

    Raises CannotJudge without mpirun, UsageError for a wrong one.
    """
    mpi = MpiLauncher(mpirun)

    def launch(rounds: Rounds, purpose: str, ranks: int) -> Launch[nccl_flows.NcclFlows]:
        case = nccl_flows.NcclFlows(rounds=rounds, stream_s=_choose_stream_s(purpose))
        return Launch(case=case, ranks=ranks, environment=_unless_set(_OWN_NIC))

    return ProbeKind("nccl", nccl_flows.BENCHMARK, launch, lambda names: HostsLauncher(mpi, hosts.part(names)), gpus)


def _choose_stream_s(purpose: str) -> float:
    return COVER_STREAM_S if purpose.startswith("cover") else STREAM_S


def _unless_set(wanted: dict[str, str]) -> dict[str, str]:
    return {name: value for name, value in wanted.items() if name not in os.environ}


def _tcp_case(place: Place, rounds: Rounds, purpose: str) -> pinned_flows.Flows:
    case = pinned_flows.Flows(rounds=rounds, names=place.names)
    if place.mtu_bytes is not None and place.rate_bits_per_s is not None:
        case = msgspec.structs.replace(
            case,
            long_packets=LONG_PACKETS,
            long_bytes=place.mtu_bytes - _HEADER_BYTES,
            long_interval_s=place.mtu_bytes * 8 / (_LONG_PART * place.rate_bits_per_s),
        )
    if purpose == latency.PURPOSE:
        return msgspec.structs.replace(case, names={}, packets=0, stream_s=_SHORTEST_STREAM_S)
    if purpose == load.PURPOSE:
        return msgspec.structs.replace(case, packets=0)
    return msgspec.structs.replace(case, packets=0, stream_s=COVER_STREAM_S) if purpose[:5] == "cover" else case

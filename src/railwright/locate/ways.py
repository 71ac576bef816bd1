"""How the flows of a search are sent: TCP from chosen ports, or MPI or NCCL by whatever way it takes."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import msgspec

from railwright.benchmarks.benchmark import AnyBenchmark
from railwright.benchmarks.job import Launch
from railwright.benchmarks.mpi import flows as mpi_flows
from railwright.benchmarks.mpi.pair import between_hosts
from railwright.benchmarks.nccl import flows as nccl_flows
from railwright.benchmarks.sockets import pinned_flows
from railwright.benchmarks.wanted_flow import Wanted
from railwright.diagnosis.localise import latency, load
from railwright.launch.each import EachLauncher
from railwright.launch.hosts import Hosts
from railwright.launch.local import LocalLauncher
from railwright.launch.mpi import MpiLauncher
from railwright.launch.mpi_hosts import HostsLauncher
from railwright.locate.place import Place

LONG_PACKETS, _LONG_PART = 6, 0.02
"""At this part of the rate, so that a link that is slow tenfold takes them."""
_HEADER_BYTES = 48
"""Of IPv6 and UDP; IPv4's are shorter."""
STREAM_S = pinned_flows.Flows(rounds=()).stream_s
COVER_STREAM_S, _SHORTEST_STREAM_S = 0.8, 0.02

_OWN_NIC = {"NCCL_PXN_DISABLE": "1"}
"""A GPU sends by its own NIC, never by way of another GPU, so that a port can be named."""

WORDS = {
    "tcp": "TCP, one stream for each flow",
    "mpi": "MPI, by whatever way it takes",
    "nccl": "NCCL between GPUs, by whatever way it takes",
}
"""Each way by its name, as a report says it."""

Rounds = tuple[tuple[Wanted, ...], ...]


@dataclass(frozen=True)
class Way:
    """One kind of probe."""

    name: str
    benchmark: AnyBenchmark
    launch: Callable[[Rounds, str, int], Launch[Any]]
    """The launch of some rounds with one purpose, by so many ranks."""
    launcher: Callable[[tuple[str, ...]], LocalLauncher]
    """Starts the ranks on some hosts."""
    ranks_per_host: int = 1
    """1, or one for each port."""
    one_way: bool = False
    """Whether two hosts may not send to each other at once: see `Rounds.one_way`."""


def tcp_way(place: Place) -> Way:
    """One TCP stream for each flow, from a port that takes the wanted path."""

    def launch(rounds: Rounds, purpose: str, ranks: int) -> Launch[pinned_flows.Flows]:
        return Launch(case=_tcp_case(place, rounds, purpose), ranks=ranks)

    return Way("tcp", pinned_flows.BENCHMARK, launch, lambda hosts: EachLauncher(place.reach, hosts))


def mpi_way(hosts: Hosts, mpirun: str | None) -> Way:
    """MPI messages between hosts. Raises CannotJudge without an mpirun, UsageError for one that is none."""
    mpi = MpiLauncher(mpirun)

    def launch(rounds: Rounds, purpose: str, ranks: int) -> Launch[mpi_flows.MpiFlows]:
        stream_s = COVER_STREAM_S if purpose.startswith("cover") else STREAM_S
        (over_tcp,) = between_hosts(ranks)
        case = mpi_flows.MpiFlows(rounds=rounds, stream_s=stream_s)
        return Launch(case=case, ranks=ranks, environment=_unless_set(over_tcp.environment))

    return Way("mpi", mpi_flows.BENCHMARK, launch, lambda names: HostsLauncher(mpi, hosts.part(names)), one_way=True)


def nccl_way(hosts: Hosts, mpirun: str | None, gpus: int) -> Way:
    """NCCL between GPUs, so many of each host, whose ranks are started by mpirun.

    Raises CannotJudge without an mpirun, UsageError for one that is none.
    """
    mpi = MpiLauncher(mpirun)

    def launch(rounds: Rounds, purpose: str, ranks: int) -> Launch[nccl_flows.NcclFlows]:
        stream_s = COVER_STREAM_S if purpose.startswith("cover") else STREAM_S
        case = nccl_flows.NcclFlows(rounds=rounds, stream_s=stream_s)
        return Launch(case=case, ranks=ranks, environment=_unless_set(_OWN_NIC))

    return Way("nccl", nccl_flows.BENCHMARK, launch, lambda names: HostsLauncher(mpi, hosts.part(names)), gpus)


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

"""Two NIXL agents that exchange metadata: over MPI, NIXL's own sockets, or etcd.

Rank 0 posts and polls; rank 1 owns the other memory and only runs its progress thread. An exchange is timed from a
common start until both hold the other's metadata, each time with new agents, as when a pod starts.
"""

from __future__ import annotations

import contextlib
import os
import socket
import time
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from railwright.benchmarks.benchmark import AnyJob, AnyRank
from railwright.benchmarks.kv.services import Service, explain_unreachable
from railwright.benchmarks.sockets.addresses import list_addresses
from railwright.errors import CannotJudge
from railwright.native import nixl
from railwright.native.nixl_memory import AnyBuffer, Memory, describe_memory

WAYS = ("mpi", "socket", "etcd")
"""The ways to exchange metadata between agents."""

_LOOPBACK = "127.0.0.1"
_PATIENCE_S = 20.0
_NAP_S = 0.0001


class Place(NamedTuple):
    """The start of a buffer, and its memory type in NIXL's terms."""

    address: int
    memory: Memory


class Connection(NamedTuple):
    """An agent that is connected to the other rank's."""

    way: str
    agent: nixl.Agent
    peer: str
    places: dict[str, Place]
    """The peer's buffers by their names."""
    seconds: tuple[float, ...]
    """The time of each exchange."""


def find_log(rank: AnyRank) -> Path:
    """Return the file to which UCX logs its protocols in this rank."""
    return rank.scratch / f"ucx-{rank.index}.log"


def write_log(rank: AnyRank) -> None:
    """Make NIXL's UCX write that log. Call it after MPI has loaded, since MPI's own UCX reads the environment then."""
    assert rank.comm is not None
    os.environ.update({"UCX_PROTO_INFO": "y", "UCX_LOG_FILE": str(find_log(rank))})


def find_address(job: AnyJob) -> str | None:
    """Return the IPv4 address by which the other rank reaches this one (NIXL's sockets know no IPv6), or None.

    Between hosts it is the address of the first interface that UCX may use. If UCX may use RDMA devices only, it is
    that of an interface of the launch, or of any.
    """
    if not job.hosts:
        return _LOOPBACK
    found = {name: address for name, address in list_addresses() if ":" not in address}
    by_ucx = [name for name in os.environ.get("UCX_NET_DEVICES", "all").split(",") if name != "all"]
    if by_ucx and not all(":" in name for name in by_ucx):
        return next((found[name] for name in by_ucx if name in found), None)
    of_launch = [name for name in os.environ.get("NCCL_SOCKET_IFNAME", "").lstrip("=").split(",") if name]
    names = of_launch or sorted(name for _, name in socket.if_nameindex() if name != "lo")
    return next((found[name] for name in names if name in found), None)


def find_problem(way: str, etcd: Service | None, job: AnyJob) -> str:
    """Return the reason why a way is unavailable on this rank's host, or an empty string."""
    if way == "socket" and find_address(job) is None:
        return f"NIXL's sockets need IPv4, and {socket.gethostname()} has no such address"
    if way != "etcd":
        return ""
    if etcd is None:
        return "no etcd address was given: -o etcd=http://HOST:PORT"
    if not nixl.knows_etcd():
        return "this NIXL was built without etcd"
    refused = explain_unreachable(etcd)
    return f"no etcd answers at {refused}" if refused else ""


def join(
    rank: AnyRank,
    buffers: Mapping[str, AnyBuffer],
    way: str = "mpi",
    *,
    etcd: Service | None = None,
    threads: int = 1,
    times: int = 1,
    parameters: Mapping[str, str] | None = None,
) -> Connection:
    """Exchange metadata `times` times and connect. Collective over both ranks. Raises NativeError, CannotJudge.

    `parameters` are those of NIXL's backend.
    """
    seconds = []
    for number in range(times):
        rank.step(f"NIXL metadata by {way}, {number + 1} of {times}")
        namespace = f"/railwright/{rank.comm.bcast(uuid.uuid4().hex)}"
        port = _free_port() if way == "socket" else 0
        agent = nixl.Agent(
            f"rank{rank.index}",
            progress_thread=rank.index == 1,
            threads=threads,
            parameters=parameters,
            exchange=nixl.Exchange(port, etcd.url if etcd is not None and way == "etcd" else "", namespace),
        )
        for buffer in buffers.values():
            agent.register(buffer)
        joined, own_s = _exchange(rank, way, agent, port, buffers)
        seconds.append(max(rank.comm.allgather(own_s)))
        if number + 1 < times:
            leave(joined)
    joined.agent.connect_to(joined.peer)
    rank.comm.barrier()
    return joined._replace(seconds=tuple(seconds))


def withdraw(joined: Connection) -> None:
    """Withdraw this agent's metadata from the store, which makes the peer drop it too."""
    if joined.way == "etcd":
        joined.agent.withdraw_metadata()


def leave(joined: Connection) -> None:
    """Withdraw this agent's metadata, and close the agent."""
    withdraw(joined)
    joined.agent.close()


def find_place(buffer: AnyBuffer) -> Place:
    """Return the place of a buffer of this process."""
    return Place(buffer.address, describe_memory(buffer))


def _exchange(
    rank: AnyRank, way: str, agent: nixl.Agent, port: int, buffers: Mapping[str, AnyBuffer]
) -> tuple[Connection, float]:
    """Exchange metadata once; also returns the time that this rank waited."""
    comm, other = rank.comm, 1 - rank.index
    peer = f"rank{other}"
    mine = {name: find_place(buffer) for name, buffer in buffers.items()}
    places, ports, hosts = zip(*comm.allgather((mine, port, find_address(rank.job) or "")), strict=True)
    comm.barrier()
    started = time.perf_counter()
    if way == "mpi":
        agent.load(comm.allgather(agent.metadata())[other])
    elif way == "etcd":
        agent.send_metadata()
        agent.fetch_metadata(peer)
    elif rank.index == 0:
        agent.send_metadata((hosts[other], ports[other]))
        agent.fetch_metadata(peer, (hosts[other], ports[other]))
    while not agent.knows(peer):
        if time.perf_counter() - started > _PATIENCE_S:
            raise CannotJudge(f"no metadata from {peer} arrived by {way} within {_PATIENCE_S:.0f} s")
        time.sleep(_NAP_S)
    return Connection(way, agent, peer, places[other], ()), time.perf_counter() - started


def _free_port() -> int:
    """Find a free port: NIXL needs a number and cannot report one that it chose. It may be taken meanwhile."""
    with contextlib.closing(socket.socket()) as probe:
        probe.bind((_LOOPBACK, 0))
        return int(probe.getsockname()[1])

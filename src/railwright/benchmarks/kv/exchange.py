"""How two NIXL agents learn of each other's memory: over MPI, over NIXL's own sockets, or through an etcd.

Timed from a common start until both hold the other's metadata; each time with new agents, as when a pod starts.
What was loaded is then proved by one write of a known pattern.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import socket
import struct
import time
import urllib.parse
import uuid
from collections.abc import Iterator
from typing import NamedTuple

from railwright.benchmarks.base import Job, Rank
from railwright.benchmarks.kv.pair import wait_for_initiator
from railwright.errors import CannotJudge, UsageError
from railwright.native import nixl
from railwright.native.memory import PATTERN, Buffer
from railwright.native.mpi import library_version
from railwright.results.model import Result, Verification
from railwright.results.statistics import summarise
from railwright.topology.model import Scalar
from railwright.units import KIB

WAYS = ("mpi", "socket", "etcd")
PROOF_BYTES = 4 * KIB

_LOOPBACK = "127.0.0.1"
_SIOCGIFADDR = 0x8915  # linux/sockios.h
_PATIENCE_S = 20.0
_REACH_S = 2.0
_NAP_S = 0.0001
_MOST_URL_CHARACTERS = 200
_SEED = 77


class Joined(NamedTuple):
    """An agent that is connected to the other rank's."""

    way: str
    agent: nixl.Agent
    peer: str
    address: int
    """Where the peer's buffer begins in its own memory."""
    seconds: tuple[float, ...]
    """What each exchange took."""


class Service(NamedTuple):
    """Where a service listens."""

    scheme: str
    host: str
    port: int
    path: str

    @property
    def url(self) -> str:
        """Scheme, host and port."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.scheme}://{host}:{self.port}"


def parse_service(text: str) -> Service:
    """`http://127.0.0.1:2379`, with or without a path. Raises UsageError; never shows a password."""
    hint = "write http://HOST:PORT"
    if not text or len(text) > _MOST_URL_CHARACTERS or not text.isascii() or not text.isprintable() or " " in text:
        raise UsageError("not the address of a service: give 1 to 200 plain characters", hint=hint)
    try:
        parts = urllib.parse.urlsplit(text)
        host, port = parts.hostname, parts.port
    except ValueError as error:
        raise UsageError(f"not the address of a service: {error}", hint=hint) from None
    if parts.username is not None or parts.password is not None:
        raise UsageError("an address with a user or a password would be kept in the records", hint=hint)
    if parts.scheme not in ("http", "https") or not host or parts.query or parts.fragment:
        raise UsageError(f"not the address of a service: {text[:60]!r}", hint=hint)
    return Service(parts.scheme, host, port or (443 if parts.scheme == "https" else 80), parts.path.strip("/"))


def etcd_address(text: str) -> Service | None:
    """The option's etcd, None for an empty text. Raises UsageError."""
    if not text:
        return None
    service = parse_service(text)
    if service.path:
        raise UsageError(f"an etcd has no path, {service.path[:40]!r} was given", hint="write http://HOST:PORT")
    return service


def unreachable(service: Service) -> str:
    """Why nothing listens there, or an empty string."""
    try:
        with socket.create_connection((service.host, service.port), timeout=_REACH_S):
            return ""
    except OSError as error:
        return f"{service.url}: {error.strerror or error}"


def own_address(job: Job) -> str | None:
    """Where the other rank finds this one: NIXL's sockets know IPv4 alone. None where this host has no such address.

    Between hosts it is that of the first interface which UCX may use.
    """
    if not job.hosts:
        return _LOOPBACK
    allowed = [name for name in os.environ.get("UCX_NET_DEVICES", "all").split(",") if name != "all"]
    names = allowed or sorted(name for _, name in socket.if_nameindex() if name != "lo")
    with contextlib.closing(socket.socket(socket.AF_INET, socket.SOCK_DGRAM)) as asked:
        for name in names:
            with contextlib.suppress(OSError):
                request = struct.pack("256s", name.encode()[:15])
                return socket.inet_ntoa(fcntl.ioctl(asked.fileno(), _SIOCGIFADDR, request)[20:24])
    return None


def problem(way: str, etcd: str, job: Job) -> str:
    """Why a way cannot be taken from this rank's host, or an empty string."""
    if way == "socket" and own_address(job) is None:
        return f"NIXL's sockets need IPv4, and {socket.gethostname()} has no such address"
    if way != "etcd":
        return ""
    service = etcd_address(etcd)
    if service is None:
        return "no etcd was named: -o etcd=http://HOST:PORT"
    if not nixl.knows_etcd():
        return "this NIXL was built without etcd"
    refused = unreachable(service)
    return f"no etcd answers at {refused}" if refused else ""


def join(rank: Rank, way: str, buffer: Buffer, threads: int, times: int) -> Joined:
    """Exchange metadata `times` times and connect. Collective over both ranks. Raises NativeError, CannotJudge."""
    seconds = []
    for number in range(times):
        rank.step(f"NIXL metadata by {way}, {number + 1} of {times}")
        run = rank.comm.bcast(uuid.uuid4().hex)
        joined, own_s = _exchange(rank, way, buffer, threads, f"/railwright/{run}")
        seconds.append(max(rank.comm.allgather(own_s)))
        if number + 1 < times:
            leave(joined)
    joined.agent.connect_to(joined.peer)
    rank.comm.barrier()
    return joined._replace(seconds=tuple(seconds))


def leave(joined: Joined) -> None:
    """Take this agent's metadata out of the store, which makes the peer drop it too, and end the agent."""
    if joined.way == "etcd":
        joined.agent.withdraw_metadata()
    joined.agent.close()


def _exchange(rank: Rank, way: str, buffer: Buffer, threads: int, namespace: str) -> tuple[Joined, float]:
    """One exchange between new agents; and how long this rank waited for its part."""
    comm, other = rank.comm, 1 - rank.index
    port = _free_port() if way == "socket" else 0
    own = own_address(rank.job) or ""
    agent = nixl.Agent(
        f"rank{rank.index}",
        progress_thread=rank.index == 1,
        threads=threads,
        exchange=nixl.Exchange(port, rank.job.options["etcd"] if way == "etcd" else "", namespace),
    )
    agent.register(buffer)
    peer = f"rank{other}"
    addresses, ports, places = zip(*comm.allgather((buffer.address, port, own)), strict=True)
    comm.barrier()
    started = time.perf_counter()
    if way == "mpi":
        agent.load(comm.allgather(agent.metadata())[other])
    elif way == "etcd":
        agent.send_metadata()
        agent.fetch_metadata(peer)
    elif rank.index == 0:
        agent.send_metadata((places[other], ports[other]))
        agent.fetch_metadata(peer, (places[other], ports[other]))
    while not agent.knows(peer):
        if time.perf_counter() - started > _PATIENCE_S:
            raise CannotJudge(f"no metadata of {peer} came by {way} in {_PATIENCE_S:.0f} s")
        time.sleep(_NAP_S)
    return Joined(way, agent, peer, addresses[other], ()), time.perf_counter() - started


def _free_port() -> int:
    """A port that was free a moment ago: NIXL takes a number and says no other."""
    with contextlib.closing(socket.socket()) as probe:
        probe.bind((_LOOPBACK, 0))
        return int(probe.getsockname()[1])


def result(rank: Rank, joined: Joined, buffer: Buffer, like: Result) -> Iterator[Result]:
    """The exchange's own record, with the proof that the metadata was good. Collective; rank 0 yields."""
    buffer.fill(_SEED + rank.index, PROOF_BYTES)
    rank.comm.barrier()
    if rank.index == 1:
        wait_for_initiator(rank)
        rank.comm.send(buffer.count_wrong(_SEED, PROOF_BYTES), dest=0)
        return
    request = joined.agent.request("WRITE", buffer.address, joined.address, PROOF_BYTES, joined.peer)
    request.time(warm=0, iterations=1, patience_s=_PATIENCE_S)
    request.release()
    rank.comm.send(None, dest=1)
    wrong = rank.comm.recv(source=1)
    from msgspec.structs import replace

    settings: dict[str, Scalar] = {"mpi": library_version(), "proof_bytes": PROOF_BYTES}
    if joined.way != "mpi":
        settings["nixl_looks_every_s"] = nixl.LISTENER_DELAY_US / 1e6
    yield replace(
        like,
        parameters={"operation": "metadata", "metadata": joined.way},
        settings=settings,
        samples=joined.seconds,
        summary=summarise(joined.seconds),
        verification=Verification(method=PATTERN, bytes_checked=PROOF_BYTES, bytes_wrong=wrong),
    )

"""Plain TCP between two processes: latency by a ping-pong and bandwidth by windows of messages, without a library.

It is the baseline of every library's TCP path. MPI starts the ranks and exchanges the listener's address; the data goes
over a separate socket.
"""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Iterator

from railwright.benchmarks.benchmark import Benchmark, Plan, Rank, launch_pair
from railwright.benchmarks.evidence import transport_evidence
from railwright.benchmarks.fabric import PROOF_BYTES, WINDOW, InterfaceMeter, pings, windows
from railwright.benchmarks.job import Case, Job
from railwright.benchmarks.options import Options, option, single_choice
from railwright.benchmarks.pages import allocate_buffer, check_placement, choose_pages, pages_evidence, pages_option
from railwright.benchmarks.record import complete, format_cpus, sum_checks
from railwright.benchmarks.sockets.addresses import list_addresses
from railwright.errors import CannotJudge
from railwright.native.tcp import Stream
from railwright.results import workload
from railwright.results.declarations import Declaration
from railwright.results.records import Evidence, Result
from railwright.topology.devices import Scalar
from railwright.units import format_size, parse_sizes

_PATIENCE_S = 20.0
_CONNECT_S = 5.0
_MOST_ADDRESSES = 16
_INTERFACES = ("OMPI_MCA_btl_tcp_if_include", "UCX_NET_DEVICES", "FI_TCP_IFACE")
"""The variables, any of which names the interfaces that libraries may use."""
_ESTIMATE_BYTES_PER_S, _ESTIMATE_MESSAGE_S = 1e9, 10e-6


class SocketOptions(Options, frozen=True):
    """Options of a connection."""

    sizes: tuple[int, ...] = option("8:4M:x4", "message sizes, like 8:4M:x4", parse_sizes)
    pages: tuple[str, ...] = pages_option("small,huge", "messages")
    wait: str = option(
        "auto",
        "spin, sleep (in the kernel), or auto: spin if each rank has its own CPU",
        single_choice("auto", "spin", "sleep"),
    )


class Message(Case, frozen=True, kw_only=True):
    """A size, and the pages of its buffers."""

    size_bytes: int
    pages: str = ""


SocketJob = Job[SocketOptions, Case]
SocketRank = Rank[SocketOptions, Case]


def _spins(job: SocketJob) -> bool:
    """Report whether ranks spin. Two spinning ranks on one CPU would wait for each other's time slice."""
    return job.options.wait == "spin" or (job.options.wait == "auto" and len(job.cpus) >= job.ranks_on_cpus)


def _count_sent_bytes(job: SocketJob, size: int) -> int:
    """Return the payload that rank 0 sends at one size."""
    return size * (sum(pings(job, size)) + WINDOW * sum(windows(job, size)))


def _messages(job: SocketJob) -> list[Message]:
    """List every size on each kind of page; between hosts a single kind, because the network decides there."""
    asked = job.options.pages[:1] if job.hosts else job.options.pages
    return [Message(size_bytes=size, pages=pages) for size in job.options.sizes for pages in choose_pages(size, asked)]


def _plan(job: SocketJob) -> Plan:
    sizes = [one.size_bytes for one in _messages(job)]
    messages = [(size, 2 * sum(pings(job, size)) + WINDOW * sum(windows(job, size))) for size in sizes]
    return Plan(
        path=job.rank_path(),
        seconds=1 + sum(count * (_ESTIMATE_MESSAGE_S + size / _ESTIMATE_BYTES_PER_S) for size, count in messages),
        memory_bytes=4 * max(job.options.sizes),
        moved_bytes=sum(size * count for size, count in messages),
    )


def _run(rank: SocketRank) -> Iterator[Result]:
    rank.step("connect")
    with contextlib.closing(_connect(rank)) as connection:
        stream = Stream(connection, starts=rank.index == 0, spins=_spins(rank.job), patience_s=_PATIENCE_S)
        for message in _messages(rank.job):
            rank.step(f"tcp_stream {format_size(message.size_bytes)}, {message.pages} pages")
            yield from _measure(rank, stream, message)


def _measure(rank: SocketRank, stream: Stream, message: Message) -> Iterator[Result]:
    """Run both loops at one size, each with its data check. Collective; rank 0 yields."""
    size = message.size_bytes
    comm, (warm, trips), (warm_windows, timed) = rank.comm, pings(rank.job, size), windows(rank.job, size)
    with allocate_buffer(message.pages, size) as out, allocate_buffer(message.pages, size) as into:
        lies = pages_evidence(into)
        out.fill(_seed(size, rank.index))
        into.fill(_seed(size, 2))  # poison: a rank that receives nothing keeps it
        meter = InterfaceMeter()
        comm.barrier()
        half_trips = stream.latency(out, into, size, warm=warm, iterations=trips)
        back = into.verify(_seed(size, 1 - rank.index), size)
        into.fill(_seed(size, 2))
        comm.barrier()
        spent = stream.windows(out, into, size, window=WINDOW, warm=warm_windows, iterations=timed)
        # Rank 0 receives no window, and its poison must remain.
        forth = into.verify(_seed(size, 2 if rank.index == 0 else 0), size)
        seen = transport_evidence(_count_sent_bytes(rank.job, size), meter.loopback_bytes(), "not lo")
    if rank.job.hosts:
        seen = meter.evidence(comm, rank.job, _count_sent_bytes(rank.job, size))
    checks = comm.gather(sum_checks((back, forth)))
    if checks is None:
        return
    blank = BENCHMARK.blank(
        rank.job.rank_path(),
        message,
        settings=_settings(rank, stream),
        ranks=rank.size,
        verification=sum_checks(checks),
        evidence=(seen, lies),
    )
    blank = check_placement(blank, message.pages, lies, _explain_other_transport(rank.job, size, seen))
    latency: dict[str, Scalar] = {"iterations": trips, "warm_up": warm}
    yield complete(blank, half_trips, "latency_s", settings=blank.settings | latency)
    window: dict[str, Scalar] = {"window": WINDOW, "windows": timed, "warm_up_windows": warm_windows}
    rates = [WINDOW * size / second for second in spent]
    yield complete(blank, rates, "bandwidth_bytes_per_s", settings=blank.settings | window)


def _seed(size: int, who: int) -> int:
    return 4 * size + who


def _explain_other_transport(job: SocketJob, size: int, seen: Evidence) -> str:
    """Return the reason if the data did not go over TCP; few bytes between hosts prove nothing either way."""
    if seen.value == "tcp" or (job.hosts and _count_sent_bytes(job, size) < PROOF_BYTES):
        return ""
    return f"a socket was connected, but {seen.seen}"


def _settings(rank: SocketRank, stream: Stream) -> dict[str, Scalar]:
    job, connection = rank.job, stream.connection_info()
    cpus = sorted({job.find_cpu(0), job.find_cpu(1)})
    return {
        "wait": "spin" if _spins(job) else "sleep",
        "nodelay": True,
        "congestion_control": connection.congestion_control,
        "segment_bytes": connection.segment_bytes,
        "retransmits": connection.retransmits,
        "cpus": format_cpus(cpus),
        "oversubscribed": len(cpus) < job.ranks_on_cpus,
    }


def _connect(rank: SocketRank) -> socket.socket:
    """Connect the ranks, trying rank 1's addresses in turn. Collective."""
    comm = rank.comm
    if rank.index == 1:
        with _listen() as listener:
            comm.bcast((_addresses(rank.job), listener.getsockname()[1]), root=1)
            found = _accept(listener)
    else:
        found = _connect_to_first(*comm.bcast(None, root=1))
    reasons = [reason for reason in comm.allgather("" if isinstance(found, socket.socket) else found) if reason]
    if reasons or isinstance(found, str):
        raise CannotJudge("; ".join(reasons), hint="name the interface that both hosts share: --interfaces")
    return found


def _listen() -> socket.socket:
    """Listen on every address of this host, on IPv6 as well if the host has it."""
    if socket.has_dualstack_ipv6():
        with contextlib.suppress(OSError):
            return socket.create_server(("::", 0), family=socket.AF_INET6, dualstack_ipv6=True, backlog=1)
    return socket.create_server(("", 0), backlog=1)


def _accept(listener: socket.socket) -> socket.socket | str:
    listener.settimeout(_CONNECT_S * (_MOST_ADDRESSES + 1))
    try:
        connection, _ = listener.accept()
    except OSError as error:
        return f"rank 0 did not connect: {error}"
    connection.settimeout(None)
    return connection


def _connect_to_first(addresses: list[str], port: int) -> socket.socket | str:
    reasons = []
    for address in addresses:
        try:
            connection = socket.create_connection((address, port), timeout=_CONNECT_S)
        except OSError as error:
            reasons.append(f"{address}: {error.strerror or error}")
        else:
            connection.settimeout(None)
            return connection
    return f"rank 1 cannot be reached by TCP: {', '.join(reasons) or 'it has no address'}"


def _addresses(job: SocketJob) -> list[str]:
    """Return the addresses of this host on the launch's interfaces, or on all but loopback; without hosts 127.0.0.1."""
    if not job.hosts:
        return ["127.0.0.1"]
    named = next((value for name in _INTERFACES if (value := os.environ.get(name, "")) not in ("", "all")), "")
    wanted = named.split(",") if named else [name for _, name in socket.if_nameindex() if name != "lo"]
    return [address for name, address in list_addresses() if name in wanted][:_MOST_ADDRESSES]


_SOCKETS = workload.Message(by="sockets")

BENCHMARK = Benchmark(
    name="tcp_stream",
    summary="plain TCP between two processes: a ping-pong, and windows of 64 messages",
    method="one TCP socket with TCP_NODELAY: half the round trip of a ping-pong; windows of 64 sends and an answer, "
    "as osu_bw without a library",
    results=(
        Declaration("latency_s", _SOCKETS, supplies="plain socket", is_reference=True),
        Declaration("bandwidth_bytes_per_s", _SOCKETS, supplies="plain socket", is_reference=True),
    ),
    options=SocketOptions,
    launches=launch_pair,
    plan=_plan,
    run=_run,
    spans_hosts=True,
)

"""The limit of messages between two devices: by baselines inside one host, by the ports between hosts.

A stream of messages is compared with the links. The size at which it reaches their rate depends on its latency.
"""

from __future__ import annotations

from msgspec.structs import replace

from railwright.errors import UsageError
from railwright.expected import gpu_copies, shared_memory, staged
from railwright.expected.bands import extend_doubt, half_band, scale_band
from railwright.expected.baselines import Baselines
from railwright.expected.links import expect_narrowest, expect_within_gpu
from railwright.expected.machine import Machine
from railwright.expected.message_time import Start, add_start, find_start
from railwright.expected.named_ports import expect_over_named
from railwright.expected.rails import limit_over_ports, ports_expected, widen_shared_port
from railwright.expected.verbs_packets import add_headers, fill_mtu
from railwright.limits.limit import Bounds, Expected, Limit, NoLimit
from railwright.limits.nccl import TCP_BAND
from railwright.results.declarations import no_limit
from railwright.results.workload import Message
from railwright.topology.changes import change_links, convert_to_tcp
from railwright.topology.devices import Device, EfaLink, EthernetLink, Path
from railwright.topology.routes import find_network_path
from railwright.units import KIB, MIB, format_duration, format_size

INSIDE = "memory0:memory0"
"""The path of messages whose record does not say where the two processes ran."""
BYTES_DECIDE = 64 * KIB
"""From this size a stream of messages between two hosts by verbs is expected to reach the link's rate (perftest's own
default).
"""
_BYTES_DECIDE_AT_BYTES_PER_S = 12.5e9
"""The rate of the ports of 100 Gb/s on which that size suffices; a faster port needs a larger one for the same time."""
RENDEZVOUS_ENDS = 1024 * 1024
"""Up to this size a message over MPI or UCX may pay a handshake that it cannot hide."""
BOTH_WAYS_SHARE = 0.95
"""Both ways at once reach a little less than twice: 46.4 of 49.7 GB/s on Slingshot (CSCS documentation)."""
_SMALL_SHARE = 0.5
_MPI_SHARE, _MPI_BOTH_WAYS_SHARE, _VERBS_SHARE = 0.85, 0.7, 0.95
SINGLE_MESSAGES_FROM = 2**20
"""From this size bytes decide the time of a message that waits for the one before it."""
_TRANSFERS_JUDGED_FROM = 64 * MIB
"""Below this size the cost of each request counts, because UCX cuts a transfer into parts."""
_SMALL_TRANSFER_BYTES = 64 * KIB
_TCP_SHARE = 0.9
"""The share of a port that several flows get: 9.4 of 10 Gb/s, 94 of 100 (ESnet, fasterdata, iperf3 at 100 Gb/s)."""
_ONE_FLOW_BYTES_PER_S = 0.9e9
"""Bytes/s that a flow reaches with frames of 1500 bytes and without tuning: 7.24 of 10 Gb/s (Hyades cluster wiki,
iperf3). A lower rate means a slow core or a fault.
"""
_STAGED_BYTES_PER_S = 16e9
"""The highest rate through host memory between NIC and GPU (NCCL issue 412)."""
_STAGING_FACTOR = 2.0
"""The factor that a library loses if it does not overlap the two copies through host memory."""
_GPUDIRECT = "gpudirect_rdma"

_WHY_SMALL = "the rate of messages of this size depends on protocol and handshake"
_WHY_NO_SIZE = "the text gives no size, and small messages are slower"
_WHY_MPI = "MPI reaches some percent less than the link, depending on version and settings"
_WHY_PAIRS = "the ports of the pairs are not known, and all pairs may have used one"
_WHY_VERBS = "headers and MTU change the rate by some percent"
_EFA_SHARE = 0.1
"""The rate's share for one message at a time over EFA: osu_latency of 4 MiB had 0.2 of a healthy port (c5n, Open MPI's
CI).
"""
_WHY_TIMES = "switches, clocks and settings change the time of a message as much"
_TIME_DOUBT_FACTOR = 2.5
"""Extra hops, and TCP instead of RDMA, take tens of microseconds. A given machine does not record them."""
_WHY_SOCKETS = "a core limits one flow of TCP: several flows (iperf3 -P 8) and an MTU of 9000 reach more"


def expect_message(workload: Message, machine: Machine) -> Bounds:
    """Return the bounds of messages: by baselines inside one host, else by the ports."""
    path = find_path(workload, machine)
    if workload.by == "sockets" and machine.measured is None:
        return _expect_sockets(workload, machine)
    if workload.by == "verbs" and workload.nics and machine.cluster.hosts == 1:
        return no_limit(workload, "no document gives the rate of a NIC that sends to its own host")
    if machine.measured is not None and machine.cluster.hosts == 1 and (workload.path or workload.pages):
        return _expect_from_baselines(replace(workload, path=path.replace(":", ">")), machine, machine.measured)
    if workload.quantity not in ("bandwidth_bytes_per_s", "latency_s"):
        return no_limit(workload, "no document gives a rate of messages")
    if path == INSIDE:
        ask = "give --beside RUN, a run of ours on it; " if workload.pages else ""
        why = f"no baseline is known inside one host; {ask}if it ran between two hosts, give --count 2"
        return no_limit(workload, why)
    return _expect_links(workload, machine, path)


def find_path(workload: Message, machine: Machine) -> str:
    """Return the path `gpu0:gpu0@1`: the workload's own, the user's, or between the first GPUs or memories."""
    if workload.path:
        return workload.path.replace(">", ":")
    if machine.path:
        return machine.path
    first, last = ("gpu0" if gpu else "memory0" for gpu in (workload.from_gpu, workload.to_gpu))
    if machine.cluster.hosts > 1:
        return f"{first}:{last}@1"
    return "gpu0:gpu1" if (first, last) == ("gpu0", "gpu0") else f"{first}:{last}"


def tcp_band(limit: Limit) -> Expected:
    """Return the band of one TCP flow on a port. It is doubtful on a fast port, where the host's cores decide."""
    low = _TCP_SHARE * limit.value
    return Expected(
        quantity=limit.quantity,
        low=low,
        doubtful_to=min(low, _ONE_FLOW_BYTES_PER_S),
        doubt=_WHY_SOCKETS,
        because="nine tenths of the port's rate for TCP",
        sources=limit.sources,
    )


def _expect_sockets(workload: Message, machine: Machine) -> Bounds:
    """Return the bounds of TCP between two hosts: the port's rate for TCP. A single flow depends on a core, and
    cores differ.
    """
    cluster = machine.supposed.cluster
    if workload.quantity != "bandwidth_bytes_per_s":
        return no_limit(workload, "messages have a limit only for bandwidth")
    if cluster.hosts < 2 and not machine.path:
        return no_limit(workload, "no baseline is known inside one host; if it ran between two hosts, give --count 2")
    host = change_links(cluster.host, convert_to_tcp)
    try:
        path = find_network_path(replace(cluster, host=host), machine.path or "memory0:memory0@1")
    except UsageError as error:
        return no_limit(workload, error.message)
    limit, _ = expect_narrowest(host, path)
    return limit, tcp_band(limit) if isinstance(limit, Limit) else None


def _expect_from_baselines(workload: Message, machine: Machine, measured: Baselines) -> Bounds:
    """Return the bounds of messages inside one host: times from a cache line and a copy, rates from copies."""
    if workload.by == "sockets":
        why = "plain sockets are the baseline of TCP paths, and no document gives their rate"
        return no_limit(workload, why)
    if workload.crosses_gpu:
        return _expect_transfer(workload, machine, measured)
    if workload.in_blocks:
        return shared_memory.bound_blocks(measured, workload)
    if workload.over == "tcp":
        return shared_memory.bound_by_socket(measured, workload)
    if workload.quantity == "latency_s":
        return (shared_memory.bound_small_transfer if workload.one_sided else shared_memory.bound_message)(
            measured, workload
        )
    if workload.quantity != "bandwidth_bytes_per_s":
        return no_limit(workload, "no document gives a rate of messages")
    copies = workload.pairs * workload.threads * (1 + workload.both_ways)
    return shared_memory.bound_by_copies(measured, workload, copies)


def _expect_transfer(workload: Message, machine: Machine, measured: Baselines) -> Bounds:
    """Return the bounds of a library's transfer of GPU memory: large ones by the links, small ones by copies."""
    if workload.quantity == "latency_s":
        alone, awaited = measured.find("gpu copy", workload), measured.find("awaited gpu copy", workload)
        if alone is None or awaited is None:
            return no_limit(workload, "copies of a few bytes were not measured in this run")
        is_small = (workload.size_bytes or 0) <= _SMALL_TRANSFER_BYTES
        both = ((ceiling.slowest, ceiling.fastest) for ceiling in (alone, awaited))
        return gpu_copies.bound_small_transfer(*both, is_small=is_small)
    source, _, target = workload.path.partition(">")
    if source == target and (gpu := machine.gpu(source)) is not None:
        limit, band = expect_within_gpu(gpu)
    elif (path := machine.find_path(workload.path)) is not None:
        limit, band = expect_narrowest(machine.host, path)
    else:
        return no_limit(workload, f"the topology has no path {workload.path}")
    is_large = (workload.size_bytes or 0) >= _TRANSFERS_JUDGED_FROM
    return limit, band if is_large and isinstance(limit, Limit) else None


def _expect_links(workload: Message, machine: Machine, path: str) -> Bounds:
    """Return the bounds of a stream over the links of a path, reduced by software and faults.

    The band of one pair runs from one port to the ports over which its library stripes; several pairs should spread.
    """
    if (gpu := _find_shared_gpu(path, machine)) is not None:
        return _expect_within_gpu(workload, gpu)
    if workload.by == "verbs":
        known = fill_mtu(workload, machine)
        bounds = expect_over_named(workload, known, lambda one, kept: _expect_way(one, kept, path))
        return add_headers(workload, known, bounds)
    return _expect_way(workload, machine, path)


def _expect_way(workload: Message, machine: Machine, path: str) -> Bounds:
    """Return the bounds of a stream over the links of the path that the machine has."""
    way = machine.between(path)
    inside = path.replace("@0", "").replace(":", ">")
    by_host = way.kind == "NVB" and staged.lacks_peers(machine, inside)
    found, band = staged.expect_staged(machine, inside) if by_host else expect_narrowest(machine.host, way)
    if isinstance(found, NoLimit):
        return found, None
    found, band = widen_shared_port(found, band, machine, way)
    single, band = _apply_assumptions(way, workload, machine, found, band)
    limit = limit_over_ports(single, workload, machine, way)
    fewest, most = (min(float(ports), limit.value / single.value) for ports in ports_expected(workload, machine, way))
    band = scale_band(band, fewest, most) if band is not None else None
    if workload.both_ways:
        limit = replace(limit, value=limit.value * 2, because=f"both ways at once: {limit.because}")
        single = replace(single, value=single.value * 2)
        band = scale_band(band, 2 * BOTH_WAYS_SHARE, 2) if band is not None else None
    over_efa = any(isinstance(link.protocol, EfaLink) for link in machine.host.links)
    in_one_host = _is_between_gpus_of_a_host(path)
    start = find_start(workload, in_one_host=in_one_host, over_efa=over_efa)
    if workload.quantity == "latency_s":
        rate = band.low if band is not None else single.value
        share = min(_EFA_SHARE if over_efa else _SMALL_SHARE, _MPI_SHARE / fewest)  # all pairs may use one port
        return _bound_message_time(limit, rate, workload, start, share)
    if band is None:
        half = half_band(single)
        return limit, _stream_band(half, workload, start, 1.0, in_one_host=in_one_host) if half is not None else None
    return limit, _stream_band(band, workload, start, fewest, in_one_host=in_one_host)


def _find_shared_gpu(path: str, machine: Machine) -> Device | None:
    """Return the GPU of a single host that both ends of a path share; None if they are different devices."""
    first, _, last = path.partition(":")
    shared = first.removesuffix("@0") == last.removesuffix("@0") and machine.cluster.hosts == 1
    return machine.gpu(first.removesuffix("@0")) if shared else None


def _expect_within_gpu(workload: Message, gpu: Device) -> Bounds:
    """Return the bounds of messages between two processes on one GPU: a copy in its memory."""
    limit, band = expect_within_gpu(gpu)
    if isinstance(limit, NoLimit) or band is None:
        return limit, None
    start = find_start(workload, in_one_host=True, over_efa=False)
    if workload.quantity == "latency_s":
        return _bound_message_time(limit, band.low, workload, start, _SMALL_SHARE)
    return limit, _stream_band(band, workload, start, 1.0, in_one_host=True)


def _bound_message_time(limit: Limit, rate: float, workload: Message, start: Start, share: float) -> Bounds:
    """Return the time of a message: at least its bytes over the limit; expected is the start plus its bytes over
    `rate`.

    Down to `share` of that rate there is no slow verdict.
    """
    size = workload.size_bytes or 0
    if size < 1:
        return no_limit(workload, "links give no minimum time for an empty message")
    both_directions = max(1.0, workload.pairs / 2)  # half of the pairs may be on their way back meanwhile
    minimum = size * both_directions / limit.value
    because = f"{format_size(size)} at the rate of {limit.because}"
    if workload.pairs > 1:
        because = f"{format_size(size)} of each pair, half of them in either direction, at the rate of {limit.because}"
    return replace(limit, quantity="latency_s", value=minimum, because=because), Expected(
        quantity="latency_s",
        low=minimum,
        high=start.expected_s + size * workload.pairs / rate,
        doubtful_to=_TIME_DOUBT_FACTOR * start.doubtful_s + size * workload.pairs / (rate * share),
        doubt=_WHY_TIMES,
        because=f"{format_duration(start.expected_s)} for the start of a message, and its bytes over the rate",
        sources=(start.source,),
    )


def _stream_band(band: Expected, workload: Message, start: Start, spread: float, *, in_one_host: bool) -> Expected:
    """Return the band of a stream of messages that each pay a start besides their bytes.

    `spread` is the number of ports; pairs that all used one port would be as healthy.
    """
    size = workload.size_bytes or 0
    is_copied = in_one_host and workload.by == "library"
    by_verbs = BYTES_DECIDE * max(1.0, band.low / _BYTES_DECIDE_AT_BYTES_PER_S)
    decided_from = by_verbs if workload.by == "verbs" else RENDEZVOUS_ENDS
    has_start = workload.is_request or workload.one_at_a_time or is_copied or size < decided_from
    if size < 1:
        return extend_doubt(band, 0.0, _WHY_NO_SIZE)
    share, why = _doubtful_share(workload, size)
    share, why = (share / spread, _WHY_PAIRS) if spread > 1 else (share, why)
    if not has_start:
        return extend_doubt(band, band.low * share, why)
    low = add_start(size, band.low, start.expected_s / workload.pairs)
    because = f"{band.because}; less {format_duration(start.expected_s)} for the start of each message"
    if workload.by == "verbs" and spread <= 1:
        why = f"the start of a message may take {format_duration(start.doubtful_s)}, which counts at this size"
    return replace(
        band,
        low=low,
        high=None if band.high is None else max(low, add_start(size, band.high, start.fastest_s)),
        doubtful_to=min(low, add_start(size, band.low * share, start.doubtful_s)),
        doubt=why,
        because=because,
        sources=(*band.sources, start.source),
    )


def _doubtful_share(workload: Message, size: int) -> tuple[float, str]:
    """Return the share of the low end down to which there is no verdict, and the reason."""
    if size < RENDEZVOUS_ENDS and workload.by != "verbs":
        return _SMALL_SHARE, _WHY_SMALL
    if workload.by == "verbs":
        return _VERBS_SHARE, _WHY_VERBS
    return (_MPI_BOTH_WAYS_SHARE if workload.both_ways else _MPI_SHARE), _WHY_MPI


def _apply_assumptions(
    way: Path, workload: Message, machine: Machine, limit: Limit, band: Expected | None
) -> tuple[Limit, Expected | None]:
    """Return limit and band under the machine's assumptions: sockets, copies through host memory, or a lower rate."""
    case = machine.case
    if case is None:
        return limit, band
    low = band.low if band is not None else limit.value
    high = min(limit.value, case.port_cap_bytes_per_s)
    low = min(low, high)
    if way.kind != "NET":
        high = min(high, case.gpu_cap_bytes_per_s)
        low = min(low, high / _STAGING_FACTOR) if high < limit.value else low
    elif _is_over_sockets(machine):
        low, high = min(low, TCP_BAND[0].value), min(high, TCP_BAND[1].value)
    elif _is_staged(machine) and workload.crosses_gpu:
        low, high = min(low, TCP_BAND[1].value) / _STAGING_FACTOR, min(high, _STAGED_BYTES_PER_S)
    because = band.because if band is not None else "by the assumptions about this machine"
    sources = band.sources if band is not None else limit.sources
    return replace(limit, value=high), Expected(
        quantity=limit.quantity, low=low, high=high, because=because, sources=sources
    )


def _is_between_gpus_of_a_host(path: str) -> bool:
    (first, _, first_host), (last, _, second_host) = (end.partition("@") for end in path.partition(":")[::2])
    return first.startswith("gpu") and last.startswith("gpu") and (first_host or "0") == (second_host or "0")


def _is_over_sockets(machine: Machine) -> bool:
    protocols = [link.protocol for link in machine.supposed.cluster.host.links]
    return any(isinstance(protocol, EthernetLink) and not protocol.rdma for protocol in protocols)


def _is_staged(machine: Machine) -> bool:
    return any(host.facts.get(_GPUDIRECT) is False for host in machine.supposed.cluster.host.of_kind("host"))

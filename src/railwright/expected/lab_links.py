"""The limits of ranks on several hosts over links of known rate, such as those of a lab.

A connection takes one path, so plain sockets are compared with the narrowest cable on it. A library may use all ports
of a host at once or only one: its limit is the rate of all ports, and its band begins below the rate of one port.
"""

from __future__ import annotations

from railwright.busbw import busbw_factor
from railwright.limits.limit import Bounds, Constant, Source, bandwidth_band, bandwidth_limit
from railwright.results.declarations import no_limit
from railwright.results.records import Fabric
from railwright.results.workload import Collective, Files, Linpack, Message, Unlimited, Workload
from railwright.units import KIB, MIB

_LAB = Source("Railwright docs/lab.md", "rates of cables, held by tbf")
CABLE_SHARE = Constant(0.5, "of the narrowest cable's rate: packet headers never take half", _LAB)
CARRIED_BYTES_PER_S = Constant(125e6, "bytes/s, the highest cable rate at which two cores do not limit a lab", _LAB)
_SAME_RUN = Source("ports of these hosts, and the slowest pair of them", "this run")
_JUDGED_FROM_BYTES = MIB
_ONE_PACKET_BYTES = KIB
_BUCKET = "a link that was idle exceeds its rate for a moment, so its rate does not bound a single message"


def expect_over_links(links: Fabric, workload: Workload) -> Bounds | None:
    """Return the bounds of a rate between hosts; None for a single packet, messages of GPU memory, and data that stays
    inside hosts.

    Links do not bound a single packet. A library may use other ports than a plain socket, so a socket does not limit
    larger messages.
    """
    if isinstance(workload, Unlimited | Files | Linpack):
        return None  # its bytes stay inside hosts
    size = workload.size_bytes
    if workload.quantity != "bandwidth_bytes_per_s" or size is None or size < _JUDGED_FROM_BYTES:
        is_packet = workload.quantity == "latency_s" and size is not None and size <= _ONE_PACKET_BYTES
        return None if is_packet else no_limit(workload, _BUCKET)
    if isinstance(workload, Collective):
        return _expect_collective(links, workload)
    if not isinstance(workload, Message):
        return None
    if workload.by == "sockets":
        return expect_rate(links, links.flow_bytes_per_s, f"one connection over {links.narrowest}", 1.0)
    if workload.from_gpu or workload.to_gpu:
        return None
    times = 1 + workload.both_ways
    because = f"all ports of a host in {links.name}" + (", both ways at once" if times > 1 else "")
    return expect_rate(links, times * links.ports_bytes_per_s, because, 1.0)


def _expect_collective(links: Fabric, workload: Collective) -> Bounds | None:
    """Return the bounds by the bytes that must leave each host over its ports, whatever the algorithm.

    In an all_to_all every rank has bytes for every other; else a host needs its neighbours' data once. A linear
    algorithm sends all of it through the ports of one host, so the band falls with the number of ranks.
    """
    hosts, ranks, operation = workload.hosts, workload.ranks or 1, workload.operation
    if not 1 < hosts <= ranks:
        return None
    senders = ranks if operation == "all_to_all" else hosts
    per_byte = senders * float(busbw_factor(operation, hosts)) / hosts
    scale = float(busbw_factor(operation, ranks)) if workload.rate == "busbw" else 1.0
    because = f"the least traffic out of each host, over all ports of a host in {links.name}"
    return expect_rate(links, scale * links.ports_bytes_per_s / per_byte, because, scale / per_byte * 2 / ranks)


def expect_rate(links: Fabric, value: float, because: str, share_of_one: float) -> Bounds:
    """Return `value` as a limit, and a band that begins at half of `share_of_one` x one connection's rate.

    There is no band above the rate that two cores can carry, unless the rates of the links were measured.
    """
    limit = bandwidth_limit(value, because, links.narrowest, (), (_LAB,) if not links.measured else (_SAME_RUN,))
    if links.flow_bytes_per_s > CARRIED_BYTES_PER_S.value and not links.measured:
        return limit, None
    low = CABLE_SHARE.value * share_of_one * links.flow_bytes_per_s
    because = f"{CABLE_SHARE.value:g} of the rate of one connection over {links.narrowest}"
    return limit, bandwidth_band(low, None, because, CABLE_SHARE.source)

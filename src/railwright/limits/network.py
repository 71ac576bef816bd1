"""The payload rate of a NIC's port: RoCEv2 and TCP over Ethernet, InfiniBand, and SRD of AWS's EFA.

The payload's share of the line rate, for full packets of a long transfer and an MTU in bytes:

RoCEv2        MTU / (MTU + 82), where MTU is the largest RDMA MTU that fits into the Ethernet MTU.
TCP           (MTU - 52) / (MTU + 38)
InfiniBand    MTU / (MTU + 26)
EFA           MTU / (MTU + 38): Ethernet's framing alone, because SRD's headers are not public.
"""

from __future__ import annotations

from typing import NamedTuple

from msgspec.structs import replace

from railwright.limits.limit import Constant, Limit, NoLimit, Source, bandwidth_limit, no_bandwidth, rate_step
from railwright.limits.sources import IBTA, IEEE_8023, RFC_IP_TCP, ROCE, SRD_PAPER
from railwright.topology.devices import EfaLink, EthernetLink, InfinibandLink, Link
from railwright.units import BITS_PER_BYTE, format_line_rate

FRAME_BYTES = Constant(14 + 4 + 20, "bytes: header, FCS, preamble and gap", IEEE_8023)
ROCE_BYTES = Constant(20 + 8 + 12 + 4, "bytes: IPv4, UDP, BTH and ICRC", ROCE)
TCP_BYTES = Constant(20 + 20 + 12, "bytes: IPv4, TCP and time stamps, inside the MTU", RFC_IP_TCP)
LINUX_ROCE_BYTES = Constant(
    40 + 8 + 12 + 4 + 28 + 4,
    "bytes: GRH, UDP, BTH, XRC, atomic and ICRC headers",
    Source("Linux", "include/rdma/ib_addr.h, iboe_get_mtu"),
)
INFINIBAND_BYTES = Constant(8 + 12 + 4 + 2, "bytes: LRH, BTH, ICRC and VCRC", IBTA)
_ETHERNET_MTUS = tuple(
    Constant(size, "bytes, the MTU of Ethernet itself, and jumbo frames", IEEE_8023) for size in (1500, 9000)
)
_NEXT_RATE = Constant(2, "times the rate of a port, from HDR to NDR and from NDR to XDR", IBTA)
RDMA_MTUS = tuple(Constant(size, "bytes of payload in a packet", IBTA) for size in (256, 512, 1024, 2048, 4096))


class Payload(NamedTuple):
    """The payload's share of the line rate, the packets that it holds for, and its documents."""

    share: float
    words: str
    sources: tuple[Source, ...]


def largest_rdma_mtu(room_bytes: float) -> int:
    """Return the largest RDMA MTU that fits into `room_bytes`; 0 if none fits."""
    return max((int(mtu.value) for mtu in RDMA_MTUS if mtu.value <= room_bytes), default=0)


def rdma_mtu(ethernet_mtu_bytes: int) -> int:
    """Return the RDMA MTU for an Ethernet MTU: the largest of 256 to 4096 that leaves room for headers, else 256."""
    return largest_rdma_mtu(ethernet_mtu_bytes - ROCE_BYTES.value) or int(RDMA_MTUS[0].value)


def find_payload(protocol: EthernetLink | InfinibandLink | EfaLink) -> Payload | None:
    """Return the payload of a port's packets; None if the MTU is unknown."""
    mtu = protocol.mtu_bytes
    if mtu is None:
        return None
    if isinstance(protocol, EfaLink):
        # SRD's headers are not published. Ethernet's framing alone gives a limit that holds for any packet.
        words = f"EFA MTU {mtu}, Ethernet framing only as SRD's headers are not public"
        return Payload(mtu / (mtu + FRAME_BYTES.value), words, (IEEE_8023, SRD_PAPER))
    if isinstance(protocol, InfinibandLink):
        return Payload(mtu / (mtu + INFINIBAND_BYTES.value), f"InfiniBand MTU {mtu}", (IBTA,))
    if protocol.rdma:
        mtu = rdma_mtu(mtu)
        return Payload(mtu / (mtu + FRAME_BYTES.value + ROCE_BYTES.value), f"RoCEv2 MTU {mtu}", (IEEE_8023, ROCE))
    return Payload((mtu - TCP_BYTES.value) / (mtu + FRAME_BYTES.value), f"TCP MTU {mtu}", (IEEE_8023, RFC_IP_TCP))


def limit(link: Link) -> Limit | NoLimit:
    """Return the limit of a port, in each direction."""
    protocol = link.protocol
    assert isinstance(protocol, EthernetLink | InfinibandLink | EfaLink)
    payload = find_payload(protocol)
    if protocol.line_rate_bits_per_s is None or payload is None:
        missing = "line rate" if protocol.line_rate_bits_per_s is None else "MTU"
        return no_bandwidth(f"the {missing} of {link.id} cannot be read", f"{link.id}: {missing}")
    line = protocol.line_rate_bits_per_s / BITS_PER_BYTE
    value = line * payload.share
    rate = format_line_rate(protocol.line_rate_bits_per_s)
    is_mtu = protocol.assumed and not protocol.assumed.startswith("nic")
    of_rate, of_mtu = (" (assumed)" if marked else "" for marked in (protocol.assumed and not is_mtu, is_mtu))
    because = f"{rate} port{of_rate} of {link.a}, {payload.words}{of_mtu}: {payload.share:.1%} payload"
    steps = rate_step(f"{rate} line rate", line), rate_step(f"{payload.share:.3f} payload, {payload.words}", value)
    found = bandwidth_limit(value, because, link.id, steps, payload.sources)
    if not protocol.assumed:
        return found
    apart = _NEXT_RATE.value
    return replace(found, assumed=protocol.assumed, assumed_span=_span(protocol) if is_mtu else (1 / apart, apart))


def _span(protocol: EthernetLink | InfinibandLink | EfaLink) -> tuple[float, float]:
    """Return the payload rate with the smallest and the largest usual MTU, over that with the port's own."""
    usual = RDMA_MTUS if isinstance(protocol, InfinibandLink) else _ETHERNET_MTUS
    mtus = (int(usual[0].value), protocol.mtu_bytes, int(usual[-1].value))
    found = [find_payload(replace(protocol, mtu_bytes=mtu)) for mtu in mtus]
    low, own, high = (payload.share if payload else 1.0 for payload in found)
    return low / own, max(1.0, high / own)

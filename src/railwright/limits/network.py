"""What a NIC's port carries as payload: RoCEv2 and TCP over Ethernet, InfiniBand, and SRD of AWS's EFA.

payload share = MTU / (MTU + headers of one packet), for full packets of a long transfer.
"""

from __future__ import annotations

from railwright.limits.model import Constant, Expected, Limit, NoLimit, Source, Step
from railwright.limits.sources import EFA_MEASURED, IBTA, IEEE_8023, RDMA_MEASURED, RFC_IP_TCP, ROCE, SRD_PAPER
from railwright.topology.model import EfaLink, EthernetLink, InfinibandLink, Link
from railwright.units import BITS_PER_BYTE, format_bandwidth, format_line_rate

FRAME_BYTES = Constant(value=14 + 4 + 20, unit="bytes: header, FCS, preamble and gap", source=IEEE_8023)
ROCE_BYTES = Constant(value=20 + 8 + 12 + 4, unit="bytes: IPv4, UDP, BTH and ICRC", source=ROCE)
TCP_BYTES = Constant(value=20 + 20 + 12, unit="bytes: IPv4, TCP and time stamps, inside the MTU", source=RFC_IP_TCP)
INFINIBAND_BYTES = Constant(value=8 + 12 + 4 + 2, unit="bytes: LRH, BTH, ICRC and VCRC", source=IBTA)
RDMA_HEALTHY_SHARE = Constant(value=0.95, unit="of the payload rate, large messages", source=RDMA_MEASURED)
EFA_HEALTHY_SHARE = Constant(value=0.96, unit="of the line rate, large transfers over SRD", source=EFA_MEASURED)
RDMA_MTUS = tuple(
    Constant(value=size, unit="bytes of payload in a packet", source=IBTA) for size in (256, 512, 1024, 2048, 4096)
)


def rdma_mtu(ethernet_mtu_bytes: int) -> int:
    """The RDMA MTU that fits an Ethernet MTU: the largest of 256 to 4096 that leaves room for the headers."""
    fitting = [int(mtu.value) for mtu in RDMA_MTUS if mtu.value + ROCE_BYTES.value <= ethernet_mtu_bytes]
    return max(fitting, default=int(RDMA_MTUS[0].value))


def payload_share(protocol: EthernetLink | InfinibandLink | EfaLink) -> tuple[float, str] | None:
    """(share of the line rate, in words), None where the MTU is unknown."""
    if protocol.mtu_bytes is None:
        return None
    if isinstance(protocol, EfaLink):
        # SRD's own headers are not published: what Ethernet alone takes is a limit that no packet can pass.
        mtu = protocol.mtu_bytes
        return mtu / (mtu + FRAME_BYTES.value), f"EFA MTU {mtu}, Ethernet framing only as SRD's headers are not public"
    if isinstance(protocol, InfinibandLink):
        mtu = protocol.mtu_bytes
        return mtu / (mtu + INFINIBAND_BYTES.value), f"InfiniBand MTU {mtu}"
    if protocol.rdma:
        mtu = rdma_mtu(protocol.mtu_bytes)
        return mtu / (mtu + FRAME_BYTES.value + ROCE_BYTES.value), f"RoCEv2 MTU {mtu}"
    mtu = protocol.mtu_bytes
    return (mtu - TCP_BYTES.value) / (mtu + FRAME_BYTES.value), f"TCP MTU {mtu}"


def limit(link: Link) -> tuple[Limit | NoLimit, Expected | None]:
    """The limit of one port, each direction. No band for TCP: what it reaches depends on the host."""
    protocol = link.protocol
    assert isinstance(protocol, EthernetLink | InfinibandLink | EfaLink)
    share = payload_share(protocol)
    if protocol.line_rate_bits_per_s is None or share is None:
        missing = "line rate" if protocol.line_rate_bits_per_s is None else "MTU"
        why = f"the {missing} of {link.id} cannot be read"
        return NoLimit(quantity="bandwidth_bytes_per_s", why=why, missing=(f"{link.id}: {missing}",)), None
    line = protocol.line_rate_bits_per_s / BITS_PER_BYTE
    value = line * share[0]
    rate = format_line_rate(protocol.line_rate_bits_per_s)
    found = Limit(
        quantity="bandwidth_bytes_per_s",
        value=value,
        kind="derived",
        because=f"{rate} port of {link.a}, {share[1]}: {share[0]:.1%} payload",
        bottleneck=link.id,
        derivation=(
            Step(text=f"{rate} line rate", value=format_bandwidth(line)),
            Step(text=f"{share[0]:.3f} payload, {share[1]}", value=format_bandwidth(value)),
        ),
        sources=_sources(protocol),
    )
    if isinstance(protocol, EfaLink):
        return found, _efa_band(line, value)
    return found, _rdma_band(value) if isinstance(protocol, InfinibandLink) or protocol.rdma else None


def _rdma_band(limit_bytes_per_s: float) -> Expected:
    return Expected(
        quantity="bandwidth_bytes_per_s",
        low=RDMA_HEALTHY_SHARE.value * limit_bytes_per_s,
        high=limit_bytes_per_s,
        because="healthy RDMA ports reach their payload rate with large messages",
        sources=(RDMA_MEASURED,),
    )


def _efa_band(line_bytes_per_s: float, limit_bytes_per_s: float) -> Expected:
    return Expected(
        quantity="bandwidth_bytes_per_s",
        low=EFA_HEALTHY_SHARE.value * line_bytes_per_s,
        high=limit_bytes_per_s,
        because="healthy EFA ports reach 0.969 of their line rate in large transfers",
        sources=(EFA_MEASURED,),
    )


def _sources(protocol: EthernetLink | InfinibandLink | EfaLink) -> tuple[Source, ...]:
    match protocol:
        case InfinibandLink():
            return (IBTA,)
        case EfaLink():
            return (IEEE_8023, SRD_PAPER)
        case _:
            return (IEEE_8023, ROCE if protocol.rdma else RFC_IP_TCP)

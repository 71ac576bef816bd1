"""The payload rate of a trained PCIe link.

raw rate = GT/s x width x encoding. A transaction of MaxPayload bytes costs 24 more bytes of framing, header and LCRC;
SKIP sets take a fixed share. That is the limit. Acknowledgement and flow-control packets, sent as often as the
specification asks, take a further share.
"""

from __future__ import annotations

from typing import NamedTuple

from msgspec.structs import replace

from railwright.limits.limit import Constant, Limit, NoLimit, bandwidth_limit, no_bandwidth, rate_step
from railwright.limits.sources import INTEL_AN708, PCIE_BENCH, PCIE_SPEC
from railwright.topology.devices import Link, PcieLink
from railwright.units import BITS_PER_BYTE

# GT/s -> (PCIe generation, payload bits per bit on the wire)
_ENCODING: dict[float, tuple[int, Constant]] = {
    2.5: (1, Constant(8 / 10, "8b/10b", PCIE_SPEC)),
    5.0: (2, Constant(8 / 10, "8b/10b", PCIE_SPEC)),
    8.0: (3, Constant(128 / 130, "128b/130b", PCIE_SPEC)),
    16.0: (4, Constant(128 / 130, "128b/130b", PCIE_SPEC)),
    32.0: (5, Constant(128 / 130, "128b/130b", PCIE_SPEC)),
    64.0: (6, Constant(236 / 256, "TLP bytes per flit byte", PCIE_SPEC)),
}
TLP_OVERHEAD_BYTES = Constant(24, "bytes of framing, 64-bit header and LCRC", INTEL_AN708)
SKIP_SHARE = Constant(1 / 370, "SKIP ordered sets per block", PCIE_SPEC)
DLLP_BYTES = Constant(2 * 8, "bytes of one acknowledgement and one flow-control packet", PCIE_BENCH)
# MaxPayload -> bytes between two such pairs
_DLLP_INTERVAL: dict[int, Constant] = {
    128: Constant(144, "byte times", PCIE_BENCH),
    256: Constant(168, "byte times", PCIE_BENCH),
    512: Constant(182, "byte times", PCIE_BENCH),
}
MAX_PAYLOAD_RANGE = (
    Constant(128, "bytes, the minimum MaxPayload", PCIE_SPEC),
    Constant(4096, "bytes, the maximum MaxPayload", PCIE_SPEC),
)


_PAYLOAD_OPTION = "max-payload=512"


def generation(gt_per_s: float) -> int | None:
    """Return the PCIe generation of a rate, 1 to 6; None if no generation has it."""
    found = _ENCODING.get(gt_per_s)
    return found[0] if found else None


def describe(link: PcieLink) -> str:
    """Return the link in words: `PCIe 5.0 x16, MaxPayload 256 B`."""
    number = generation(link.gt_per_s) if link.gt_per_s else None
    name = f"PCIe {number}.0 x{link.width}" if number and link.width else "PCIe link of unknown rate"
    of_rate, of_payload = (" (assumed)" if marked else "" for marked in (link.assumed, link.payload_assumed))
    payload = (
        f"MaxPayload {link.max_payload_bytes} B{of_payload}" if link.max_payload_bytes else "MaxPayload not readable"
    )
    return f"{name}{of_rate}, {payload}"


def raw_rate(gt_per_s: float, width: int) -> float | None:
    """Return bytes/s after the line encoding; None for an unknown generation."""
    found = _ENCODING.get(gt_per_s)
    return gt_per_s * 1e9 * width / BITS_PER_BYTE * found[1].value if found else None


def payload_rate(raw: float, max_payload_bytes: float) -> float:
    """Return bytes/s of payload if every transaction is full."""
    share = max_payload_bytes / (max_payload_bytes + TLP_OVERHEAD_BYTES.value)
    return raw * share * (1 - SKIP_SHARE.value)


def payload_rate_with_dllps(raw: float, max_payload_bytes: int) -> float:
    """Return `payload_rate` less acknowledgements and flow control as specified; a MaxPayload above 512 B counts as 512
    B.
    """
    interval = _DLLP_INTERVAL[min(max_payload_bytes, max(_DLLP_INTERVAL))]
    return payload_rate(raw, max_payload_bytes) * (1 - DLLP_BYTES.value / interval.value)


class Rates(NamedTuple):
    """The rates of a link in bytes/s, in each direction."""

    raw: float
    payload: float
    """The payload rate; with the maximum MaxPayload if it cannot be read."""
    with_dllps: float
    """The same less acknowledgements and flow control; with the minimum MaxPayload if it cannot be read."""
    payload_bytes: int


def rates(protocol: PcieLink) -> Rates | None:
    """Return the rates of a link; None if its trained rate or width is unknown."""
    raw = raw_rate(protocol.gt_per_s, protocol.width) if protocol.gt_per_s and protocol.width else None
    if raw is None:
        return None
    minimum, maximum = (int(bound.value) for bound in MAX_PAYLOAD_RANGE)
    known = protocol.max_payload_bytes if protocol.max_payload_bytes in range(minimum, maximum + 1) else None
    low = payload_rate_with_dllps(raw, _specified_payload(known or minimum))
    return Rates(raw, payload_rate(raw, known or maximum), low, known or maximum)


def limit(link: Link) -> Limit | NoLimit:
    """Return the limit of a PCIe link, in each direction."""
    protocol = link.protocol
    assert isinstance(protocol, PcieLink)
    if (found := rates(protocol)) is None:
        why = f"the trained rate or width of {link.id} cannot be read"
        return no_bandwidth(why, f"{link.id}: gt_per_s, width")
    whole = found.payload_bytes + int(TLP_OVERHEAD_BYTES.value)
    steps = (
        rate_step(f"{protocol.gt_per_s:g} GT/s x {protocol.width} lanes, line encoding", found.raw),
        rate_step(f"payload {found.payload_bytes} B of {whole} B a transaction, less SKIP", found.payload),
        rate_step("less ACK and flow control at the specified rate", found.with_dllps),
    )
    because = f"{describe(protocol)}, between {link.a} and {link.b}"
    found_limit = bandwidth_limit(found.payload, because, link.id, steps, (PCIE_SPEC, INTEL_AN708, PCIE_BENCH))
    if protocol.assumed:
        return replace(found_limit, assumed=protocol.assumed)
    if not protocol.payload_assumed:
        return found_limit
    minimum, maximum = (int(bound.value) for bound in MAX_PAYLOAD_RANGE)
    low = payload_rate_with_dllps(found.raw, minimum) / found.with_dllps
    high = payload_rate(found.raw, maximum) / found.payload
    return replace(found_limit, assumed=_PAYLOAD_OPTION, assumed_span=(min(1.0, low), max(1.0, high)))


def _specified_payload(max_payload_bytes: int) -> int:
    """Return the largest power-of-two MaxPayload with a specified interval."""
    return max(size for size in _DLLP_INTERVAL if size <= max_payload_bytes)

"""NVLink, NVLink-C2C, AMD's Infinity Fabric, Gaudi's Ethernet: links times the rate of one link, in each direction."""

from __future__ import annotations

from msgspec.structs import replace

from railwright.limits import sources
from railwright.limits.limit import Constant, Limit, NoLimit, bandwidth_limit, no_bandwidth, rate_step
from railwright.topology.devices import GPU_LINKS, C2cLink, Link, NvlinkLink, Topology, XgmiLink
from railwright.topology.gpus import is_nvidia
from railwright.units import format_bandwidth

LINK_RATE: dict[int, Constant] = {
    1: Constant(20e9, "bytes/s per link and direction", sources.NVLINK_PASCAL),
    2: Constant(25e9, "bytes/s per link and direction", sources.NVLINK_VOLTA),
    3: Constant(25e9, "bytes/s per link and direction", sources.NVLINK_AMPERE),
    4: Constant(25e9, "bytes/s per link and direction", sources.NVLINK_HOPPER),
    5: Constant(50e9, "bytes/s per link and direction", sources.NVLINK_BLACKWELL),
    6: Constant(100e9, "bytes/s per link and direction", sources.NVLINK_RUBIN),
}
XGMI_RATE: dict[int, Constant] = {
    3: Constant(50e9, "bytes/s per link and direction", sources.CDNA2),
    4: Constant(64e9, "bytes/s per link and direction", sources.CDNA3),
    5: Constant(76.8e9, "bytes/s per link and direction", sources.CDNA4),
}
C2C_RATE = Constant(450e9, "bytes/s per direction", sources.GRACE_HOPPER)
_NOT_KNOWN = "NVLink of "
_CUT_SHORT = " more"
"""The end of a list of devices in `Topology.unknown` that was cut to its first entries."""


def find_unknown_gpus(machine: Topology) -> tuple[str, ...]:
    """Return the GPUs whose NVLinks have unknown ends according to the machine's `unknown`."""
    lists = [item.what.removeprefix(_NOT_KNOWN) for item in machine.unknown if item.what.startswith(_NOT_KNOWN)]
    if not lists:
        return ()
    linked = {end for link in machine.links if isinstance(link.protocol, GPU_LINKS) for end in (link.a, link.b)}
    unlinked = tuple(gpu.id for gpu in machine.of_kind("gpu") if gpu.id not in linked and is_nvidia(gpu))
    if any(words.endswith(_CUT_SHORT) for words in lists):
        return unlinked
    named = {name.strip() for words in lists for name in words.split(",")}
    return tuple(name for name in unlinked if name in named)


def limit(link: Link) -> Limit | NoLimit:
    """Return the limit of the links between two devices, in each direction."""
    protocol = link.protocol
    if isinstance(protocol, C2cLink):
        return _limit(link, protocol.bytes_per_s or C2C_RATE.value, "NVLink-C2C", C2C_RATE)
    assert isinstance(protocol, NvlinkLink | XgmiLink)
    if isinstance(protocol, XgmiLink) and protocol.bytes_per_s is not None:
        each = Constant(protocol.bytes_per_s, "bytes/s per link and direction", sources.GAUDI)
        return _limit(link, protocol.links * each.value, f"{protocol.name} x{protocol.links}", each)
    family, rates = ("NVLink", LINK_RATE) if isinstance(protocol, NvlinkLink) else ("Infinity Fabric", XGMI_RATE)
    rate = rates.get(protocol.generation)
    if rate is None or protocol.links < 1:
        why = f"{family} generation {protocol.generation} with {protocol.links} links is not known"
        return no_bandwidth(why, f"{link.id}: rate of a link")
    assumed = protocol.assumed if isinstance(protocol, NvlinkLink) else ""
    name = f"{family} {protocol.generation} x{protocol.links}{' (assumed)' if assumed else ''}"
    found = _limit(link, protocol.links * rate.value, name, rate)
    if not assumed:
        return found
    highest = max(each.value for each in LINK_RATE.values())
    return replace(found, assumed=assumed, assumed_span=(1.0, highest / rate.value))


def _limit(link: Link, value: float, name: str, constant: Constant) -> Limit:
    each = value if isinstance(link.protocol, C2cLink) else constant.value
    step = rate_step(f"{name} at {format_bandwidth(each)} each", value)
    return bandwidth_limit(value, f"{name}, between {link.a} and {link.b}", link.id, [step], (constant.source,))

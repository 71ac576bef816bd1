"""NVLink and NVLink-C2C: active links times the rate of one link, each direction.

What healthy machines reach of it is experience (protocol overhead is not published), so it is a band and no limit.
"""

from __future__ import annotations

from railwright.limits.model import Constant, Expected, Limit, NoLimit, Step
from railwright.limits.sources import (
    GRACE_HOPPER,
    H200_MEASURED,
    NCCL_TESTS_212,
    NVLINK_AMPERE,
    NVLINK_BLACKWELL,
    NVLINK_HOPPER,
    NVLINK_PASCAL,
    NVLINK_VOLTA,
)
from railwright.topology.gpus import is_nvidia
from railwright.topology.model import GPU_LINKS, C2cLink, Link, NvlinkLink, Topology
from railwright.units import format_bandwidth

LINK_RATE: dict[int, Constant] = {
    1: Constant(value=20e9, unit="bytes/s a link and direction", source=NVLINK_PASCAL),
    2: Constant(value=25e9, unit="bytes/s a link and direction", source=NVLINK_VOLTA),
    3: Constant(value=25e9, unit="bytes/s a link and direction", source=NVLINK_AMPERE),
    4: Constant(value=25e9, unit="bytes/s a link and direction", source=NVLINK_HOPPER),
    5: Constant(value=50e9, unit="bytes/s a link and direction", source=NVLINK_BLACKWELL),
}
C2C_RATE = Constant(value=450e9, unit="bytes/s a direction", source=GRACE_HOPPER)
HEALTHY_SHARE = Constant(value=0.8, unit="of links x rate, large copies", source=NCCL_TESTS_212)
_NOT_KNOWN = "NVLink of "
_CUT_SHORT = " more"
"""At the end of a list of devices in `Topology.unknown` that names its first ones only."""


def not_known(machine: Topology) -> tuple[str, ...]:
    """The GPUs of which the machine lists in `unknown` that it cannot say where their NVLinks lead."""
    lists = [one.what.removeprefix(_NOT_KNOWN) for one in machine.unknown if one.what.startswith(_NOT_KNOWN)]
    if not lists:
        return ()
    linked = {end for link in machine.links if isinstance(link.protocol, GPU_LINKS) for end in (link.a, link.b)}
    unlinked = tuple(gpu.id for gpu in machine.of_kind("gpu") if gpu.id not in linked and is_nvidia(gpu))
    if any(words.endswith(_CUT_SHORT) for words in lists):
        return unlinked
    named = {name.strip() for words in lists for name in words.split(",")}
    return tuple(name for name in unlinked if name in named)


def limit(link: Link) -> tuple[Limit | NoLimit, Expected | None]:
    """The limit and band of the NVLinks between two devices, each direction."""
    protocol = link.protocol
    if isinstance(protocol, C2cLink):
        return _limit(link, C2C_RATE.value, "NVLink-C2C", C2C_RATE), None
    assert isinstance(protocol, NvlinkLink)
    rate = LINK_RATE.get(protocol.generation)
    if rate is None or protocol.links < 1:
        why = f"NVLink generation {protocol.generation} with {protocol.links} links is not known"
        return NoLimit(quantity="bandwidth_bytes_per_s", why=why, missing=(f"{link.id}: rate of a link",)), None
    value = protocol.links * rate.value
    found = _limit(link, value, f"NVLink {protocol.generation} x{protocol.links}", rate)
    band = Expected(
        quantity="bandwidth_bytes_per_s",
        low=HEALTHY_SHARE.value * value,
        high=value,
        because="large copies reach 0.8 or more of links x rate on healthy machines",
        sources=(NCCL_TESTS_212, H200_MEASURED),
    )
    return found, band


def _limit(link: Link, value: float, name: str, constant: Constant) -> Limit:
    return Limit(
        quantity="bandwidth_bytes_per_s",
        value=value,
        kind="derived",
        because=f"{name}, between {link.a} and {link.b}",
        bottleneck=link.id,
        derivation=(Step(text=f"{name} at {format_bandwidth(constant.value)} each", value=format_bandwidth(value)),),
        sources=(constant.source,),
    )

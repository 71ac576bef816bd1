"""The limit of a path: its narrowest link.

A link without a known limit (inside a chip, between sockets, virtual) cannot raise what the others allow, so the
narrowest known link still bounds the path.
"""

from __future__ import annotations

from functools import cache

from msgspec.structs import replace

from railwright.limits import memory, network, nvlink, pcie
from railwright.limits.limit import Limit, NoLimit, no_bandwidth
from railwright.topology.devices import (
    GPU_LINKS,
    C2cLink,
    EfaLink,
    EthernetLink,
    InfinibandLink,
    InternalLink,
    Link,
    MemoryLink,
    NvlinkLink,
    Path,
    PcieLink,
    Topology,
    XgmiLink,
)

_WIDE_ENOUGH = frozenset({"", "root complex", "card", "namespace", "drive controller"})


@cache  # each collective, algorithm and fault needs the same links again
def link_limit(link: Link) -> Limit | NoLimit:
    """Return the limit of a link of any protocol, in each direction."""
    match link.protocol:
        case PcieLink():
            return pcie.limit(link)
        case NvlinkLink() | C2cLink() | XgmiLink():
            return nvlink.limit(link)
        case EthernetLink() | InfinibandLink() | EfaLink():
            return network.limit(link)
        case MemoryLink():
            return memory.limit(link)
        case InternalLink(name=name):
            why = f"{link.id} is {name or 'inside one chip'}: no document gives its rate"
        case _:
            why = f"no document gives the rate of {link.id} between NUMA nodes"
    return no_bandwidth(why)


def path_limit(path: Path) -> Limit | NoLimit:
    """Return the limit of a path."""
    found = [link_limit(link) for link in path.links]
    unknown = [limit for limit in found if isinstance(limit, NoLimit)]
    if len(unknown) == len(found):
        why = unknown[0].why if unknown else f"{path.id} has no link"
        return no_bandwidth(why, *(name for limit in unknown for name in limit.missing))
    return min((limit for limit in found if isinstance(limit, Limit)), key=lambda limit: limit.value)


def limit_over_nics(path: Path, count: int) -> Limit | NoLimit:
    """Return the limit of a path over `count` NICs at each end: their links count `count` times, others once."""
    nics = {device for device in path.devices if device.startswith("nic")}
    found = []
    for link in path.links:
        limit = link_limit(link)
        if isinstance(limit, Limit):
            times = count if nics & {link.a, link.b} else 1
            because = limit.because if times == 1 else f"{times} of: {limit.because}"
            found.append(replace(limit, value=limit.value * times, because=because))
    return min(found, key=lambda limit: limit.value, default=path_limit(path))


def has_unknown_link(path: Path) -> bool:
    """Report whether a link of unknown rate may be narrower than the path's limit."""
    return any(_may_be_narrower(link) for link in path.links if isinstance(link_limit(link), NoLimit))


def limit_host_path(machine: Topology, path: Path) -> Limit | NoLimit:
    """Return the limit of a path inside a machine, whose ids may end in `@host`.

    There is none between two GPUs over PCIe if it is unknown whether NVLink joins them, for NVLink would be their path.
    """
    ends = [path.devices[place].partition("@")[0] for place in (0, -1)]
    devices = [machine.device(end) for end in ends]
    over_pcie = path.kind != "NET" and not all(isinstance(link.protocol, (*GPU_LINKS, C2cLink)) for link in path.links)
    unknown = [gpu for gpu in nvlink.find_unknown_gpus(machine) if gpu in ends]
    if not over_pcie or not unknown or any(device is None or device.kind != "gpu" for device in devices):
        return path_limit(path)
    why = f"whether NVLink joins {ends[0]} and {ends[1]} is not known"
    missing = tuple(f"{gpu}: NVLink" for gpu in unknown)
    return no_bandwidth(why, *missing)


def _may_be_narrower(link: Link) -> bool:
    """Report whether a link of unknown rate can limit a path.

    Memory and the inside of a chip or card do not limit one device. A hypervisor's emulated link, or a link between
    sockets, may.
    """
    if isinstance(link.protocol, InternalLink):
        return link.protocol.name not in _WIDE_ENOUGH
    return not isinstance(link.protocol, MemoryLink)

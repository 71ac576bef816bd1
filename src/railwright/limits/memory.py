"""What a NUMA node's memory can carry: channels x transfers/s x bytes of the bus, reads and writes together."""

from __future__ import annotations

from msgspec.structs import replace

from railwright.limits.limit import Bounds, Limit, bandwidth_limit, no_bandwidth, rate_step
from railwright.limits.sources import JEDEC_DDR, SMBIOS
from railwright.topology.devices import Link, MemoryLink, Topology


def limit(link: Link) -> Bounds:
    """The limit of one node's memory channels. No band: no document says what healthy machines reach."""
    protocol = link.protocol
    assert isinstance(protocol, MemoryLink)
    if not (protocol.channels and protocol.transfers_per_s and protocol.bus_bytes):
        why = "memory channels and their rate cannot be read (no DMI table, as in most VMs)"
        return no_bandwidth(why, f"{link.id}: channels, rate"), None
    value = protocol.channels * protocol.transfers_per_s * protocol.bus_bytes
    mega = protocol.transfers_per_s / 1e6
    because = f"{protocol.channels} memory channels at {mega:.0f} MT/s of {link.a}"
    step = rate_step(f"{protocol.channels} channels x {mega:.0f} MT/s x {protocol.bus_bytes} B", value)
    return bandwidth_limit(value, because, link.id, [step], (JEDEC_DDR, SMBIOS)), None


def copy_limit(of_memory: Limit) -> Limit:
    """The limit of copying within one memory: every byte is read and written, so half of what the memory carries."""
    value = of_memory.value / 2
    step = rate_step("a copy reads and writes each byte: half", value)
    because = f"{of_memory.because}, read and written"
    return replace(of_memory, value=value, because=because, derivation=(*of_memory.derivation, step))


def limit_inside(topology: Topology, memory: str) -> Bounds:
    """A copy inside one memory, bytes counted once."""
    for link in topology.links:
        if isinstance(link.protocol, MemoryLink) and memory in (link.a, link.b):
            whole, _ = limit(link)
            return (copy_limit(whole) if isinstance(whole, Limit) else whole), None
    return no_bandwidth(f"the topology does not say how {memory} is attached"), None

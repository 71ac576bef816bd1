"""What a NUMA node's memory can carry: channels x transfers/s x bytes of the bus, reads and writes together."""

from __future__ import annotations

from railwright.limits.model import Expected, Limit, NoLimit, Step
from railwright.limits.sources import JEDEC_DDR, SMBIOS
from railwright.topology.model import Link, MemoryLink
from railwright.units import format_bandwidth


def limit(link: Link) -> tuple[Limit | NoLimit, Expected | None]:
    """The limit of one node's memory channels. No band: no document says what healthy machines reach."""
    protocol = link.protocol
    assert isinstance(protocol, MemoryLink)
    if not (protocol.channels and protocol.transfers_per_s and protocol.bus_bytes):
        why = "memory channels and their rate cannot be read (no DMI table, as in most VMs)"
        return NoLimit(quantity="bandwidth_bytes_per_s", why=why, missing=(f"{link.id}: channels, rate",)), None
    value = protocol.channels * protocol.transfers_per_s * protocol.bus_bytes
    mega = protocol.transfers_per_s / 1e6
    found = Limit(
        quantity="bandwidth_bytes_per_s",
        value=value,
        kind="derived",
        because=f"{protocol.channels} memory channels at {mega:.0f} MT/s of {link.a}",
        bottleneck=link.id,
        derivation=(
            Step(
                text=f"{protocol.channels} channels x {mega:.0f} MT/s x {protocol.bus_bytes} B",
                value=format_bandwidth(value),
            ),
        ),
        sources=(JEDEC_DDR, SMBIOS),
    )
    return found, None


def copy_limit(of_memory: Limit) -> Limit:
    """The limit of copying within one memory: every byte is read and written, so half of what the channels carry."""
    value = of_memory.value / 2
    step = Step(text="a copy reads and writes each byte: half", value=format_bandwidth(value))
    return Limit(
        quantity=of_memory.quantity,
        value=value,
        kind="derived",
        because=f"{of_memory.because}, read and written",
        bottleneck=of_memory.bottleneck,
        derivation=(*of_memory.derivation, step),
        sources=of_memory.sources,
    )

"""Memory channels from the firmware's SMBIOS table, which only root may read and most VMs do not have; of Grace, by
capacity.

SMBIOS lists modules, not channels. A channel counts only if the firmware's own names of the sockets give
their channel; otherwise it stays unknown.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import msgspec
from msgspec.structs import replace

from railwright.topology.devices import MemoryLink
from railwright.topology.sources.notes import Notes
from railwright.topology.sources.root import Root, Unreadable
from railwright.topology.sources.smbios import MEMORY_DEVICE, Structure, structures
from railwright.topology.sources.text import word

TABLE = "sys/firmware/dmi/tables/DMI"
SOC = "sys/devices/soc0/soc_id"
_GRACE = "jep106:036b:0241"
"""NVIDIA's T241, which is Grace (Linux, drivers/irqchip/irq-gic-v3.c)."""
_GRACE_CHANNELS = 8
"""Its LPDDR5X as channels of 64 bits."""
_FAST_BYTES, _FAST, _SLOW = 256 * 2**30, 8000e6, 6000e6
"""A Grace with 120 or 240 GB has 512 GB/s, one with 480 GB has 384 (NVIDIA Grace Performance Tuning Guide, Basic System
Health Checks: bandwidth by capacity; NVIDIA GB300 NVL72 page: 14 TB/s of 36)."""

_USE_EXTENDED = 0xFFFF
# (processor, channel) in the two locator strings of a module; each pattern is the form of one maker.
_LOCATORS = (
    re.compile(r"P(\d)_NODE\d+_CHANNEL(\d+)_DIMM\d+"),  # Supermicro, Intel reference: bank locator
    re.compile(r"NODE ?(\d)[ _]CHANNEL ?(\w)[ _]DIMM ?\d"),
    re.compile(r"P(\d) CHANNEL ([A-P])"),  # AMD reference: bank locator
    re.compile(r"(?:CPU|P)(\d)[ _-]?DIMM[ _-]?([A-P])\d?"),
    re.compile(r"DIMM[ _-]P(\d)[ _-]([A-P])\d"),
)


class _Module(msgspec.Struct, frozen=True):
    processor: str
    channel: str
    transfers_per_s: float | None
    bus_bytes: int | None


def read_channels(root: Root, notes: Notes, *, sizes_bytes: Sequence[int]) -> tuple[MemoryLink, ...]:
    """Return the populated channels of each socket, in the order of the firmware's names; empty if unknown.

    `sizes_bytes` has the capacity of each socket.
    """
    sockets = len(sizes_bytes)
    if _is_grace(root):
        return tuple(map(_grace_channels, sizes_bytes))
    table = root.read_bytes(TABLE)
    if isinstance(table, Unreadable):
        why = f"the firmware shows no SMBIOS table (/{TABLE})" if table.is_absent else f"/{TABLE}: {table.reason}"
        notes.missing("memory channels and speed", why)
        return ()
    modules = [module for structure in structures(table) if (module := _parse_module(structure))]
    if not modules:
        notes.missing("memory channels and speed", f"/{TABLE} lists no populated module")
        return ()
    processors = sorted({module.processor for module in modules})
    if "" in processors or len(processors) != sockets:
        named = 0 if "" in processors else len(processors)
        notes.missing("memory channels", f"SMBIOS names memory of {named} sockets, the kernel sees {sockets}")
        return (replace(_combine_channels(modules), channels=None),) * sockets
    return tuple(_combine_channels([module for module in modules if module.processor == name]) for name in processors)


def _grace_channels(size_bytes: int) -> MemoryLink:
    """Return the channels of a Grace CPU with that capacity, which are soldered: no table lists them."""
    rate = _FAST if size_bytes <= _FAST_BYTES else _SLOW
    assumed = f"memory={_GRACE_CHANNELS}x{rate / 1e6:.0f}"
    return MemoryLink(channels=_GRACE_CHANNELS, transfers_per_s=rate, bus_bytes=8, assumed=assumed)


def _is_grace(root: Root) -> bool:
    return word(root.read(SOC)) == _GRACE


def share(socket: MemoryLink | None, nodes: int) -> MemoryLink:
    """Return the channels of a NUMA node: a socket's, shared evenly if it is split into several nodes."""
    if socket is None or socket.channels is None:
        return socket or MemoryLink()
    return replace(socket, channels=socket.channels // nodes if socket.channels % nodes == 0 else None)


def _combine_channels(modules: list[_Module]) -> MemoryLink:
    """Return the channels of modules. All run at the speed of the slowest module in the socket."""
    speeds = [module.transfers_per_s for module in modules if module.transfers_per_s]
    widths = {module.bus_bytes for module in modules}
    return MemoryLink(
        channels=len({module.channel for module in modules}),
        transfers_per_s=min(speeds) if len(speeds) == len(modules) else None,
        bus_bytes=widths.pop() if len(widths) == 1 else None,
    )


def _parse_module(structure: Structure) -> _Module | None:
    """Return a populated memory module (DSP0134 section 7.18); None for other structures."""
    if structure.kind != MEMORY_DEVICE or not structure.number(0x0C, 2):
        return None
    bits = structure.number(0x0A, 2)
    speed = structure.number(0x20, 2) or structure.number(0x15, 2)
    if speed == _USE_EXTENDED:
        speed = structure.number(0x58, 4) or structure.number(0x54, 4)
    processor, channel = _parse_locators(structure.string(0x10), structure.string(0x11))
    return _Module(
        processor,
        channel,
        float(speed) * 1e6 if speed and speed < 100_000 else None,
        bits // 8 if bits in (8, 16, 32, 64) else None,
    )


def _parse_locators(device_locator: str, bank_locator: str) -> tuple[str, str]:
    """Return processor and channel, both empty if the names do not give them."""
    for locator in (bank_locator.upper(), device_locator.upper()):
        for pattern in _LOCATORS:
            if match := pattern.search(locator):
                return match.group(1), match.group(2)
    return "", ""

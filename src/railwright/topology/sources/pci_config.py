"""PCI configuration space as bytes: what the kernel shows of it in `config`.

Only root may read beyond the first 64 bytes, so every answer can be None.
Register layout: PCI Express Base Specification, chapter 7; names after Linux include/uapi/linux/pci_regs.h.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

import msgspec

STANDARD_HEADER_BYTES = 64
CONVENTIONAL_BYTES = 256

CAPABILITY_PCIE = 0x10
EXTENDED_SERIAL_NUMBER = 0x0003
EXTENDED_ACS = 0x000D
EXTENDED_ATS = 0x000F

PortType = Literal["endpoint", "root_port", "upstream", "downstream", "other_bridge", "root_complex_endpoint"]

_PORT_TYPES: dict[int, PortType] = {
    0: "endpoint",
    1: "endpoint",
    4: "root_port",
    5: "upstream",
    6: "downstream",
    7: "other_bridge",
    8: "other_bridge",
    9: "root_complex_endpoint",
    10: "root_complex_endpoint",
}
_ACS_REQUEST_REDIRECT = 1 << 2
_ATS_ENABLE = 1 << 15


class PcieCapability(msgspec.Struct, frozen=True):
    """What the PCI Express capability of one function says. Sizes in bytes."""

    port_type: PortType
    max_payload_bytes: int
    max_read_request_bytes: int


def capabilities(config: bytes) -> Iterator[tuple[int, int]]:
    """The conventional capabilities as (id, offset). A list that loops or leaves the space ends there."""
    if len(config) <= STANDARD_HEADER_BYTES or not config[0x06] & 0x10:
        return
    seen: set[int] = set()
    offset = config[0x34] & 0xFC
    while STANDARD_HEADER_BYTES <= offset < min(len(config), CONVENTIONAL_BYTES) - 1 and offset not in seen:
        seen.add(offset)
        yield config[offset], offset
        offset = config[offset + 1] & 0xFC


def extended_capabilities(config: bytes) -> Iterator[tuple[int, int]]:
    """The PCI Express extended capabilities as (id, offset)."""
    seen: set[int] = set()
    offset = CONVENTIONAL_BYTES
    while CONVENTIONAL_BYTES <= offset <= len(config) - 8 and offset not in seen:
        seen.add(offset)
        header = int.from_bytes(config[offset : offset + 4], "little")
        if header in (0, 0xFFFFFFFF):
            return
        yield header & 0xFFFF, offset
        offset = (header >> 20) & 0xFFC


def pcie_capability(config: bytes) -> PcieCapability | None:
    """The PCI Express capability, None where it is absent or cannot be read."""
    for identifier, offset in capabilities(config):
        if identifier == CAPABILITY_PCIE and offset + 10 <= len(config):
            flags = _word(config, offset + 2)
            control = _word(config, offset + 8)
            return PcieCapability(
                _PORT_TYPES.get((flags >> 4) & 0xF, "endpoint"),
                _size_bytes((control >> 5) & 7),
                _size_bytes((control >> 12) & 7),
            )
    return None


def acs_redirect(config: bytes) -> bool | None:
    """Whether this port sends peer-to-peer requests up; False without ACS, None where it cannot be read."""
    if len(config) <= CONVENTIONAL_BYTES:
        return None
    for identifier, offset in extended_capabilities(config):
        if identifier == EXTENDED_ACS:
            return bool(_word(config, offset + 6) & _ACS_REQUEST_REDIRECT)
    return False


def ats_enabled(config: bytes) -> bool | None:
    """Whether Address Translation Services are on; False without ATS, None where it cannot be read."""
    if len(config) <= CONVENTIONAL_BYTES:
        return None
    for identifier, offset in extended_capabilities(config):
        if identifier == EXTENDED_ATS:
            return bool(_word(config, offset + 6) & _ATS_ENABLE)
    return False


def _word(config: bytes, offset: int) -> int:
    return int.from_bytes(config[offset : offset + 2], "little")


def _size_bytes(code: int) -> int:
    return 128 << code

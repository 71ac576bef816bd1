"""PCI configuration space as the bytes of the kernel's `config` file.

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

_PORT_TYPES: dict[int, PortType] = {  # all others are endpoints
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
_RELAXED_ORDERING = 1 << 4
_SUPPORTED_PAYLOAD = 7


class ConfigSpace(msgspec.Struct, frozen=True, kw_only=True):
    """The fields of a function's configuration space. None means unreadable. Sizes in bytes."""

    size_bytes: int
    """The readable size: 64 without root, 4096 for a PCIe function."""
    port_type: PortType | None = None
    max_payload_bytes: int | None = None
    max_payload_supported_bytes: int | None = None
    max_read_request_bytes: int | None = None
    relaxed_ordering: bool | None = None
    """Whether the function may mark its writes as relaxed, so that others may overtake them."""
    acs_redirect: bool | None
    """Whether this port sends peer-to-peer requests up to the root complex; False without ACS."""
    ats_enabled: bool | None
    """Whether Address Translation Services are on; False without ATS."""
    ats_capable: bool | None = None
    """Whether it has Address Translation Services at all."""


def capabilities(config: bytes) -> Iterator[tuple[int, int]]:
    """Yield the conventional capabilities as (id, offset). A list that loops or leaves the space ends there."""
    if len(config) <= STANDARD_HEADER_BYTES or not config[0x06] & 0x10:
        return
    seen: set[int] = set()
    offset = config[0x34] & 0xFC
    while STANDARD_HEADER_BYTES <= offset < min(len(config), CONVENTIONAL_BYTES) - 1 and offset not in seen:
        seen.add(offset)
        yield config[offset], offset
        offset = config[offset + 1] & 0xFC


def extended_capabilities(config: bytes) -> Iterator[tuple[int, int]]:
    """Yield the PCI Express extended capabilities as (id, offset)."""
    seen: set[int] = set()
    offset = CONVENTIONAL_BYTES
    while CONVENTIONAL_BYTES <= offset <= len(config) - 8 and offset not in seen:
        seen.add(offset)
        header = int.from_bytes(config[offset : offset + 4], "little")
        if header in (0, 0xFFFFFFFF):
            return
        yield header & 0xFFFF, offset
        offset = (header >> 20) & 0xFFC


def read_config(config: bytes) -> ConfigSpace:
    """Parse a configuration space, which may be cut off anywhere."""
    space = ConfigSpace(
        size_bytes=len(config),
        acs_redirect=_is_set(config, EXTENDED_ACS, _ACS_REQUEST_REDIRECT),
        ats_enabled=_is_set(config, EXTENDED_ATS, _ATS_ENABLE),
        ats_capable=_has_capability(config, EXTENDED_ATS),
    )
    for identifier, offset in capabilities(config):
        if identifier == CAPABILITY_PCIE and offset + 10 <= len(config):
            flags, able, control = (_word(config, offset + at) for at in (2, 4, 8))
            return msgspec.structs.replace(
                space,
                port_type=_PORT_TYPES.get((flags >> 4) & 0xF, "endpoint"),
                max_payload_bytes=128 << (control >> 5 & 7),
                max_payload_supported_bytes=128 << (able & _SUPPORTED_PAYLOAD),
                relaxed_ordering=bool(control & _RELAXED_ORDERING),
                max_read_request_bytes=128 << (control >> 12 & 7),
            )
    return space


def _is_set(config: bytes, capability: int, bit: int) -> bool | None:
    """Return a bit of the control register of ACS or ATS; False without that capability, None if unreadable."""
    if len(config) <= CONVENTIONAL_BYTES:
        return None
    controls = (_word(config, at + 6) for identifier, at in extended_capabilities(config) if identifier == capability)
    return bool(next(controls, 0) & bit)


def _has_capability(config: bytes, capability: int) -> bool | None:
    if len(config) <= CONVENTIONAL_BYTES:
        return None
    return any(identifier == capability for identifier, _ in extended_capabilities(config))


def _word(config: bytes, offset: int) -> int:
    return int.from_bytes(config[offset : offset + 2], "little")

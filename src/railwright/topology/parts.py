"""The devices and links of a machine during assembly."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Annotated, get_args

from msgspec import Meta

from railwright.topology.devices import Device, DeviceKind, Link, Protocol, Record, Scalar

_ID_PREFIX = {"pcie_switch": "switch"}
_KINDS: tuple[DeviceKind, ...] = get_args(DeviceKind)
FABRIC = "fabric0"


class Cpuid(Record, frozen=True, kw_only=True):
    """The numbers in /proc/cpuinfo that identify a kind of processor."""

    vendor: str = ""
    architecture: str = "x86_64"
    family: Annotated[int, Meta(ge=0, le=0xFFFF)] | None = None
    model: Annotated[int, Meta(ge=0, le=0xFFFF)] | None = None


class Parts:
    """A machine under construction. Devices of a kind are numbered in the order of their addition."""

    def __init__(self) -> None:
        self._devices: list[Device] = []
        self._links: list[Link] = []
        self._counts: Counter[str] = Counter()
        self._ids: set[str] = set()

    def add(
        self,
        kind: DeviceKind,
        *,
        device_id: str = "",
        name: str = "",
        address: str = "",
        numa: int | None = None,
        facts: Mapping[str, Scalar | None] | None = None,
        under: tuple[str, Protocol] | None = None,
    ) -> str:
        """Add a device and return its id. Facts that are None or empty are left out.

        `under` is the next device towards the CPU and the link to it.
        """
        if not device_id or device_id in self._ids:
            prefix = device_id or _ID_PREFIX.get(kind, kind)
            while not device_id or device_id in self._ids:
                device_id = f"{prefix}{self._counts[prefix]}"
                self._counts[prefix] += 1
        self._ids.add(device_id)
        known = known_facts(facts or {})
        self._devices.append(Device(id=device_id, kind=kind, name=name, address=address, numa=numa, facts=known))
        if under is not None:
            self.link(under[0], device_id, under[1])
        return device_id

    def link(self, upper: str, lower: str, protocol: Protocol) -> None:
        """Join two devices; `upper` is the one nearer the CPU."""
        self._links.append(Link(a=upper, b=lower, protocol=protocol))

    def devices(self) -> tuple[Device, ...]:
        """Return all devices, grouped by kind."""
        return tuple(sorted(self._devices, key=lambda device: _KINDS.index(device.kind)))

    def links(self) -> tuple[Link, ...]:
        """Return all links, in the order of their addition."""
        return tuple(self._links)


def known_facts(facts: Mapping[str, Scalar | None]) -> dict[str, Scalar]:
    """Return the facts that are neither None nor empty."""
    return {key: value for key, value in facts.items() if value is not None and value != ""}

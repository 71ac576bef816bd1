"""An InfiniBand subnet as its tools print it: nodes, cables with their rates, LIDs, and the switches' tables."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple


class Node(NamedTuple):
    """A switch, or an adapter of a host."""

    name: str
    """Of the switch, or of the host."""
    adapter: str
    """Empty for a switch, and for a host that does not name it."""
    is_switch: bool

    def port_name(self, number: str) -> str:
        """A host's port is called as its adapter, which mostly has one; without an adapter's name it is the number."""
        if not self.adapter:
            return number
        return self.adapter if number == "1" else f"{self.adapter}/{number}"


class Plug(NamedTuple):
    """One end of a cable."""

    guid: str
    port: int


class Wire(NamedTuple):
    """A cable."""

    ends: tuple[Plug, Plug]
    rate_bits_per_s: float | None
    """Of signalling in one direction, as the width and speed that both ends agreed on; None where it is not told."""


class Subnet(NamedTuple):
    """What is known of it."""

    nodes: Mapping[str, Node]
    """By GUID."""
    wires: tuple[Wire, ...]
    lids: Mapping[Plug, int]
    """The first LID of each port of an adapter."""
    tables: Mapping[str, Mapping[int, int]]
    """Of each switch, by GUID: the port by which packets to a LID leave. Empty where no tables were read."""

"""An InfiniBand subnet from its tools' output: nodes, cables with their rates, LIDs, and the switches' tables."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple


class Node(NamedTuple):
    """A switch, or an adapter of a host."""

    name: str
    """The name of the switch or host."""
    adapter: str
    """The adapter's name; empty for a switch, or for a host that does not name it."""
    is_switch: bool

    def port_name(self, number: str) -> str:
        """Return the adapter's name for a host's port, as most adapters have one port; without that name, the
        number.
        """
        if not self.adapter:
            return number
        return self.adapter if number == "1" else f"{self.adapter}/{number}"


class Plug(NamedTuple):
    """An end of a cable."""

    guid: str
    port: int


class Wire(NamedTuple):
    """A cable."""

    ends: tuple[Plug, Plug]
    rate_bits_per_s: float | None
    """The signalling rate in one direction, from the width and speed that both ends agreed on; None if unknown."""


class Subnet(NamedTuple):
    """The known parts of a subnet."""

    nodes: Mapping[str, Node]
    """Nodes by GUID."""
    wires: tuple[Wire, ...]
    lids: Mapping[Plug, int]
    """The first LID of each port of an adapter."""
    tables: Mapping[str, Mapping[int, int]]
    """By GUID of a switch: the port by which packets to a LID leave. Empty if no tables were read."""

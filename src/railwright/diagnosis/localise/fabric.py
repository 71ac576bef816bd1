"""The fabric model of localisation: NIC ports, switches in tiers, cables, and classes of directed links.

A *class* is a set of links on the same flows, which no probe can distinguish. A NIC, its cable and the port of its
leaf are one class in each direction; so is each cable between two switches. Class `2 * cable` leads up (away from the
hosts), class `2 * cable + 1` leads down.

Nodes are numbered: NIC ports first, then switches from the lowest tier to the highest. The capacity of a cable is that
of one direction, in units of a NIC port's rate.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from random import Random
from typing import Literal, NamedTuple

from railwright.errors import UsageError

Way = Literal["up", "down", "both"]
Path = tuple[int, ...]
"""The classes that a flow crosses, in order."""

UP, DOWN = 0, 1
_MAX_IN_A_ROW = 8
_INSPECTED_PORTS = 256
CARD_PORTS = 16
"""The assumed number of switch ports per line card."""


class CableSpec(NamedTuple):
    """A cable by the names of its ends: a host's port or a switch below, a switch above."""

    lower: str
    lower_port: str
    upper: str
    upper_port: str
    capacity: float


@dataclass(frozen=True)
class Fabric:
    """The immutable graph of hosts, NIC ports, switches and cables that a search runs on; `build_fabric` creates it."""

    hosts: tuple[str, ...]
    nic_host: tuple[int, ...]
    """The index of the host of each NIC port."""
    nic_port: tuple[str, ...]
    nic_rail: tuple[int, ...]
    """The rail of each port; flows stay on their rail. All 0 if every port reaches every other."""
    switches: tuple[str, ...]
    lower: tuple[int, ...]
    """The node at the lower end of each cable; a NIC's cable has the number of the NIC."""
    upper: tuple[int, ...]
    ports: tuple[tuple[str, str], ...]
    """The names of the two ports of each cable, the lower end's first; empty if unknown."""
    capacity: tuple[float, ...]
    above: tuple[tuple[int, ...], ...] = field(repr=False)
    """The cables that lead up from each node."""
    below: tuple[tuple[int, ...], ...] = field(repr=False)
    """The cables that lead down from each node."""
    joining: dict[tuple[int, int], tuple[int, ...]] = field(repr=False)
    """The cables between two switches, by (lower, upper)."""

    ways: Callable[[int, int], Path | None] | None = field(default=None, repr=False, compare=False)
    """Returns the path between two NIC ports if tables prescribe it; None if any path may be chosen."""

    @property
    def nics(self) -> int:
        """The number of NIC ports."""
        return len(self.nic_host)

    @property
    def classes(self) -> int:
        """The number of classes of directed links."""
        return 2 * len(self.lower)

    def leaf_of(self, nic: int) -> int:
        """Return the node of a NIC port's leaf switch."""
        return self.upper[nic]

    def node_name(self, node: int) -> str:
        """Return the name of a node: `host5:rail1` for a NIC port, `leaf2` for a switch."""
        if node < self.nics:
            return f"{self.hosts[self.nic_host[node]]}:{self.nic_port[node]}"
        return self.switches[node - self.nics]

    def cable_name(self, cable: int) -> str:
        """Return the name of a cable: `host5:rail1`, `leaf2-spine1`, or `leaf2-spine1#1` for the second of two."""
        lower, upper = self.lower[cable], self.upper[cable]
        if cable < self.nics:
            return self.node_name(lower)
        twins = self.joining[lower, upper]
        which = f"#{twins.index(cable)}" if len(twins) > 1 else ""
        return f"{self.node_name(lower)}-{self.node_name(upper)}{which}"

    def class_name(self, number: int) -> str:
        """Return the name of a class as sender and receiver: `leaf2 to spine1`."""
        cable, down = divmod(number, 2)
        ends = [self.node_name(self.lower[cable]), self.node_name(self.upper[cable])]
        return " to ".join(reversed(ends) if down else ends)

    def switches_of(self, path: Path) -> tuple[str, ...]:
        """Return the names of the switches on a path."""
        ups = [self.upper[number // 2] for number in path if number % 2 == 0]
        downs = [self.lower[number // 2] for number in path[:-1] if number % 2]
        return tuple(self.node_name(node) for node in (*ups, *downs))

    def classes_of_switch(self, node: int, way: Literal["out", "in", "both"]) -> list[int]:
        """Return the classes that a switch sends over, receives over, or both."""
        found: list[int] = []
        for cables, out in ((self.above[node], UP), (self.below[node], DOWN)):
            if way != "in":
                found += [2 * cable + out for cable in cables]
            if way != "out":
                found += [2 * cable + 1 - out for cable in cables]
        return found

    def cards(self, node: int) -> list[tuple[int, ...]]:
        """Return a switch's cables by line card: downlinks, then uplinks, in groups of `CARD_PORTS`."""
        cables = (*self.below[node], *self.above[node])
        return [cables[start : start + CARD_PORTS] for start in range(0, len(cables), CARD_PORTS)]

    @cached_property
    def nics_of_host(self) -> tuple[tuple[int, ...], ...]:
        """The NIC ports of each host."""
        found: list[list[int]] = [[] for _ in self.hosts]
        for nic, host in enumerate(self.nic_host):
            found[host].append(nic)
        return tuple(map(tuple, found))

    def twin_of(self, number: int) -> int:
        """Return the representative of classes on the same flows, if a switch joins only two links.

        Traffic up one of two cables below a top switch comes down the other.
        """
        for _ in range(_MAX_IN_A_ROW):
            cable, way = divmod(number, 2)
            top, bottom = self.upper[cable], self.lower[cable]
            meeting = self._list_peer_cables(cable, top) if way == UP and not self.above[top] else ()
            if len(meeting) == 2:
                one, other = meeting
                return 2 * (other if cable == one else one) + DOWN
            if bottom >= self.nics and len(self.above[bottom]) == 1 == len(self.below[bottom]):
                number = 2 * self.below[bottom][0] + way
            else:
                break
        return number

    def _list_peer_cables(self, cable: int, top: int) -> tuple[int, ...]:
        """Return the cables below a switch whose ports may exchange flows, on one rail if each leaf has one."""
        if not any(self.nic_rail[:_INSPECTED_PORTS]):
            return self.below[top]
        rail = self._rail_below(self.lower[cable])
        return tuple(other for other in self.below[top] if self._rail_below(self.lower[other]) in (rail, None))

    def _rail_below(self, node: int) -> int | None:
        """Return the rail of the ports below a leaf; None for several rails, or for a node that is not a leaf."""
        cables = (node,) if node < self.nics else self.below[node]
        rails = {self.nic_rail[cable] if cable < self.nics else None for cable in cables}
        return rails.pop() if len(rails) == 1 else None

    def ascents(self, nic: int, height: int, random: Random) -> list[int]:
        """Return `height` random cables up from a NIC port, or fewer at the top."""
        cables, node = [nic], self.upper[nic]
        while len(cables) < height and self.above[node]:
            cables.append(random.choice(self.above[node]))
            node = self.upper[cables[-1]]
        return cables

    def descent_to(self, nic: int, node: int, height: int) -> list[int] | None:
        """Return the cables from a NIC port up to a node, the lowest first; None if none lead there."""
        return self._climb([nic], node, height)

    def _climb(self, cables: list[int], node: int, height: int) -> list[int] | None:
        at = self.upper[cables[-1]]
        if len(cables) == height:
            return cables if at == node else None
        if len(cables) == height - 1:
            last = self.joining.get((at, node))
            return [*cables, last[0]] if last else None
        tried = (self._climb([*cables, cable], node, height) for cable in self.above[at])
        return next((found for found in tried if found is not None), None)


def build_path(up: Sequence[int], down: Sequence[int]) -> Path:
    """Return the classes of a flow up some cables and down others, both given with the lowest first."""
    return (*(2 * cable for cable in up), *(2 * cable + 1 for cable in reversed(down)))


def build_fabric(nics: Iterable[tuple[str, str, int]], switches: Sequence[str], cables: Iterable[CableSpec]) -> Fabric:
    """Build a fabric from names: (host, port, rail) of each NIC port, switches from the lowest tier up, and cables.

    Raises UsageError for a NIC port without exactly one cable, and for a cable with an unknown end.
    """
    given = list(nics)
    hosts = tuple(dict.fromkeys(host for host, _, _ in given))
    host_number = {name: number for number, name in enumerate(hosts)}
    node_of: dict[tuple[str, str], int] = {(host, port): number for number, (host, port, _) in enumerate(given)}
    node_of |= {(name, ""): len(given) + number for number, name in enumerate(switches)}
    of_nics: dict[int, CableSpec] = {}
    others: list[tuple[int, int, CableSpec]] = []
    for cable in cables:
        lower = node_of.get((cable.lower, cable.lower_port), node_of.get((cable.lower, "")))
        upper = node_of.get((cable.upper, ""))
        if lower is None or upper is None:
            name = cable.lower if lower is None else cable.upper
            raise UsageError(
                f"cable ends must be known hosts or switches, got {name[:60]}", hint="name hosts and switches"
            )
        if lower >= len(given):
            others.append((lower, upper, cable))
        elif of_nics.setdefault(lower, cable) is not cable:
            raise UsageError(f"{cable.lower}:{cable.lower_port} has two cables", hint="give each port one cable")
    missing = next((number for number in range(len(given)) if number not in of_nics), None)
    if missing is not None:
        raise UsageError(f"{given[missing][0]}:{given[missing][1]} has no cable", hint="give each NIC port one cable")
    all_of_them = [(nic, node_of[of_nics[nic].upper, ""], of_nics[nic]) for nic in range(len(given))] + others
    return assemble(
        hosts=hosts,
        nic_host=[host_number[host] for host, _, _ in given],
        nic_port=[port for _, port, _ in given],
        nic_rail=[rail for _, _, rail in given],
        switches=switches,
        cables=[(lower, upper, spec.capacity) for lower, upper, spec in all_of_them],
        ports=tuple((spec.lower_port, spec.upper_port) for _, _, spec in all_of_them),
    )


def assemble(
    *,
    hosts: Sequence[str],
    nic_host: Sequence[int],
    nic_port: Sequence[str],
    nic_rail: Sequence[int],
    switches: Sequence[str],
    cables: Sequence[tuple[int, int, float]],
    ports: tuple[tuple[str, str], ...] = (),
) -> Fabric:
    """Build a fabric from numbers; `cables` holds (lower, upper, capacity), first those of the NIC ports."""
    nodes = len(nic_host) + len(switches)
    above: list[list[int]] = [[] for _ in range(nodes)]
    below: list[list[int]] = [[] for _ in range(nodes)]
    joining: dict[tuple[int, int], tuple[int, ...]] = {}
    for number, (lower, upper, _) in enumerate(cables):
        above[lower].append(number)
        below[upper].append(number)
        if lower >= len(nic_host):
            joining[lower, upper] = (*joining.get((lower, upper), ()), number)
    return Fabric(
        hosts=tuple(hosts),
        nic_host=tuple(nic_host),
        nic_port=tuple(nic_port),
        nic_rail=tuple(nic_rail),
        switches=tuple(switches),
        lower=tuple(lower for lower, _, _ in cables),
        upper=tuple(upper for _, upper, _ in cables),
        ports=ports,
        capacity=tuple(capacity for _, _, capacity in cables),
        above=tuple(map(tuple, above)),
        below=tuple(map(tuple, below)),
        joining=joining,
    )

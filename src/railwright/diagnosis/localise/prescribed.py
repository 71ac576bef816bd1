"""Fabrics whose forwarding tables prescribe one path between two ports, as in InfiniBand: paths and rounds.

Paths cannot be chosen, so rounds choose the pairs of ports. Shift permutations of ports in the order of their leaves
share no link under fat-tree routings (Zahavi, "D-Mod-K routing providing non-blocking traffic for shift
permutations on real life fat trees", 2010); flows that do not fit are paired again where there is room.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from random import Random

from railwright.diagnosis.localise.cover import Cover, CoverKind, RouteCover, pack_rounds
from railwright.diagnosis.localise.fabric import CableSpec, Fabric, Path, build_fabric
from railwright.diagnosis.localise.flows import Flow, Round
from railwright.diagnosis.localise.schedule import compute_share, lanes
from railwright.errors import UsageError
from railwright.topology.subnet import Plug, Subnet

_MAX_HOPS = 16
_DRAWS, _TRIES = 4, 48
_EPSILON = 1e-6


class PathFinder:
    """Finds the paths between NIC ports by following the forwarding tables."""

    def __init__(self, fabric: Fabric, subnet: Subnet) -> None:
        """Index the tables; `fabric` must be built from `subnet`."""
        node_of = {name: fabric.nics + number for number, name in enumerate(fabric.switches)}
        self._tables = {node_of[subnet.nodes[guid].name]: table for guid, table in subnet.tables.items()
                        if guid in subnet.nodes}  # fmt: skip
        self._next: dict[tuple[int, int], tuple[int, int]] = {}
        """Maps a switch and port to the class of the outgoing link and the node at its other end."""
        for cable, (lower_port, upper_port) in enumerate(fabric.ports):
            lower, upper = fabric.lower[cable], fabric.upper[cable]
            self._next[upper, int(upper_port)] = 2 * cable + 1, lower
            if lower >= fabric.nics:
                self._next[lower, int(lower_port)] = 2 * cable, upper
        lids = {_port_name(subnet, plug): lid for plug, lid in subnet.lids.items()}
        names = ((fabric.hosts[host], port) for host, port in zip(fabric.nic_host, fabric.nic_port, strict=True))
        self._lid = [lids.get(name) for name in names]
        self._fabric, self._known = fabric, dict[tuple[int, int], Path | None]()

    def __call__(self, source: int, destination: int) -> Path | None:
        """Return the classes on the path; None if the tables lead nowhere, in a cycle, or up after down."""
        key = source, destination
        if key not in self._known:
            self._known[key] = self._follow(source, destination)
        return self._known[key]

    def _follow(self, source: int, destination: int) -> Path | None:
        path, node, lid = [2 * source], self._fabric.upper[source], self._lid[destination]
        while lid is not None and len(path) < _MAX_HOPS:
            step = self._next.get((node, self._tables.get(node, {}).get(lid, -1)))
            if step is None:
                return None
            path.append(step[0])
            node = step[1]
            if node == destination:
                directions = [number % 2 for number in path]
                return tuple(path) if directions == sorted(directions) else None
            if node < self._fabric.nics:
                return None
        return None


def fabric_of_subnet(subnet: Subnet, ports: Sequence[tuple[str, str]] = ()) -> Fabric:
    """Build the fabric of some host ports, in order, or of all; with tables each pair of ports has one path.

    The height of a switch is its shortest distance to a host. Rates are relative to the most common rate of NIC ports.
    Raises UsageError for cables between switches of one height.
    """
    wanted, height = {name: number for number, name in enumerate(ports)}, _switch_heights(subnet)
    usual = _usual_rate(subnet)
    nics: list[tuple[str, str, int]] = []
    specs: list[CableSpec] = []
    for wire in subnet.wires:
        one, other = sorted(wire.ends, key=lambda plug: height.get(plug.guid, 0))
        low, high = subnet.nodes[one.guid], subnet.nodes[other.guid]
        if not high.is_switch or (wanted and not low.is_switch and _port_name(subnet, one) not in wanted):
            continue
        if low.is_switch and not {one.guid, other.guid} <= height.keys():
            continue  # no host reaches them
        if low.is_switch and height[one.guid] == height[other.guid]:
            what = f"{low.name[:40]} and {high.name[:40]} are joined at the same height: the subnet is not a tree"
            raise UsageError(what, hint="give a fat tree, in which every cable leads up or down")
        port = str(one.port) if low.is_switch else _port_name(subnet, one)[1]
        nics += [] if low.is_switch else [(low.name, port, 0)]
        capacity = wire.rate_bits_per_s / usual if wire.rate_bits_per_s and usual else 1.0
        specs.append(CableSpec(low.name, port, high.name, str(other.port), capacity))
    if not nics:
        raise UsageError(
            "the subnet has no cable between a host and a switch", hint="give the whole ibnetdiscover output"
        )
    switches = sorted((height[guid], len(node.name), node.name) for guid, node in subnet.nodes.items()
                      if node.is_switch and guid in height)  # fmt: skip
    nics.sort(key=lambda nic: (wanted.get(nic[:2], 0), nic))
    fabric = build_fabric(nics, [name for _, _, name in switches], specs)
    return replace(fabric, ways=PathFinder(fabric, subnet)) if subnet.tables else fabric


def find_ports(subnet: Subnet, hosts: Iterable[str], adapter: str = "") -> list[tuple[str, str]]:
    """Return (host, port) of each host. Raises UsageError for a host without a port or with an ambiguous one."""
    there: dict[str, list[str]] = {}
    for plug in dict.fromkeys(plug for wire in subnet.wires for plug in wire.ends):
        if not subnet.nodes[plug.guid].is_switch:
            host, port = _port_name(subnet, plug)
            there.setdefault(host, []).append(port)
    found = []
    for host in hosts:
        candidates = there.get(host) or there.get(host.partition(".")[0], [])
        mine = [port for port in candidates if not adapter or port == adapter]
        if len(mine) != 1:
            ports = f"the ports {', '.join(sorted(candidates)[:8])}" if candidates else "no port"
            hint = "name one of them: --adapter" if candidates else "name hosts as their node descriptions do"
            raise UsageError(f"{host[:60]} has {ports} in the subnet", hint=hint)
        found.append((host if host in there else host.partition(".")[0], mine[0]))
    return found


def _switch_heights(subnet: Subnet) -> dict[str, int]:
    """Return the heights of the switches, by GUID."""
    peers: dict[str, set[str]] = {}
    for wire in subnet.wires:
        one, other = (plug.guid for plug in wire.ends)
        peers.setdefault(one, set()).add(other)
        peers.setdefault(other, set()).add(one)
    height, at = dict[str, int](), [guid for guid, node in subnet.nodes.items() if not node.is_switch]
    for level in range(1, len(subnet.nodes) + 1):
        at = [
            peer for guid in at for peer in peers.get(guid, ()) if subnet.nodes[peer].is_switch and peer not in height
        ]
        height |= dict.fromkeys(at, level)
    return height


def _port_name(subnet: Subnet, plug: Plug) -> tuple[str, str]:
    """Return the host and port of a plug."""
    node = subnet.nodes[plug.guid]
    return node.name, node.port_name(str(plug.port))


def _usual_rate(subnet: Subnet) -> float | None:
    rates: dict[float, int] = {}
    for wire in subnet.wires:
        of_nic = any(not subnet.nodes[plug.guid].is_switch for plug in wire.ends)
        if of_nic and wire.rate_bits_per_s:
            rates[wire.rate_bits_per_s] = rates.get(wire.rate_bits_per_s, 0) + 1
    return max(rates, key=rates.__getitem__, default=None)


class PrescribedScreen:
    """Draws rounds, like `schedule.Screen` for fabrics with free paths."""

    def __init__(self, fabric: Fabric, random: Random) -> None:
        self._fabric, self._random = fabric, random
        self._tests = [0] * fabric.classes
        self._order = sorted(range(fabric.nics), key=lambda nic: (fabric.upper[nic], int(fabric.ports[nic][1])))

    def build_round(self) -> Round:
        """Return the best of a few random rounds, preferring links that were crossed seldom."""
        best = max((self._drawn() for _ in range(_DRAWS)), key=self._worth)
        for flow in best:
            for number in flow.path:
                self._tests[number] += 1
        return Round(best)

    def _worth(self, flows: Iterable[Flow]) -> float:
        return sum(1 / (1 + self._tests[number]) for flow in flows for number in flow.path)

    def _drawn(self) -> list[Flow]:
        count, load, flows = len(self._order), dict[int, float](), list[Flow]()
        shift = self._random.randrange(1, count) if count > 1 else 0
        senders, taken = list[int](), set[int]()
        for place in self._random.sample(range(count), count):
            to = (place + shift) % count
            flow = prescribe_flow(self._fabric, self._order[place], self._order[to])
            if flow is None or not _add_if_fits(self._fabric, load, flow):
                senders.append(place)
                continue
            flows.append(flow)
            taken.add(to)
        free = [to for to in range(count) if to not in taken]
        for place in senders:
            for at in self._random.sample(range(len(free)), min(_TRIES, len(free))):
                flow = prescribe_flow(self._fabric, self._order[place], self._order[free[at]])
                if flow is not None and _add_if_fits(self._fabric, load, flow):
                    flows.append(flow)
                    free[at] = free[-1]
                    free.pop()
                    break
        return flows


def _add_if_fits(fabric: Fabric, load: dict[int, float], flow: Flow) -> bool:
    """Add a flow if every link has room for it. Report whether it was added."""
    for number in flow.path:
        room = 1.0 if number // 2 < fabric.nics else max(fabric.capacity[number // 2], flow.share)
        if load.get(number, 0.0) + flow.share > room + _EPSILON:
            return False
    for number in flow.path:
        load[number] = load.get(number, 0.0) + flow.share
    return True


def prescribe_flow(fabric: Fabric, source: int, destination: int) -> Flow | None:
    """Return the flow between two ports of different hosts over the prescribed path; None without a path."""
    assert fabric.ways is not None
    if fabric.nic_host[source] == fabric.nic_host[destination]:
        return None
    path = fabric.ways(source, destination)
    return None if path is None else Flow(source, destination, path, compute_share(fabric, path, 1))


class PrescribedCover:
    """A cover of every pair of ports, which are all routes because each pair has one path."""

    def __init__(self, fabric: Fabric) -> None:
        self._fabric = fabric
        leaves = len({fabric.leaf_of(nic) for nic in range(fabric.nics)})
        self.cost = Cover("pair", leaves * (leaves - 1), 1, max(0, fabric.nics - 1))

    def rounds(self, _random: Random) -> Iterator[Round]:
        """Yield all rounds."""
        count = self._fabric.nics
        room: Mapping[int, int] = {n: lanes(capacity, 1) for n, capacity in enumerate(self._fabric.capacity)}
        for shift in range(1, count):
            drawn = (prescribe_flow(self._fabric, nic, (nic + shift) % count) for nic in range(count))
            yield from pack_rounds([flow for flow in drawn if flow], room, "cover of every pair route")


def plan_cover(fabric: Fabric, kind: CoverKind) -> RouteCover | PrescribedCover:
    """Return the cover of a fabric. Raises UsageError if that kind is not possible."""
    if fabric.ways is None:
        return RouteCover(fabric, kind)
    if kind == "leaf":
        what = "the tables prescribe one path for each pair of ports"
        raise UsageError(what, hint="use --route-cover pair, which tests all of them")
    return PrescribedCover(fabric)

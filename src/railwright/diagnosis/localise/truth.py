"""Faults of a simulated fabric, drawn at random or read from a file."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from random import Random

from railwright.diagnosis.localise.fabric import Fabric, build_path
from railwright.diagnosis.localise.names import Names, RouteKey, route_name
from railwright.diagnosis.localise.records import Fault
from railwright.errors import UsageError, unknown_name

_WORDS = {
    "rate": "0.005", "seed": "0", "hosts": "0", "switches": "0", "line-cards": "0", "routes": "0", "pairs": "0",
    "occupied": "0", "least": "0.3", "most": "0.85",
}  # fmt: skip
_MAX_OF_A_KIND = 10_000


@dataclass
class Truth:
    """The faults of a simulated fabric."""

    faults: list[Fault]
    left: dict[int, float]
    """The remaining part of each faulty class's capacity."""
    occupied: set[int]
    """Classes that other traffic occupies to a varying degree."""
    routes: dict[RouteKey, float] = field(default_factory=dict)


def parse_draw(words: Sequence[str]) -> dict[str, float]:
    """Parse words such as `rate=0.005 seed=7 line-cards=1`. Raises UsageError."""
    given = dict(_WORDS)
    for word in words:
        name, _, value = word.partition("=")
        if name not in _WORDS:
            raise unknown_name("word of faults", name, _WORDS)
        given[name] = value
    found: dict[str, float] = {}
    for name, text in given.items():
        maximum = 2.0**32 if name == "seed" else 1.0 if name in ("rate", "least", "most") else _MAX_OF_A_KIND
        try:
            found[name] = float(text)
        except ValueError:
            found[name] = -1.0
        if not 0 <= found[name] <= maximum or (maximum > 1 and found[name] % 1):
            raise UsageError(f"{name} must be 0 to {maximum:g}, got {text[:20]}", hint=f"give {name}=0 to {maximum:g}")
    return found


def draw(fabric: Fabric, given: dict[str, float]) -> Truth:
    """Draw faults: each class is faulty with probability `rate`; other elements are drawn in the given numbers."""
    random = Random(int(given["seed"]))

    def capacity() -> float:
        return round(random.uniform(given["least"], given["most"]), 3)

    faults = [
        _build_fault(fabric, number, capacity()) for number in range(fabric.classes) if random.random() < given["rate"]
    ]
    switches = [fabric.nics + number for number in range(len(fabric.switches))]
    hosts = _sample(random, list(range(len(fabric.hosts))), given["hosts"], "hosts")
    faults += [Fault(kind="host", id=fabric.hosts[host], capacity=capacity()) for host in hosts]
    for node in _sample(random, switches, given["switches"], "switches"):
        faults.append(Fault(kind="switch", id=fabric.node_name(node), capacity=capacity()))
    for node in _sample(random, switches, given["line-cards"], "line-cards"):
        card = random.randrange(len(fabric.cards(node)))
        faults.append(Fault(kind="line-card", id=f"{fabric.node_name(node)}/card{card}", capacity=capacity()))
    for number in _sample(random, list(range(fabric.classes)), given["occupied"], "occupied"):
        faults.append(_build_fault(fabric, number, 0.6, occupied=True))
    for pair in [False] * int(given["routes"]) + [True] * int(given["pairs"]):
        faults.append(Fault(kind="route", id=_draw_route(fabric, random, pair), direction="both", capacity=capacity()))
    return apply_faults(fabric, faults)


def apply_faults(fabric: Fabric, faults: Iterable[Fault]) -> Truth:
    """Return the state of every link with the faults. Raises UsageError for an unknown element."""
    truth = Truth(list(faults), {}, set())
    names = Names(fabric)
    for fault in truth.faults:
        if not 0 <= fault.capacity < 1:
            raise UsageError(
                f"capacity of {fault.id[:60]} must be 0 to below 1, got {fault.capacity:g}", hint="give 0 to below 1"
            )
        if fault.kind == "route":
            truth.routes[names.route(fault.id)] = fault.capacity
        elif fault.kind == "occupied":
            truth.occupied.update(names.classes_of(fault))
        else:
            for number in names.classes_of(fault):
                truth.left[number] = min(truth.left.get(number, 1.0), fault.capacity)
    return truth


def _build_fault(fabric: Fabric, number: int, capacity: float, *, occupied: bool = False) -> Fault:
    cable, down = divmod(number, 2)
    kind = "occupied" if occupied else "nic" if cable < fabric.nics else "link"
    return Fault(
        kind=kind,  # type: ignore[arg-type]
        id=fabric.cable_name(cable),
        direction="down" if down else "up",
        capacity=capacity,
    )


def _sample(random: Random, of: list[int], count: float, what: str) -> list[int]:
    if count > len(of):
        raise UsageError(f"{what} must be at most {len(of)}, got {count:g}", hint=f"give {what}=0 to {len(of)}")
    return random.sample(of, int(count))


def _draw_route(fabric: Fabric, random: Random, pair: bool) -> str:
    """Draw a route between two leaves, or between two ports on different leaves."""
    for _ in range(1000):
        source, destination = random.randrange(fabric.nics), random.randrange(fabric.nics)
        if fabric.ways is not None:
            path = fabric.ways(source, destination) if source != destination else None
            if path is not None and len(path) > 2 and fabric.nic_host[source] != fabric.nic_host[destination]:
                return route_name(fabric, (source, destination, path) if pair else (-1, -1, path[1:-1]))
            continue
        up = fabric.ascents(source, 2, random)
        while len(up) < 5:
            back = fabric.descent_to(destination, fabric.upper[up[-1]], len(up)) if len(up) > 1 else None
            if back is not None and back[-1] != up[-1] and fabric.nic_rail[source] == fabric.nic_rail[destination]:
                key = (source, destination, build_path(up, back)) if pair else (-1, -1, build_path(up[1:], back[1:]))
                if fabric.nic_host[source] != fabric.nic_host[destination]:
                    return route_name(fabric, key)
            above = fabric.above[fabric.upper[up[-1]]]
            if not above:
                break
            up.append(random.choice(above))
    raise UsageError("route faults need a fabric with several leaves", hint="give it tiers=2")

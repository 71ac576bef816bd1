"""Rounds of probes, and their measured rates."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import nan
from random import Random
from typing import NamedTuple

from railwright.diagnosis.localise.fabric import Fabric, Path, build_path

_MAX_TIERS = 5


class Flow(NamedTuple):
    """A transfer of a round from one NIC port to another."""

    source: int
    destination: int
    path: Path
    """The classes on its path, according to the path map."""
    share: float
    """The rate on a healthy fabric, in units of a NIC port's rate."""


@dataclass
class Round:
    """Flows that run at the same time, with their measured rates."""

    flows: list[Flow]
    ratio: list[float] = field(default_factory=list)
    """The measured rate over `share` of each flow; NaN for a lost probe."""
    purpose: str = "screen"
    marked: set[int] = field(default_factory=set)
    """Flows with evidence against them other than the rate, such as lost packets."""

    def mark_lost(self) -> None:
        """Mark every probe as lost; results set their rates later."""
        self.ratio = [nan] * len(self.flows)


def class_loads(fabric: Fabric, flows: list[Flow]) -> dict[int, float]:
    """Return the load of flows on each class of a healthy fabric; 1 is its full capacity."""
    load: dict[int, float] = {}
    for flow in flows:
        for one in flow.path:
            load[one] = load.get(one, 0.0) + flow.share
    return {one: value / fabric.capacity[one // 2] for one, value in load.items()}


def random_flow(fabric: Fabric, source: int, destination: int, random: Random) -> Flow | None:
    """Return a flow over a random shortest path, as hashing chooses it; None within a host and between rails."""
    same = fabric.nic_host[source] == fabric.nic_host[destination]
    if same or fabric.nic_rail[source] != fabric.nic_rail[destination]:
        return None
    if fabric.ways is not None:
        path = fabric.ways(source, destination)
        return None if path is None else Flow(source, destination, path, 1.0)
    for height in range(1, _MAX_TIERS + 1):
        up = fabric.ascents(source, height, random)
        back = fabric.descent_to(destination, fabric.upper[up[-1]], height)
        if back is not None:
            return Flow(source, destination, build_path(up, back), 1.0)
        if len(up) < height:
            break
    return None

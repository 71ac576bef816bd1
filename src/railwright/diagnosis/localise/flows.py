"""What a round of probes is, and what was seen of it."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import nan
from random import Random
from typing import NamedTuple

from railwright.diagnosis.localise.fabric import Fabric, Path, path_over

_MOST_TIERS = 5


class Flow(NamedTuple):
    """One transfer of a round, from a NIC port to another."""

    source: int
    destination: int
    path: Path
    """The classes that it is believed to cross."""
    share: float
    """The rate that it reaches where nothing is wrong, in rates of a NIC port."""


@dataclass
class Round:
    """Flows that run at the same time, and how fast each was."""

    flows: list[Flow]
    ratio: list[float] = field(default_factory=list)
    """The measured rate over `share`, by flow; NaN for a probe that was lost."""
    purpose: str = "screen"
    marked: set[int] = field(default_factory=set)
    """The flows that something else than their rate speaks against, like lost packets."""

    def lost(self) -> None:
        """Take every probe for lost; those that are heard of are set later."""
        self.ratio = [nan] * len(self.flows)


def filled(fabric: Fabric, flows: list[Flow]) -> dict[int, float]:
    """How much of each class flows fill when nothing is wrong; 1 is its whole capacity."""
    load: dict[int, float] = {}
    for flow in flows:
        for one in flow.path:
            load[one] = load.get(one, 0.0) + flow.share
    return {one: value / fabric.capacity[one // 2] for one, value in load.items()}


def random_flow(fabric: Fabric, source: int, destination: int, random: Random) -> Flow | None:
    """A flow over a path that a hash would choose, as short as can be; None within a host and between rails."""
    same = fabric.nic_host[source] == fabric.nic_host[destination]
    if same or fabric.nic_rail[source] != fabric.nic_rail[destination]:
        return None
    if fabric.ways is not None:
        path = fabric.ways(source, destination)
        return None if path is None else Flow(source, destination, path, 1.0)
    for height in range(1, _MOST_TIERS + 1):
        up = fabric.ascents(source, height, random)
        back = fabric.descent_to(destination, fabric.upper[up[-1]], height)
        if back is not None:
            return Flow(source, destination, path_over(up, back), 1.0)
        if len(up) < height:
            break
    return None

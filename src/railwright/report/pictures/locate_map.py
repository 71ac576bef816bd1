"""The data behind the pictures of a search: levels of switches, links with their state, and the matrix of pairs."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

from railwright.diagnosis.localise.records import Suspect
from railwright.locate.search import Located

MAX_ROWS = 64
"""The limit on rows of the matrix; above it the ports of a leaf share a row."""


class Edge(NamedTuple):
    """A link between two nodes, the lower node first."""

    lower: str
    upper: str
    filled: bool
    """Whether any flow crossed it."""


class FabricMap(NamedTuple):
    """A fabric as seen by the flows of a search."""

    levels: tuple[tuple[str, ...], ...]
    """Ports, then leaves, then the switches above them."""
    leaf_of: dict[str, str]
    edges: tuple[Edge, ...]


class RateMatrix(NamedTuple):
    """The lowest share of the expected rate between each pair of ports or leaves; None if no flow ran."""

    names: tuple[str, ...]
    what: str
    """The kind of a row: port or leaf."""
    cells: dict[tuple[str, str], float | None]


def build_map(found: Located) -> FabricMap:
    """Build the map from the paths of all flows, including those that did not run."""
    level: dict[str, int] = {}
    leaf_of: dict[str, str] = {}
    edges: dict[tuple[str, str], bool] = {}
    for pair in found.pairs:
        top = len(pair.over) // 2
        ran = pair.ratio is not None
        chains = ((pair.source, *pair.over[: top + 1]), (pair.destination, *pair.over[top:][::-1]))
        for chain in chains:
            leaf_of[chain[0]] = chain[1]
            level |= {name: height for height, name in enumerate(chain)}
            for lower, upper in pairwise(chain):
                edges[lower, upper] = edges.get((lower, upper), False) or ran
    levels = tuple(
        tuple(sorted((name for name, height in level.items() if height == wanted), key=natural_key))
        for wanted in range(max(level.values(), default=0) + 1)
    )
    return FabricMap(levels, leaf_of, tuple(Edge(*ends, ran) for ends, ran in sorted(edges.items())))


def natural_key(name: str) -> list[tuple[int, str]]:
    """Return a sort key that puts host2 before host10."""
    words = (number or word for number, word in re.findall(r"([0-9]+)|([^0-9]+)", name))
    return [(int(word[:18]), "") if word[0] in "0123456789" else (-1, word) for word in words]


def build_matrix(found: Located, leaf_of: dict[str, str]) -> RateMatrix:
    """Build the matrix of ports, or of leaves if there are too many ports."""
    ports = sorted(leaf_of, key=natural_key)
    by_leaf = len(ports) > MAX_ROWS
    names = sorted(set(leaf_of.values()), key=natural_key) if by_leaf else ports
    cells: dict[tuple[str, str], float | None] = {}
    for pair in found.pairs:
        ends = (leaf_of[pair.source], leaf_of[pair.destination]) if by_leaf else (pair.source, pair.destination)
        cells[ends] = min((ratio for ratio in (cells.get(ends), pair.ratio) if ratio is not None), default=None)
    return RateMatrix(tuple(names[:MAX_ROWS]), "leaf" if by_leaf else "port", cells)


class RoundTrips(NamedTuple):
    """The fastest round trip of each pair in seconds, and the index of its hop class; the nearest class is 0."""

    names: tuple[str, ...]
    cells: dict[tuple[str, str], tuple[float, int]]
    late: frozenset[tuple[str, str]]
    """The pairs that are late for their class."""


def build_times(found: Located, leaf_of: dict[str, str]) -> RoundTrips:
    """Build the round trips of ports; empty if there are too many ports."""
    ports = sorted(leaf_of, key=natural_key)
    if len(ports) > MAX_ROWS:
        return RoundTrips((), {}, frozenset())
    classes = {entry.switches: number for number, entry in enumerate(found.latency.classes)}
    cells = {
        (entry.source, entry.destination): (entry.seconds, classes[entry.switches])
        for entry in reversed(found.latency.pairs)
    }
    late = frozenset((entry.source, entry.destination) for entry in found.latency.slow_pairs)
    return RoundTrips(tuple(ports), cells, late)


def index_suspects(suspects: Sequence[Suspect]) -> dict[str, Suspect]:
    """Index the suspects by name; the first suspect of a name counts."""
    found: dict[str, Suspect] = {}
    for suspect in suspects:
        found.setdefault(suspect.id, suspect)
    return found


def find_suspect(edge: Edge, suspects: dict[str, Suspect]) -> Suspect | None:
    """Find the suspect of a link: the link itself or its port."""
    return suspects.get(f"{edge.lower}-{edge.upper}") or suspects.get(edge.lower if ":" in edge.lower else "")

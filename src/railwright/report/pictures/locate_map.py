"""What the pictures of a search show, as data: levels of switches, links with their state, and the matrix of pairs."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

from railwright.diagnosis.localise.records import Suspect
from railwright.locate.search import Located

MOST_ROWS = 64
"""Of the matrix; above it the ports of a leaf are one row."""


class Edge(NamedTuple):
    """A link between two nodes, the lower one first."""

    lower: str
    upper: str
    filled: bool
    """Whether any flow ran over it."""


class Map(NamedTuple):
    """A fabric as the flows of a search crossed it."""

    levels: tuple[tuple[str, ...], ...]
    """Ports, then leaves, then what is above."""
    leaf_of: dict[str, str]
    edges: tuple[Edge, ...]


class Matrix(NamedTuple):
    """The lowest part of its rate that any flow between two ports reached; None where none ran."""

    names: tuple[str, ...]
    what: str
    """What a row is."""
    cells: dict[tuple[str, str], float | None]


def map_of(found: Located) -> Map:
    """By the paths of all flows, whether they ran or not."""
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
        tuple(sorted((name for name, height in level.items() if height == wanted), key=natural))
        for wanted in range(max(level.values(), default=0) + 1)
    )
    return Map(levels, leaf_of, tuple(Edge(*ends, ran) for ends, ran in sorted(edges.items())))


def natural(name: str) -> list[tuple[int, str]]:
    """A key that sorts host2 before host10."""
    words = (number or word for number, word in re.findall(r"([0-9]+)|([^0-9]+)", name))
    return [(int(word[:18]), "") if word[0] in "0123456789" else (-1, word) for word in words]


def matrix_of(found: Located, leaf_of: dict[str, str]) -> Matrix:
    """Of ports, or of leaves where there are too many ports."""
    ports = sorted(leaf_of, key=natural)
    by_leaf = len(ports) > MOST_ROWS
    names = sorted(set(leaf_of.values()), key=natural) if by_leaf else ports
    cells: dict[tuple[str, str], float | None] = {}
    for pair in found.pairs:
        ends = (leaf_of[pair.source], leaf_of[pair.destination]) if by_leaf else (pair.source, pair.destination)
        cells[ends] = min((one for one in (cells.get(ends), pair.ratio) if one is not None), default=None)
    return Matrix(tuple(names[:MOST_ROWS]), "leaf" if by_leaf else "port", cells)


class Times(NamedTuple):
    """The fastest round trip of each pair, with the number of its hop class, the nearest first."""

    names: tuple[str, ...]
    cells: dict[tuple[str, str], tuple[float, int]]
    late: frozenset[tuple[str, str]]
    """The pairs that are slower than their class."""


def times_of(found: Located, leaf_of: dict[str, str]) -> Times:
    """Of ports; empty where there are too many."""
    ports = sorted(leaf_of, key=natural)
    if len(ports) > MOST_ROWS:
        return Times((), {}, frozenset())
    classes = {one.switches: number for number, one in enumerate(found.latency.classes)}
    cells = {
        (one.source, one.destination): (one.seconds, classes[one.switches]) for one in reversed(found.latency.pairs)
    }
    late = frozenset((one.source, one.destination) for one in found.latency.slow_pairs)
    return Times(tuple(ports), cells, late)


def suspected(suspects: Sequence[Suspect]) -> dict[str, Suspect]:
    """The first suspect of each name."""
    found: dict[str, Suspect] = {}
    for one in suspects:
        found.setdefault(one.id, one)
    return found


def of_edge(edge: Edge, suspects: dict[str, Suspect]) -> Suspect | None:
    """What is suspected of a link: itself, or its port."""
    return suspects.get(f"{edge.lower}-{edge.upper}") or suspects.get(edge.lower if ":" in edge.lower else "")

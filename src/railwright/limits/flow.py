"""The maximum concurrent flow of a traffic pattern: how fast everything can go at once.

maximise rate, so that every commodity carries its demand x rate, no resource carries more than its capacity, and
every cut carries what must leave it. By duality the shares of the capacities add up to 1: a resource's share is how
much of the limit it alone decides.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from railwright.errors import CannotJudge
from railwright.limits.flow_graph import Arc, FlowGraph, Resource
from railwright.linear_program import NoSolution, Program

_SCALE = 1e9  # GB/s: keeps the program's numbers near 1


class Commodity(NamedTuple):
    """Data of one kind: what each node gives and takes per unit of rate (both sum to the same)."""

    name: str
    sources: Mapping[str, float]
    sinks: Mapping[str, float]
    tier: int | None = None
    """The lowest tier that joins both ends; None where the program may choose."""


class Cut(NamedTuple):
    """The flow over `arcs` (numbers in the graph) is at least `demand` x rate."""

    name: str
    arcs: tuple[int, ...]
    demand: float


class Problem(NamedTuple):
    """A pattern over a graph. `loads`: resource -> what it carries per unit of rate besides the commodities."""

    graph: FlowGraph
    commodities: tuple[Commodity, ...]
    cuts: tuple[Cut, ...] = ()
    loads: Mapping[str, float] = {}


class Flow(NamedTuple):
    """The best rate in bytes/s and the share of the limit that each resource decides."""

    rate_bytes_per_s: float
    shares: dict[str, float]


def solve(problem: Problem, capacity: Callable[[Resource], float] = lambda one: one.limit_bytes_per_s) -> Flow:
    """The best rate under the given capacities in bytes/s. Raises CannotJudge where nothing known bounds it."""
    program = Program()
    rate = program.variable(objective=1)
    resources: dict[str, dict[int, float]] = defaultdict(dict)
    crossing: dict[int, list[int]] = defaultdict(list)
    for commodity in problem.commodities:
        _add_commodity(program, rate, commodity, problem.graph.arcs, resources, crossing)
    for cut in problem.cuts:
        terms = dict.fromkeys((column for arc in cut.arcs for column in crossing[arc]), 1.0)
        program.at_least(f"cut {cut.name}", {**terms, rate: -cut.demand}, 0)
    for name, load in problem.loads.items():
        resources[name][rate] = load
    bounds = {}
    for name, terms in resources.items():
        bounds[name] = capacity(problem.graph.resources[name]) / _SCALE
        program.at_most(f"resource {name}", terms, bounds[name])
    try:
        solution = program.solve()
    except NoSolution as error:
        raise CannotJudge(
            f"no limit can be given: the program is {error.why}",
            hint="no link that the data must cross has a documented rate",
        ) from error
    best = solution.objective
    shares = {
        name: solution.duals[f"resource {name}"] * bound / best
        for name, bound in bounds.items()
        if math.isfinite(bound) and best > 0
    }
    return Flow(best * _SCALE, {name: share for name, share in shares.items() if share > 1e-6})


def _add_commodity(
    program: Program,
    rate: int,
    commodity: Commodity,
    arcs: tuple[Arc, ...],
    resources: dict[str, dict[int, float]],
    crossing: dict[int, list[int]],
) -> None:
    """Variables for the arcs that can carry it, and what comes into a node leaves it."""
    balance: dict[str, dict[int, float]] = defaultdict(dict)
    for number in _useful(commodity, arcs):
        arc = arcs[number]
        column = program.variable()
        crossing[number].append(column)
        balance[arc.tail][column] = -1.0
        balance[arc.head][column] = 1.0
        if arc.resource is not None:
            resources[arc.resource][column] = 1.0
    for end in (*commodity.sources, *commodity.sinks):
        if end not in balance:
            device = end.partition(":")[2].partition(".")[0]
            raise CannotJudge(
                f"{device} has no way for its data ({commodity.name})",
                hint="it is disconnected: check its links, and that the host has NICs (railwright topo)",
            )
    for node, terms in balance.items():
        needed = commodity.sinks.get(node, 0.0) - commodity.sources.get(node, 0.0)
        program.equal(f"{commodity.name} at {node}", {**terms, rate: -needed} if needed else terms, 0)


def _useful(commodity: Commodity, arcs: tuple[Arc, ...]) -> list[int]:
    """The arcs on any way from a source to a sink, whose tier allows it."""
    allowed = [
        number
        for number, arc in enumerate(arcs)
        if arc.within is None or commodity.tier is None or commodity.tier <= arc.within
    ]
    ahead, behind = defaultdict(list), defaultdict(list)
    for number in allowed:
        ahead[arcs[number].tail].append(arcs[number].head)
        behind[arcs[number].head].append(arcs[number].tail)
    reached = reach(commodity.sources, ahead)
    reaching = reach(commodity.sinks, behind)
    return [number for number in allowed if arcs[number].tail in reached and arcs[number].head in reaching]


def reach(starts: Iterable[str], edges: Mapping[str, list[str]]) -> set[str]:
    """The nodes that can be reached over the edges."""
    seen, todo = set(starts), list(starts)
    while todo:
        for node in edges.get(todo.pop(), ()):
            if node not in seen:
                seen.add(node)
                todo.append(node)
    return seen

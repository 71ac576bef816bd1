"""The maximum concurrent flow of a traffic pattern: the rate at which all its transfers can run at once.

Maximise rate so that every commodity carries its demand x rate, no resource carries more than its capacity, and every
cut carries the flow that must cross it. By duality the shares of the capacities add up to 1: a resource's share is the
part of the limit that it alone decides.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from railwright.errors import CannotJudge
from railwright.limits.flow_graph import Arc, FlowGraph, Resource
from railwright.linear_program import NoSolution, Program, Solution

_UNLINKED = "check the machine's links and that the host has NICs (railwright topo)"
_SCALE = 1e9  # GB/s: keeps the program's numbers near 1


class Commodity(NamedTuple):
    """Data of one kind: the amount that each node gives and takes per unit of rate (both sum to the same)."""

    name: str
    sources: Mapping[str, float]
    sinks: Mapping[str, float]
    tier: int | None = None
    """The lowest tier that joins both ends; None if the program may choose."""
    over_gpus: bool = True
    """Whether it may take the links between GPUs; otherwise only PCIe and the links between sockets."""


class Cut(NamedTuple):
    """The flow over `arcs` (numbers in the graph) is at least `demand` x rate."""

    name: str
    arcs: tuple[int, ...]
    demand: float


class Problem(NamedTuple):
    """A pattern over a graph. `loads` maps a resource to its load per unit of rate besides the commodities."""

    graph: FlowGraph
    commodities: tuple[Commodity, ...]
    cuts: tuple[Cut, ...] = ()
    loads: Mapping[str, float] = {}


class Flow(NamedTuple):
    """The best rate in bytes/s, and the share of the limit that each resource decides."""

    rate_bytes_per_s: float
    shares: dict[str, float]


def solve(
    problem: Problem, capacity: Callable[[Resource], float] = lambda resource: resource.limit_bytes_per_s
) -> Flow:
    """Return the best flow under the given capacities in bytes/s.

    Raises CannotJudge if no known capacity bounds the rate, or if no data can pass.
    """
    return Flows(problem).solve_under(capacity)


class Flows:
    """The program of a problem, written once for all the capacities that it is solved under.

    Raises CannotJudge if some data has no way to its destination.
    """

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self._program = Program()
        rate = self._program.add_variable(objective=1)
        self._loads: dict[str, dict[int, float]] = defaultdict(dict)
        crossing: dict[int, list[int]] = defaultdict(list)
        ways: dict[tuple[int | None, bool], _TierArcs] = {}
        for commodity in problem.commodities:
            allowed = commodity.tier, commodity.over_gpus
            if allowed not in ways:
                ways[allowed] = _find_tier_arcs(problem.graph, *allowed)
            useful = _find_useful_arcs(commodity, ways[allowed], problem.graph.arcs)
            self._add(rate, commodity, useful, problem.graph.arcs, crossing)
        for cut in problem.cuts:
            terms = dict.fromkeys((column for arc in cut.arcs for column in crossing[arc]), 1.0)
            self._program.add_lower_bound(f"cut {cut.name}", {**terms, rate: -cut.demand}, 0)
        for name, load in problem.loads.items():
            self._loads[name][rate] = load
        for name, terms in self._loads.items():
            self._program.add_upper_bound(f"resource {name}", terms)

    def solve_under(self, capacity: Callable[[Resource], float]) -> Flow:
        """Return the best flow under the given capacities in bytes/s.

        Raises CannotJudge if no known capacity bounds the rate, or if no data can pass.
        """
        bounds = self._bounds(capacity)
        solution = self._solve(bounds, anew=True)  # a warm start could change the shares
        best = solution.objective
        if best <= 0:
            raise CannotJudge("no data can pass: a part of the machine has no link to the rest", hint=_UNLINKED)
        shares = {
            name: solution.duals[f"resource {name}"] * bound / best
            for name, bound in bounds.items()
            if math.isfinite(bound)
        }
        return Flow(best * _SCALE, {name: share for name, share in shares.items() if share > 1e-6})

    def solve_rate(self, capacity: Callable[[Resource], float]) -> float:
        """Return only the rate of `solve_under`, which costs less after another solve."""
        return self._solve(self._bounds(capacity), anew=False).objective * _SCALE

    def _bounds(self, capacity: Callable[[Resource], float]) -> dict[str, float]:
        return {name: capacity(self.problem.graph.resources[name]) / _SCALE for name in self._loads}

    def _solve(self, bounds: Mapping[str, float], *, anew: bool) -> Solution:
        try:
            return self._program.solve({f"resource {name}": bound for name, bound in bounds.items()}, anew=anew)
        except NoSolution as error:
            raise CannotJudge(
                f"no limit can be given: the program is {error.why}",
                hint="no link that the data must cross has a documented rate",
            ) from error

    def _add(
        self, rate: int, commodity: Commodity, useful: list[int], arcs: tuple[Arc, ...], crossing: dict[int, list[int]]
    ) -> None:
        """Add variables for the arcs that can carry the commodity, and its conservation at each node."""
        balance: dict[str, dict[int, float]] = defaultdict(dict)
        for number in useful:
            arc = arcs[number]
            column = self._program.add_variable()
            crossing[number].append(column)
            balance[arc.tail][column] = -1.0
            balance[arc.head][column] = 1.0
            if arc.resource is not None:
                self._loads[arc.resource][column] = 1.0
        for end in (*commodity.sources, *commodity.sinks):
            if end not in balance:
                device = end.partition(":")[2].partition(".")[0]
                raise CannotJudge(
                    f"{device} has no way for its data ({commodity.name})",
                    hint=_UNLINKED,
                )
        for node, terms in balance.items():
            needed = commodity.sinks.get(node, 0.0) - commodity.sources.get(node, 0.0)
            self._program.add_equality(f"{commodity.name} at {node}", {**terms, rate: -needed} if needed else terms, 0)


class _TierArcs(NamedTuple):
    """The arcs that a tier allows, by number, and the nodes that they join, forwards and backwards."""

    allowed: list[int]
    ahead: dict[str, list[str]]
    behind: dict[str, list[str]]


def _find_tier_arcs(graph: FlowGraph, tier: int | None, over_gpus: bool) -> _TierArcs:
    arcs = graph.arcs
    between = () if over_gpus else ("NVLink", "Infinity Fabric", "Ethernet between GPUs")
    allowed = [
        number
        for number, arc in enumerate(arcs)
        if (arc.within is None or tier is None or tier <= arc.within)
        and (arc.resource is None or graph.resources[arc.resource].kind not in between)
    ]
    ahead, behind = defaultdict(list), defaultdict(list)
    for number in allowed:
        ahead[arcs[number].tail].append(arcs[number].head)
        behind[arcs[number].head].append(arcs[number].tail)
    return _TierArcs(allowed, ahead, behind)


def _find_useful_arcs(commodity: Commodity, ways: _TierArcs, arcs: tuple[Arc, ...]) -> list[int]:
    """Return the arcs on any way from a source to a sink."""
    reached = find_reachable(commodity.sources, ways.ahead)
    reaching = find_reachable(commodity.sinks, ways.behind)
    return [number for number in ways.allowed if arcs[number].tail in reached and arcs[number].head in reaching]


def find_reachable(starts: Iterable[str], edges: Mapping[str, list[str]]) -> set[str]:
    """Return the nodes that can be reached over the edges."""
    seen, todo = set(starts), list(starts)
    while todo:
        for node in edges.get(todo.pop(), ()):
            if node not in seen:
                seen.add(node)
                todo.append(node)
    return seen

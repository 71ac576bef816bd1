"""Route faults: flows that are slow repeatedly although every link on their path is healthy.

A route is tested with the same ports on the same path. It is a suspect if all of at least three tries were slow at one
rate and no suspect link explains them. The fault is of the route between two leaves if several pairs of ports show it,
and of one pair of ports if another pair on the same path was fast or none was tried.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from railwright.diagnosis.localise.evidence import Evidence
from railwright.diagnosis.localise.explain import Explanation
from railwright.diagnosis.localise.flows import Flow
from railwright.diagnosis.localise.names import RouteKey

_MIN_TESTS = 3
_MAX_BY_CHANCE = 0.5
"""The expected number of routes in a search that are slow at every try by chance."""
_MIN_PATH = 4
"""A shorter flow turns at its leaf and has no choice of route."""
_MAX_REPEATED = 100_000


@dataclass(frozen=True)
class RouteSuspicion:
    """A suspected route."""

    key: RouteKey
    level: float
    tests: int


def repeated_flows(evidence: Evidence, unexplained: Iterable[int]) -> list[Flow]:
    """Return the flows to repeat, without duplicates."""
    found = dict.fromkeys(
        evidence.flows[number] for number in unexplained if len(evidence.flows[number].path) >= _MIN_PATH
    )
    return list(found)[:_MAX_REPEATED]


def slow_routes(evidence: Evidence, explanation: Explanation) -> list[RouteSuspicion]:
    """Return the slow routes that no suspect link explains."""
    suspects = {one.number for one in explanation.suspicions}
    pairs: dict[RouteKey, list[float]] = {}
    wanted = {
        _route_key(evidence.flows[number])
        for number in explanation.unexplained
        if len(evidence.flows[number].path) >= _MIN_PATH
    }
    middles = {key[2][1:-1] for key in wanted}
    others: dict[tuple[int, ...], dict[RouteKey, list[float]]] = {}
    for flow, ratio in zip(evidence.flows, evidence.ratio, strict=True):
        if flow.path[1:-1] not in middles or math.isnan(ratio):
            continue
        key = _route_key(flow)
        others.setdefault(key[2][1:-1], {}).setdefault(key, []).append(ratio)
        if key in wanted:
            pairs.setdefault(key, []).append(ratio)
    found = []
    for key, ratios in pairs.items():
        # Among many flows that were slow once, some are slow repeatedly by chance.
        if len(wanted) * explanation.background ** (len(ratios) - 1) > _MAX_BY_CHANCE:
            continue
        if len(ratios) >= _MIN_TESTS and _are_slow_at_one_rate(ratios, evidence) and not suspects.intersection(key[2]):
            found.append(RouteSuspicion(key, sorted(ratios)[len(ratios) // 2], len(ratios)))
    return _merge_pairs(found, others, evidence)


def _route_key(flow: Flow) -> RouteKey:
    return flow.source, flow.destination, flow.path


def _are_slow_at_one_rate(ratios: list[float], evidence: Evidence) -> bool:
    """Report whether all tries were slow at one rate, which interference may have lowered in some."""
    same = [ratio for ratio in ratios if ratio >= max(ratios) * (1 - 1.5 * evidence.margin)]
    return max(ratios) < evidence.floor and len(same) >= max(_MIN_TESTS - 1, 0.6 * len(ratios))


def _merge_pairs(
    found: list[RouteSuspicion], others: dict[tuple[int, ...], dict[RouteKey, list[float]]], evidence: Evidence
) -> list[RouteSuspicion]:
    """Merge pairs on one path between leaves if all tested pairs on it are slow."""
    by_middle: dict[tuple[int, ...], list[RouteSuspicion]] = {}
    for one in found:
        by_middle.setdefault(one.key[2][1:-1], []).append(one)
    result = []
    for middle, several in by_middle.items():
        tried = others[middle]
        if len(tried) > 1 and all(max(ratios) < evidence.floor for ratios in tried.values()):
            tests = sum(map(len, tried.values()))
            result.append(RouteSuspicion((-1, -1, middle), several[0].level, tests))
        else:
            result += several
    return result

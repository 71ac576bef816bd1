"""Maximum concurrent flow: the reduced program compared with the full one and with brute force."""

from __future__ import annotations

import itertools
import math
import os
import sys
from collections import defaultdict, deque
from pathlib import Path

import pytest

from railwright.errors import CannotJudge, RailwrightError
from railwright.limits.flow import Commodity, Problem, solve
from railwright.limits.flow_graph import Arc, FlowGraph
from railwright.limits.traffic import build_problem

sys.path.insert(0, str(Path(__file__).parent))
from full_program import at, full_problem, source
from random_clusters import random_cluster

PATTERNS = (("all_reduce", "ring"), ("all_to_all", "direct"), ("all_reduce", "tree"))


def rate(problem) -> float:
    return solve(problem).rate_bytes_per_s


@pytest.mark.parametrize("block", range(20 if os.environ.get("RAILWRIGHT_TEST_LONG") else 2))
def test_the_reduced_and_the_full_program_agree_on_random_clusters(block):
    """100 clusters; `make test-long` takes 1,000."""
    compared = 0
    for seed in range(block * 50, block * 50 + 50):
        cluster = random_cluster(seed)
        for collective, algorithm in PATTERNS:
            try:
                reduced = rate(build_problem(cluster, collective, algorithm))
            except RailwrightError as error:
                with pytest.raises(type(error)):
                    rate(full_problem(cluster, collective, algorithm))
                continue
            assert reduced == pytest.approx(rate(full_problem(cluster, collective, algorithm)), rel=1e-3), seed
            compared += 1
    assert compared > 75


def max_flow(problem, sources, sinks) -> float:
    """Return the rate of all links together from some GPUs to the others, by Edmonds and Karp over the full graph."""
    graph = problem.graph
    # Arcs of one resource share it: a node of its own between their ends would let them mix, so bound the sum of their
    # loads by the resource times the number of its arcs; an upper bound needs no more.
    capacity: dict[str, dict[str, float]] = defaultdict(lambda: defaultdict(float))
    for arc in graph.arcs:
        bound = graph.resources[arc.resource].limit_bytes_per_s if arc.resource in graph.resources else math.inf
        capacity[arc.tail][arc.head] += bound
        capacity[arc.head][arc.tail] += 0.0
    for node in sources:
        capacity["from"][node] = math.inf
    for node in sinks:
        capacity[node]["to"] = math.inf
    total = 0.0
    while True:
        before = {"from": ""}
        queue = deque(["from"])
        while queue and "to" not in before:
            here = queue.popleft()
            for following, left in capacity[here].items():
                if left > 1.0 and following not in before:
                    before[following] = here
                    queue.append(following)
        if "to" not in before:
            return total
        way = ["to"]
        while way[-1] != "from":
            way.append(before[way[-1]])
        steps = list(itertools.pairwise(reversed(way)))
        least = min(capacity[near][far] for near, far in steps)
        if math.isinf(least):
            return math.inf
        for near, far in steps:
            capacity[near][far] -= least
            capacity[far][near] += least
        total += least


@pytest.mark.parametrize("seed", range(60))
def test_no_rate_is_above_any_cut_of_the_gpus(seed):
    """Brute force: for every split of all GPUs in two, the required traffic is at most the rate across."""
    cluster = random_cluster(seed, most_gpus=2, most_hosts=3)
    full = full_problem(cluster, "all_to_all", "direct")
    gpus = full.graph.gpus
    try:
        pairs, ring = (
            rate(build_problem(cluster, "all_to_all", "direct")),
            rate(build_problem(cluster, "all_reduce", "ring")),
        )
    except RailwrightError:
        pytest.skip("one GPU, or no way between GPUs")
    passed = 2 * (len(gpus) - 1) / len(gpus)
    tightest = math.inf
    for size in range(1, len(gpus)):
        for chosen in itertools.combinations(gpus, size):
            others = [gpu for gpu in gpus if gpu not in chosen]
            crossing = max_flow(full, [source(gpu) for gpu in chosen], [f"{gpu}.in" for gpu in others])
            demand = len(chosen) * len(others) / len(gpus)
            assert pairs * demand <= crossing * (1 + 1e-6)
            assert ring * passed <= crossing * (1 + 1e-6)
            tightest = min(tightest, crossing / (ring * passed))
    assert tightest < 8  # a bound that is never near would prove nothing


@pytest.mark.parametrize("seed", range(40))
def test_no_single_ring_is_faster_than_the_limit_of_rings(seed):
    """Brute force from below: every order of the GPUs, host by host, each hop on its own shortest path."""
    cluster = random_cluster(seed, most_gpus=3, most_hosts=2)
    try:
        limit = rate(build_problem(cluster, "all_reduce", "ring"))
    except RailwrightError:
        pytest.skip("one GPU, or no way between GPUs")
    full = full_problem(cluster, "all_reduce", "ring")
    passed = 2 * (cluster.ranks - 1) / cluster.ranks
    local = [[gpu for gpu in full.graph.gpus if gpu.endswith(f"@{host}")] for host in range(cluster.hosts)]
    best = 0.0
    for orders in itertools.product(*(itertools.permutations(gpus) for gpus in local)):
        ring = [gpu for order in orders for gpu in order]
        best = max(best, ring_rate(full.graph, ring))
    assert 0 < best <= limit * passed * (1 + 1e-6)


def ring_rate(graph: FlowGraph, ring) -> float:
    used: dict[str, int] = defaultdict(int)
    onward = defaultdict(list)
    for arc in graph.arcs:
        onward[arc.tail].append(arc)
    for near, far in itertools.pairwise([*ring, ring[0]]):
        came: dict[str, Arc | None] = {source(near): None}
        queue = deque(came)
        while queue and f"{far}.in" not in came:
            here = queue.popleft()
            for arc in onward[here]:
                if arc.head not in came:
                    came[arc.head] = arc
                    queue.append(arc.head)
        node = f"{far}.in"
        if node not in came:
            return 0.0
        while (arc := came[node]) is not None:
            if arc.resource in graph.resources:
                used[arc.resource] += 1
            node = arc.tail
    return min((graph.resources[name].limit_bytes_per_s / times for name, times in used.items()), default=math.inf)


def test_the_shares_of_the_bottlenecks_add_up_to_one():
    for seed in range(30):
        try:
            flow = solve(build_problem(random_cluster(seed), "all_to_all", "direct"))
        except RailwrightError:
            continue
        assert sum(flow.shares.values()) == pytest.approx(1.0, abs=1e-4)


def test_a_gpu_without_a_way_out_is_named():
    graph = FlowGraph((Arc("s:gpu0.src", "r:gpu1.dst"),), {}, ("gpu0", "gpu1"))
    lost = Commodity("to gpu1", {"s:gpu2.src": 1.0}, {"r:gpu1.dst": 1.0})
    with pytest.raises(CannotJudge, match="gpu2 has no way for its data"):
        solve(Problem(graph, (lost,)))


def test_a_flow_that_nothing_bounds_has_no_limit():
    graph = FlowGraph((Arc("s:gpu0.src", "r:gpu1.dst"),), {}, ("gpu0", "gpu1"))
    with pytest.raises(CannotJudge, match="unbounded"):
        solve(Problem(graph, (Commodity("free", {"s:gpu0.src": 1.0}, {"r:gpu1.dst": 1.0}),)))


def test_nodes_are_named_by_host():
    assert at("s:gpu0.src", 3) == "s:gpu0.src@3"

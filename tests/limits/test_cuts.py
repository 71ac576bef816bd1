"""Cuts around each group of GPUs, compared with brute force over every group of random PCIe trees."""

from __future__ import annotations

import itertools
import math
import random
from collections import defaultdict, deque

import pytest

from railwright.expected.collective_rows import collective_row
from railwright.limits.flow import solve
from railwright.limits.flow_graph import Resource
from railwright.limits.path import link_limit
from railwright.limits.traffic import build_problem, demands
from railwright.topology.cluster import build_cluster
from railwright.topology.devices import Device, InternalLink, Link, NvlinkLink, PcieLink, SmpLink, Topology
from railwright.topology.sources.load import load


def random_tree(seed: int) -> Topology:
    """Return a machine of one or two sockets, switches below switches, three to six GPUs, NVLink between some, and
    no NVSwitch.
    """
    rng = random.Random(seed)
    devices = [Device(id="host0", kind="host"), Device(id="cpu0", kind="cpu", numa=0)]
    links, uppers = [], ["cpu0"]
    if rng.random() < 0.6:
        devices.append(Device(id="cpu1", kind="cpu", numa=1, facts={"package": 1}))
        links.append(Link(a="cpu0", b="cpu1", protocol=SmpLink(name="UPI")))
        uppers.append("cpu1")
    for number in range(rng.randint(1, 3)):
        devices.append(Device(id=f"root_port{number}", kind="root_port"))
        port = InternalLink(name="root complex")
        links.append(Link(a=rng.choice(uppers[:2]), b=f"root_port{number}", protocol=port))
        uppers.append(f"root_port{number}")
    for number in range(rng.randint(0, 3)):
        devices.append(Device(id=f"switch{number}", kind="pcie_switch"))
        links.append(Link(a=rng.choice(_ends(uppers)), b=f"switch{number}", protocol=_pcie(rng)))
        uppers.append(f"switch{number}")
    gpus = [f"gpu{number}" for number in range(rng.randint(3, 6))]
    for gpu in gpus:
        devices.append(Device(id=gpu, kind="gpu", facts={"compute_capability": "8.0"}))
        links.append(Link(a=rng.choice(_ends(uppers)), b=gpu, protocol=_pcie(rng)))
    pairs = rng.sample(gpus, len(gpus))
    for first, second in list(zip(pairs[::2], pairs[1::2], strict=False))[: rng.choice((0, 1, 1, 2, 3))]:
        links.append(Link(a=first, b=second, protocol=NvlinkLink(generation=3, links=rng.randint(1, 4))))
    return Topology(name="random tree", source="saved", devices=tuple(devices), links=tuple(links))


def _ends(uppers):
    return [upper for upper in uppers if not upper.startswith("cpu")]


def _pcie(rng):
    return PcieLink(gt_per_s=rng.choice((8.0, 16.0, 32.0)), width=rng.choice((4, 8, 16)), max_payload_bytes=256)


def narrowest(host: Topology, chosen, others) -> float:
    """Return the rate of all links together from some GPUs to the others, in bytes/s: maximum flow by shortest
    paths.
    """
    left: dict[str, dict[str, float]] = defaultdict(lambda: defaultdict(float))
    for link in host.links:
        limit = link_limit(link)
        for near, far in ((link.a, link.b), (link.b, link.a)):
            left[near][far] += getattr(limit, "value", math.inf)
    for gpu in chosen:
        left["from"][gpu] = math.inf
    for gpu in others:
        left[gpu]["to"] = math.inf
    total = 0.0
    while True:
        came = {"from": ""}
        queue = deque(came)
        while queue and "to" not in came:
            here = queue.popleft()
            for following, capacity in left[here].items():
                if capacity > 1.0 and following not in came:
                    came[following] = here
                    queue.append(following)
        if "to" not in came:
            return total
        way = ["to"]
        while way[-1] != "from":
            way.append(came[way[-1]])
        steps = list(itertools.pairwise(reversed(way)))
        least = min(left[near][far] for near, far in steps)
        for near, far in steps:
            left[near][far] -= least
            left[far][near] += least
        total += least


def test_no_group_of_gpus_passes_on_more_than_its_links_carry():
    """For all splits of the GPUs of 60 machines in two, the limit is at most the rate across, and often equal to it."""
    just_that = {"ring": 0, "tree": 0}
    for seed in range(60):
        host = random_tree(seed)
        cluster = build_cluster(host, 1)
        gpus = [gpu.id for gpu in host.of_kind("gpu")]
        groups = (chosen for size in range(1, len(gpus)) for chosen in itertools.combinations(gpus, size))
        tightest = min(narrowest(host, chosen, [gpu for gpu in gpus if gpu not in chosen]) for chosen in groups)
        for algorithm in just_that:
            passed = float(demands("all_reduce", algorithm, cluster).per_group)
            found = solve(build_problem(cluster, "all_reduce", algorithm)).rate_bytes_per_s * passed
            assert found <= tightest * (1 + 1e-6), (seed, algorithm)
            just_that[algorithm] += found >= tightest * (1 - 1e-3)
    assert just_that["ring"] > 20
    assert just_that["tree"] > 10  # a chain passes more through its GPUs, which then decide


def test_the_link_between_switches_limits_eight_pcie_gpus_in_pairs():
    found = collective_row(build_cluster(load("h100-pcie-8gpu-nvlink"), 1), "all_reduce")
    one_link = 57.5e9  # PCIe 5.0 x16, MaxPayload 256 B: what every tree sends from one socket to the other, up and down
    assert found.busbw_bytes_per_s.limit == pytest.approx(one_link * 14 / 8, rel=2e-3)
    ring = next(algorithm for algorithm in found.algorithms if algorithm.name == "ring")
    assert ring.busbw_bytes_per_s.limit == pytest.approx(one_link, rel=2e-3)


def test_links_of_one_socket_bind_where_the_other_is_alone():
    def slow_between_sockets(resource: Resource) -> float:
        return 9e9 if resource.kind == "between sockets" else resource.limit_bytes_per_s

    cluster = build_cluster(load("pcie-8gpu"), 1)
    problem = build_problem(cluster, "all_reduce", "ring")
    busbw = solve(problem, slow_between_sockets).rate_bytes_per_s * 2 * 7 / 8
    assert busbw == pytest.approx(9e9, rel=1e-6)

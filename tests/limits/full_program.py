"""The flow program of a whole small cluster, every host and switch, for comparison with the reduced one."""

from __future__ import annotations

import itertools
import math

from railwright.limits.cuts import _list_groups
from railwright.limits.flow import Commodity, Cut, Problem
from railwright.limits.flow_graph import Arc, FlowGraph, flow_graph
from railwright.limits.traffic import demands
from railwright.topology.cluster import ports


def full_problem(cluster, collective, algorithm):
    """Build the program with every host's own links, every leaf and spine, and a commodity for each destination GPU."""
    single = flow_graph(cluster)
    arcs, resources = [], {}
    for host in range(cluster.hosts):
        inside = (arc for arc in single.arcs if _inside(arc))
        arcs += [Arc(at(arc.tail, host), at(arc.head, host), f"{arc.resource}@{host}") for arc in inside]
        for name, resource in single.resources.items():
            if resource.kind != "uplinks":
                resources[f"{name}@{host}"] = resource._replace(id=f"{name}@{host}")
    arcs += _fabric(cluster, resources)
    gpus = tuple(f"{gpu}@{host}" for host in range(cluster.hosts) for gpu in single.gpus)
    for gpu in gpus:
        name, _, host = gpu.partition("@")
        arcs += [Arc(f"{kind}:{name}.dst@{host}", f"{gpu}.in") for kind in "sr"]
    graph = FlowGraph(tuple(arcs), resources, gpus)
    if algorithm == "direct":
        return Problem(graph, tuple(_pairs(cluster, gpus)))
    needs = demands(collective, algorithm, cluster)
    data = Commodity("data", {source(gpu): float(needs.per_gpu) for gpu in gpus},
                     {f"{gpu}.in": float(needs.per_gpu) for gpu in gpus})  # fmt: skip
    return Problem(graph, (data,), tuple(_cuts(cluster, graph, needs)))


def source(gpu):
    name, _, host = gpu.partition("@")
    return f"s:{name}.src@{host}"


def at(node, host):
    return f"{node}@{host}"


def _inside(arc):
    return (arc.tail[:2] in ("s:", "r:") and (arc.head[:2] in ("s:", "r:") or arc.head.startswith("tx:"))) or (
        arc.tail.startswith("rx:"))  # fmt: skip


def _fabric(cluster, resources):
    """Yield explicit switches: a leaf for each group (and rail), a node for each group of a higher tier."""
    tiers, rails = cluster.fabric.tiers, range(len(ports(cluster.host)))
    for host in range(cluster.hosts):
        for rail in rails:
            leaf = _switch(cluster, 0, host, rail) if tiers else "switch:0"
            yield Arc(at(f"tx:{rail}", host), f"up {leaf}")
            yield Arc(f"down {leaf}", at(f"rx:{rail}", host))
    # Separate up and down nodes: otherwise data could circle between two switches and count as leaving repeatedly.
    places = {_switch(cluster, n, h, r) for n in range(len(tiers)) for h in range(cluster.hosts) for r in rails}
    for switch in places or {"switch:0"}:
        yield Arc(f"up {switch}", f"down {switch}")
    if not tiers:
        return
    rates = [resources[f"{nic.id}:tx@0"].limit_bytes_per_s for nic, _ in ports(cluster.host)]
    seen = set()
    for level, tier in enumerate(tiers[:-1]):
        share = math.prod(1 / below.oversubscription for below in tiers[: level + 1])
        for host, rail in itertools.product(range(cluster.hosts), rails):
            lower, upper = _switch(cluster, level, host, rail), _switch(cluster, level + 1, host, rail)
            if (lower, upper) in seen:
                continue
            seen.add((lower, upper))
            # A tier's uplinks are sized for all hosts it joins, and so are those of a group that is not full.
            members = min(tier.hosts, cluster.hosts - host // tier.hosts * tier.hosts)
            by_rail = cluster.fabric.rail_optimised and level == 0
            rate = (rates[rail] if by_rail else sum(rates)) * share * members
            for tail, head in ((f"up {lower}", f"up {upper}"), (f"down {upper}", f"down {lower}")):
                name = f"{tail}>{head}"
                resources[name] = resources["nic0:tx@0"]._replace(id=name, kind="uplinks", limit_bytes_per_s=rate)
                yield Arc(tail, head, name)


def _switch(cluster, level, host, rail):
    group = host // cluster.fabric.tiers[level].hosts
    return f"switch:{level}:{group}" + (f":{rail}" if cluster.fabric.rail_optimised and level == 0 else "")


def _pairs(cluster, gpus):
    share = 1 / cluster.ranks
    for target in gpus:
        others = {source(gpu): share for gpu in gpus if gpu != target}
        yield Commodity(f"to {target}", others, {f"{target}.in": share * len(others)})


def _cuts(cluster, graph, needs):
    for host in range(cluster.hosts):
        yield from _host_cuts(cluster.host, graph, host, needs)
        leaving = tuple(
            n for n, arc in enumerate(graph.arcs) if arc.head.startswith("tx:") and arc.head.endswith(f"@{host}")
        )
        yield Cut(f"host {host}", leaving, float(needs.per_domain))
    for level, tier in enumerate(cluster.fabric.tiers):
        if tier.hosts < cluster.hosts:
            for group in range(-(-cluster.hosts // tier.hosts)):
                up = tuple(n for n, arc in enumerate(graph.arcs)
                           if _level_up(arc, level, group))  # fmt: skip
                yield Cut(f"group {level} {group}", up, float(needs.per_domain))


def _host_cuts(machine, graph, host, needs):
    """Yield the cuts of traffic leaving and entering each group of a host; test_cuts checks the groups themselves."""
    gpus = {gpu.id for gpu in machine.of_kind("gpu")}
    if machine.of_kind("nvswitch"):
        return
    for number, (name, group) in enumerate(_list_groups(machine)):
        if not group & gpus or gpus <= group:
            continue
        ends = [(_inside_group(arc.tail, group, host), _inside_group(arc.head, group, host)) for arc in graph.arcs]
        for way, wanted in (("out", (True, False)), ("in", (False, True))):
            arcs = tuple(
                n for n, found in enumerate(ends) if found == wanted and not graph.arcs[n].head.endswith(".in")
            )
            yield Cut(f"{way} {name} {number} of host {host}", arcs, float(needs.per_group))


def _inside_group(node, group, host):
    return _device(node) in group and node.endswith(f"@{host}")


def _device(node):
    return node.partition("@")[0].partition(":")[2].partition(".")[0]


def _level_up(arc, level, group):
    if not (arc.tail.startswith(f"up switch:{level}:") and arc.head.startswith(f"up switch:{level + 1}:")):
        return False
    return arc.tail.split(":")[2] == str(group)

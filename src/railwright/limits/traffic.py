"""The traffic of each collective by algorithm, per byte of its size: the demands of the flow program.

n ranks, k NVLink domains (a host, or the hosts that share NVSwitches), G GPUs in a domain. S is nccl-tests' size.

ring          each rank passes on 2(n-1)/n S (all_reduce), (n-1)/n S (all_gather, reduce_scatter) or S (broadcast,
              reduce); the ring leaves every domain, socket and switch at least once.
tree          between the domains a double binary tree, of which each half carries S/2 up and down; in a domain a
              chain, up and down (NCCL src/graph/trees.cc). In a lone domain with NVSwitches every channel has the same
              chain (the `Trees` of NCCL 2.28's log on 4 and 8 H200): a GPU within it passes on S up and S down.
hierarchical  reduce_scatter and all_gather in the domain, all_reduce of S/G between the domains: 2(k-1)/k S leaves.
nvls          the NVSwitches add and multiply: a GPU sends S and S/G, and receives as much.
nvlstree      nvls in the domain, the double tree between domains.
collnet       nvls in the domain where there is one, and the fabric's switches add: S leaves once.
direct        all_to_all: S/n from every rank to every other; send_recv: S to the next rank. Between GPUs that are
              joined directly, each message takes its own way (`peers`).
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Iterator, Mapping
from fractions import Fraction

import msgspec
from msgspec.structs import replace

from railwright.errors import CannotJudge, UsageError, unknown_name
from railwright.limits import nvlink
from railwright.limits.cuts import group_cuts
from railwright.limits.flow import Commodity, Cut, Problem
from railwright.limits.flow_graph import Arc, FlowGraph, Relay, flow_graph
from railwright.limits.limit import Constant
from railwright.limits.peers import PeerWay, find_peer_ways
from railwright.limits.sources import NCCL_TREES, NCCL_TUNING
from railwright.topology.cluster import Cluster
from railwright.topology.devices import Topology

ALGORITHMS: dict[str, tuple[str, ...]] = {
    "all_reduce": ("ring", "tree", "nvls", "nvlstree", "hierarchical", "collnet"),
    "all_gather": ("ring",),
    "reduce_scatter": ("ring",),
    "broadcast": ("ring",),
    "reduce": ("ring",),
    "all_to_all": ("direct",),
    "send_recv": ("direct",),
}
NOT_IN_NCCL = ("hierarchical",)
_WORDS = {"".join(name.split("_")): name for name in ALGORITHMS}
_WORDS |= {"a2a": "all_to_all", "all2all": "all_to_all", "bcast": "broadcast"}
_MAX_NAMED = 8
NVLS_CAPABILITY = Constant(9, "compute capability (major) from which NVSwitches reduce", NCCL_TUNING)
_MULTICAST = "multicast"
"""Fact of a GPU: whether CUDA's driver can make multicast objects on it, which NVLS needs."""
_MAX_TREE_DOMAINS = Constant(64, "domains, from which the load of the busiest stays 2", NCCL_TREES)


class Demands(msgspec.Struct, frozen=True, kw_only=True):
    """The traffic per unit of algbw: sent by each GPU, out of each group of GPUs in a host, out of each domain and tier
    group, and moved by each GPU through its NVSwitches by in-switch reduction and multicast.
    """

    per_gpu: Fraction
    per_group: Fraction = Fraction(0)
    per_domain: Fraction = Fraction(0)
    nvswitch: Fraction = Fraction(0)


def collective_name(written: str) -> str:
    """Return our name of a collective for any spelling, such as `allreduce` or `alltoall_perf`; unknown names are
    unchanged.
    """
    letters = "".join(letter for letter in written.lower().removesuffix("_perf") if letter.isalnum())
    return _WORDS.get(letters, written)


def domain_hosts(cluster: Cluster) -> int:
    """Return the number of hosts that share their NVSwitches; 1 if each has its own or none."""
    return min(cluster.host.rack_hosts, cluster.hosts)


def find_protocol(cluster: Cluster) -> str:
    """Return the only protocol that NCCL may use (NCCL_PROTO), else empty. Send and receive ignore it."""
    host = cluster.host.device("host0")
    return str(host.facts.get("nccl_protocol", "")) if host else ""


def domains(cluster: Cluster) -> int:
    """Return the number of NVLink domains of the cluster."""
    return -(-cluster.hosts // domain_hosts(cluster))


def has_nvls(host: Topology) -> bool:
    """Report whether the host has NVLink SHARP: NVSwitches of the third generation or later, so compute capability 9.0
    or later.

    Every GPU must be joined to the NVSwitches, and none may lack multicast.
    """
    switches = {switch.id for switch in host.of_kind("nvswitch")}
    gpus = {gpu.id: gpu for gpu in host.of_kind("gpu")}
    joined = {end for link in host.links if switches & {link.a, link.b} for end in (link.a, link.b)}
    if not switches or not gpus.keys() <= joined:
        return False
    has_multicast = all(gpu.facts.get(_MULTICAST) is not False for gpu in gpus.values())
    return has_multicast and compute_major(host) >= NVLS_CAPABILITY.value


def disable_nvls(host: Topology) -> Topology:
    """Return the machine as NCCL treats it with NVLS switched off: as if its GPUs had no multicast."""
    devices = tuple(
        replace(device, facts={**device.facts, _MULTICAST: False}) if device.kind == "gpu" else device
        for device in host.devices
    )
    return replace(host, devices=devices)


def compute_major(host: Topology) -> int:
    """Return the major number of the GPUs' compute capability; 0 if unknown."""
    return host.compute_major


def list_algorithms(cluster: Cluster, collective: str) -> tuple[str, ...]:
    """Return the algorithms that can run there. Raises UsageError for an unknown collective."""
    if collective not in ALGORITHMS:
        raise unknown_name("collective", collective, ALGORITHMS)
    has_domains, nvls = domains(cluster) > 1, has_nvls(cluster.host) and find_protocol(cluster) in ("", "Simple")
    can = {
        "nvls": nvls and not has_domains and cluster.ranks > 2,
        "nvlstree": nvls and has_domains,
        "hierarchical": has_domains,
        "collnet": has_domains and cluster.fabric.in_network_reduction,
    }
    return tuple(name for name in ALGORITHMS[collective] if can.get(name, True))


def tree_load(count: int) -> Fraction:
    """Return the load of the busiest of `count` domains in NCCL's double binary tree, per byte reduced.

    Half of the data goes over each tree; a domain sends its half up to its parent and down to each child.
    """
    loads = [Fraction(0)] * count
    for tree in range(2):
        for number in range(count):
            parent = _btree_parent(number, count)
            if parent is None:
                continue
            for end in (number, parent):
                place = (count - 1 - end) if tree and count % 2 == 0 else (end + tree) % count
                loads[place] += Fraction(1, 2)
    return max(loads)


def _btree_parent(number: int, count: int) -> int | None:
    """Return the parent in a binary tree over 0..count-1 whose leaves are the odd numbers: it changes the lowest set
    bit.
    """
    if number == 0:
        return None
    bit = number & -number
    parent = (number ^ bit) | (bit << 1)
    return parent if parent < count else number ^ bit


def _check_algorithm(collective: str, algorithm: str, cluster: Cluster) -> None:
    can = list_algorithms(cluster, collective)
    if algorithm not in can:
        known = ALGORITHMS[collective]
        reason = "cannot run on this cluster" if algorithm in known else "is not supported"
        raise UsageError(f"{collective} with {algorithm[:40]} {reason}", hint=f"give {', '.join(can)}")


def demands(collective: str, algorithm: str, cluster: Cluster) -> Demands:
    """Return the traffic of the algorithm. Raises UsageError if it cannot run on that cluster."""
    _check_algorithm(collective, algorithm, cluster)
    n, k = cluster.ranks, domains(cluster)
    gpus = cluster.gpus_per_host * domain_hosts(cluster)
    chain = Fraction(2 * (gpus - 1), gpus)
    if algorithm == "tree" and k == 1 and gpus > 2 and cluster.host.of_kind("nvswitch"):
        chain = Fraction(2)
    if algorithm == "ring":
        share = {"all_reduce": Fraction(2 * (n - 1), n), "broadcast": Fraction(1), "reduce": Fraction(1)}
        passed = share.get(collective, Fraction(n - 1, n))
        return Demands(per_gpu=passed, per_group=passed, per_domain=passed if k > 1 else Fraction(0))
    if algorithm == "nvls":
        return Demands(per_gpu=Fraction(0), nvswitch=1 + Fraction(1, gpus))
    busiest = tree_load(min(k, int(_MAX_TREE_DOMAINS.value))) if k > 1 else Fraction(0)
    leaving = {
        "tree": busiest,
        "nvlstree": busiest,
        "hierarchical": Fraction(2 * (k - 1), k),
        "collnet": Fraction(1),
    }[algorithm]
    reduced_in_switch = algorithm == "nvlstree" or (algorithm == "collnet" and has_nvls(cluster.host))
    inside = Fraction(0) if reduced_in_switch else chain
    return Demands(
        per_gpu=inside + leaving / gpus,
        per_group=Fraction(0) if reduced_in_switch else Fraction(1),
        per_domain=leaving,
        nvswitch=1 + Fraction(1, gpus) if reduced_in_switch else Fraction(0),
    )


def build_problem(cluster: Cluster, collective: str, algorithm: str, relay: Relay = "sender") -> Problem:
    """Build the flow program of a collective over a cluster. Raises UsageError and CannotJudge."""
    if cluster.ranks < 2:
        raise UsageError(
            f"a collective needs at least two GPUs, got {cluster.ranks}", hint="give --count, or a machine with GPUs"
        )
    _check_nvlink_known(cluster)
    graph = flow_graph(cluster, relay)
    if not graph.arcs:
        raise CannotJudge(
            f"{cluster.host.name[:80]} has no known link between two GPUs",
            hint="save or capture the machine again, or name a shape",
        )
    if algorithm == "direct":
        _check_algorithm(collective, algorithm, cluster)
        return _build_direct_problem(cluster, graph, collective)
    return _build_symmetric_problem(cluster, graph, demands(collective, algorithm, cluster))


def _check_nvlink_known(cluster: Cluster) -> None:
    """Raise an error if NVLink may join GPUs of a single host, because then PCIe gives no limit between them."""
    unknown = nvlink.find_unknown_gpus(cluster.host) if cluster.gpus_per_host > 1 else ()
    if unknown:
        named = ", ".join(unknown) if len(unknown) <= _MAX_NAMED else f"{len(unknown)} GPUs"
        raise CannotJudge(
            f"whether NVLink joins {named} to other GPUs is not known",
            hint="capture the machine where NVIDIA's library (libnvidia-ml) answers, or name a shape",
        )


def _build_symmetric_problem(cluster: Cluster, graph: FlowGraph, needs: Demands) -> Problem:
    """Return a single commodity: every GPU gives and takes the same, from any neighbour; cuts keep the ring whole."""
    has_domains, shared = domains(cluster) > 1, domain_hosts(cluster) > 1
    commodities: tuple[Commodity, ...] = ()
    if needs.per_gpu:
        sources = {f"s:{gpu}.src": float(needs.per_gpu) for gpu in graph.gpus}
        # A GPU takes from its host, from its domain or from the network: a sink behind the three.
        arcs = [*graph.arcs]
        kinds = "s" + "d" * shared + "r" * has_domains
        arcs += [type(arcs[0])(f"{kind}:{gpu}.dst", f"{gpu}.in") for gpu in graph.gpus for kind in kinds]
        graph = graph._replace(arcs=tuple(arcs))
        sinks = {f"{gpu}.in": float(needs.per_gpu) for gpu in graph.gpus}
        commodities = (Commodity("data", sources, sinks),)
    cuts = [*group_cuts(cluster.host, graph, float(needs.per_group))]
    if has_domains:
        leaving = tuple(number for number, arc in enumerate(graph.arcs) if arc.head.startswith("tx:"))
        cuts.append(Cut("every domain", leaving, float(needs.per_domain / domain_hosts(cluster))))
        cuts += _tier_cuts(cluster, graph, needs)
    loads = {}
    if needs.nvswitch:
        switched = {"gpu", "nvswitch"}
        kinds_of = {device.id: device.kind for device in cluster.host.devices}
        loads = {
            name: float(needs.nvswitch)
            for name, resource in graph.resources.items()
            if {kinds_of.get(resource.link.a), kinds_of.get(resource.link.b)} == switched
        }
    return Problem(graph, commodities, tuple(cuts), loads)


def _tier_cuts(cluster: Cluster, graph: FlowGraph, needs: Demands) -> Iterator[Cut]:
    for level, tier in enumerate(cluster.fabric.tiers):
        if tier.hosts < cluster.hosts:
            up = tuple(number for number, arc in enumerate(graph.arcs) if _is_uplink(arc.resource, level))
            yield Cut(f"each group of {tier.hosts} hosts", up, float(needs.per_domain / tier.hosts))


def _is_uplink(resource: str | None, level: int) -> bool:
    return bool(resource) and str(resource).startswith(f"uplinks:{level}") and str(resource).endswith(":up")


def _list_places(cluster: Cluster) -> Iterator[tuple[str, int | None, int]]:
    """Yield the places of other hosts as seen from one: (kind of sink, tier that joins them, number of hosts)."""
    inside = domain_hosts(cluster)
    if inside > 1:
        yield "d", None, inside - 1
    known = inside
    for level, tier in enumerate(cluster.fabric.tiers):
        reached = min(max(tier.hosts, known), cluster.hosts)
        if reached > known:
            yield "r", level, reached - known
        known = reached
    if cluster.hosts > known:
        yield "r", None, cluster.hosts - known


Ways = Mapping[tuple[str, str], tuple[PeerWay, ...]]


def _build_direct_problem(cluster: Cluster, graph: FlowGraph, collective: str) -> Problem:
    """Build the program of messages between pairs. GPUs that are joined directly take the ways of `peers`.

    A message takes a single way. Which of several equally wide ones is not known, so the program chooses among them,
    and none carries more than the narrowest link of one.
    """
    ways = find_peer_ways(cluster.host)
    share = 1 / cluster.ranks if collective == "all_to_all" else 1.0
    sent = (
        ways if collective == "all_to_all" else {pair: ways[pair] for pair in _list_followers(cluster) if pair in ways}
    )
    loads: dict[str, float] = defaultdict(float)
    for way in (alike[0] for alike in sent.values() if len(alike) == 1):
        for hop in way.hops:
            loads[hop] += share
    choices = {f"{source}>{target}": alike for (source, target), alike in sent.items() if len(alike) > 1}
    commodities = _all_to_all_commodities if collective == "all_to_all" else _send_recv_commodities
    chosen = [Commodity(name, {f"p:{name}.src": share}, {f"p:{name}.dst": share}) for name in choices]
    return Problem(_add_choices(graph, choices), (*commodities(cluster, graph, ways), *chosen), loads=dict(loads))


def _add_choices(graph: FlowGraph, choices: Mapping[str, tuple[PeerWay, ...]]) -> FlowGraph:
    """Add the ways between two GPUs as arcs of their own, behind one that is as wide as one of them."""
    arcs, widths = [*graph.arcs], dict(graph.resources)
    for name, alike in choices.items():
        narrowest = min((graph.resources[hop] for hop in alike[0].hops), key=lambda found: found.limit_bytes_per_s)
        widths[name] = narrowest._replace(id=name)
        arcs.append(Arc(f"p:{name}.src", f"p:{name}", name))
        for number, way in enumerate(alike):
            nodes = [f"p:{name}", *(f"p:{name}.{number}.{place}" for place in range(1, len(way.hops))), f"p:{name}.dst"]
            arcs += [Arc(*ends, hop) for ends, hop in zip(itertools.pairwise(nodes), way.hops, strict=True)]
    return graph._replace(arcs=tuple(arcs), resources=widths)


def _list_followers(cluster: Cluster) -> Iterator[tuple[str, str]]:
    """Yield each GPU of a host with the one that it sends to, as far as that is in the host."""
    gpus = [gpu.id for gpu in cluster.host.of_kind("gpu")]
    yield from itertools.pairwise(gpus)
    if cluster.hosts == 1 and len(gpus) > 1:
        yield gpus[-1], gpus[0]


def _all_to_all_commodities(cluster: Cluster, graph: FlowGraph, ways: Ways) -> Iterator[Commodity]:
    """Yield a commodity for each destination and each distance: S/n from every rank to every other."""
    share = 1 / cluster.ranks
    for target in graph.gpus:
        others = {f"s:{gpu}.src": share for gpu in graph.gpus if gpu != target and (gpu, target) not in ways}
        if others:
            sinks = {f"s:{target}.dst": share * len(others)}
            yield Commodity(f"to {target}", others, sinks, over_gpus=not ways)
        for kind, tier, hosts in _list_places(cluster):
            sources = {f"s:{gpu}.src": share * hosts for gpu in graph.gpus}
            sinks = {f"{kind}:{target}.dst": share * hosts * len(graph.gpus)}
            yield Commodity(f"to {target} of {hosts} hosts, {kind} {tier}", sources, sinks, tier)


def _send_recv_commodities(cluster: Cluster, graph: FlowGraph, ways: Ways) -> Iterator[Commodity]:
    """Yield rank i to rank i + 1, and the last GPU of a host to the first of the next."""
    for source, target in _list_followers(cluster):
        if (source, target) not in ways:
            sources, sinks = {f"s:{source}.src": 1.0}, {f"s:{target}.dst": 1.0}
            yield Commodity(f"{source} to {target}", sources, sinks, over_gpus=not ways)
    if cluster.hosts > 1:
        first, last = graph.gpus[0], graph.gpus[-1]
        kind = "r" if domains(cluster) > 1 else "d"
        tier = 0 if kind == "r" else None  # the next host is usually at the same leaf
        sinks = {f"{kind}:{first}.dst": 1.0}
        yield Commodity(f"{last} to {first} of the next host", {f"s:{last}.src": 1.0}, sinks, tier)

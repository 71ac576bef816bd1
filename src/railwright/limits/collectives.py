"""What a collective can reach on a cluster, what to expect of it, and what holds it back.

The limit of each algorithm is a maximum concurrent flow (`flow`, `traffic`); what is expected is the same program
over what NCCL reaches of each link (`nccl`). The duals of the program name the bottleneck.
"""

from __future__ import annotations

from collections import defaultdict

import msgspec

from railwright.busbw import factor
from railwright.errors import UsageError
from railwright.limits import latency, nccl, nccl_channels, tuning
from railwright.limits.case import Case
from railwright.limits.flow import Flow, Flows
from railwright.limits.flow_graph import Resource, flow_graph, not_counted
from railwright.limits.limit import Constant, Expected, Limit, Quantity, Source
from railwright.limits.path import link_limit
from railwright.limits.software import software_limits
from railwright.limits.sources import NCCL_LATENCY, NCCL_TOPO, NCCL_TUNING, OFI_LATENCY, RING_SEEN
from railwright.limits.traffic import NOT_IN_NCCL, applicable, collective_name, domains, problem_of
from railwright.topology.cluster import Cluster

_NEARLY_EQUAL = Constant(1.1, "times as fast, from where NCCL's choice is not clear", NCCL_LATENCY)
_LARGE_BYTES = Constant(64 * 2**20, "bytes, from where the ring was seen on two hosts", RING_SEEN)
_TABLES_APART = Constant(1.6, "times as fast, where a plugin chooses by its own tables", OFI_LATENCY)


class Rate(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A limit and the band that healthy systems reach, in bytes/s; the band is None where no document tells it."""

    limit: float
    expected_low: float | None = None
    expected_high: float | None = None

    def times(self, share: float) -> Rate:
        """The same, scaled."""
        low, high = (None if end is None else end * share for end in (self.expected_low, self.expected_high))
        return Rate(limit=self.limit * share, expected_low=low, expected_high=high)

    @property
    def middle(self) -> float | None:
        """Of the band; None where there is none."""
        if self.expected_low is None or self.expected_high is None:
            return None
        return (self.expected_low + self.expected_high) / 2


class Share(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How much of the limit one kind of link decides, and what relaxing it would bring."""

    what: str
    """`NIC port` or another kind of resource."""
    where: tuple[str, ...]
    """Ids of links, or of NIC ports with their direction."""
    share: float
    because: str
    doubled_bytes_per_s: float
    """The algbw if these links alone were twice as fast."""
    then: str
    """The kind of link that would hold it back then."""
    sources: tuple[Source, ...] = ()


class Algorithm(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One algorithm: its rates as busbw and algbw."""

    name: str
    algbw_bytes_per_s: Rate
    busbw_bytes_per_s: Rate
    bottleneck: tuple[Share, ...]
    in_nccl: bool = True


class CollectiveLimit(msgspec.Struct, frozen=True, kw_only=True, tag="collective", tag_field="record",
                      omit_defaults=True, forbid_unknown_fields=True):  # fmt: skip
    """The answer: the best algorithm's limit, the band of what NCCL would choose, and why."""

    collective: str
    cluster: str
    hosts: int
    ranks: int
    algorithm: str
    """What was asked for, or `auto`: the best of those that NCCL has there."""
    size_bytes: int | None = None
    algbw_bytes_per_s: Rate
    busbw_bytes_per_s: Rate
    time_s: Rate | None = None
    """Of one operation of `size_bytes`: the limit is the least time."""
    chosen: str
    """The algorithm that is expected to be the fastest there."""
    because: str
    bottleneck: tuple[Share, ...]
    software_limits: tuple[str, ...] = ()
    assumptions: tuple[str, ...] = ()
    algorithms: tuple[Algorithm, ...] = ()
    sources: tuple[str, ...] = ()


def collective_limit(
    cluster: Cluster, collective: str, algorithm: str = "auto", size_bytes: int | None = None
) -> CollectiveLimit:
    """Limit, band and bottleneck of one collective. Raises UsageError and CannotJudge."""
    if size_bytes is not None and size_bytes < 1:
        raise UsageError(f"a collective of {size_bytes} bytes moves nothing", hint="give --size 1 or more")
    case = Case(cluster=cluster, algorithm=algorithm)
    collective = collective_name(collective)
    found = algorithms(case, collective)
    best = best_of(found)
    likely, rate, time = at_size(cluster, collective, found, size_bytes)
    share = float(factor(collective, cluster.ranks))
    return CollectiveLimit(
        collective=collective,
        cluster=cluster.name,
        hosts=cluster.hosts,
        ranks=cluster.ranks,
        algorithm=case.algorithm,
        size_bytes=size_bytes,
        algbw_bytes_per_s=rate,
        busbw_bytes_per_s=rate.times(share),
        time_s=time,
        chosen=likely.name,
        because=_because(best),
        bottleneck=best.bottleneck,
        software_limits=software_limits(cluster, collective, best.name),
        assumptions=_assumptions(cluster, collective, likely.name),
        algorithms=found,
        sources=_sources(cluster),
    )


def algorithms(case: Case, collective: str, *, explained: bool = True) -> tuple[Algorithm, ...]:
    """Every algorithm that can run there at large sizes; without `explained` no bottleneck is looked for."""
    cluster = case.cluster
    if cluster.ranks < 2:
        raise UsageError(
            f"{collective} needs two GPUs, {cluster.name} has {cluster.ranks}", hint="give --count, or gpus=8"
        )
    name = case.algorithm.lower()
    names = applicable(cluster, collective) if name == "auto" else (name,)
    return tuple(_algorithm(case, collective, name, explained=explained) for name in names)


def best_of(found: tuple[Algorithm, ...]) -> Algorithm:
    """The algorithm with the highest limit, of those that NCCL has where it has any."""
    return max(_usable(found), key=lambda one: one.algbw_bytes_per_s.limit)


def as_limit(found: tuple[Algorithm, ...], bytes_per_s: float) -> Limit:
    """The limit of one point of a collective, with the narrowest link of the best algorithm as its reason."""
    best = best_of(found)
    narrowest = best.bottleneck[0] if best.bottleneck else None
    return Limit(
        quantity="bandwidth_bytes_per_s",
        value=bytes_per_s,
        kind="derived",
        because=f"{best.name}: {narrowest.what}, {narrowest.because}" if narrowest else best.name,
        bottleneck=narrowest.where[0] if narrowest else "",
        sources=narrowest.sources if narrowest else (),
    )


def band_of(rate: Rate, likely: Algorithm, quantity: Quantity = "bandwidth_bytes_per_s") -> Expected | None:
    """The band of a rate, or of a time, by the algorithm that is likely the fastest; None where none is known."""
    if rate.expected_low is None:
        return None
    because = f"NCCL's {likely.name} over what it reaches of each link, and its latency"
    sources = (NCCL_TOPO, NCCL_TUNING)
    return Expected(quantity=quantity, low=rate.expected_low, high=rate.expected_high, because=because, sources=sources)


def _usable(found: tuple[Algorithm, ...]) -> tuple[Algorithm, ...]:
    return tuple(one for one in found if one.in_nccl) or found


def at_size(
    cluster: Cluster, collective: str, found: tuple[Algorithm, ...], size_bytes: int | None, protocol: str = ""
) -> tuple[Algorithm, Rate, Rate | None]:
    """(the algorithm that is likely the fastest, algbw, time) at one size, None for large sizes.

    All by the protocol that is named, else by whichever NCCL is the fastest with at that size.
    The limit needs no latency: no size can be faster than its bytes allow.
    """
    usable = _choices(cluster, _usable(found), size_bytes)
    limit = best_of(found).algbw_bytes_per_s.limit
    likely = max(usable, key=lambda one: _middle(cluster, collective, one, size_bytes, protocol))
    bands = [_at(cluster, collective, one, size_bytes, protocol) for one in _near(cluster, collective, usable, likely,
                                                                              size_bytes, protocol)]  # fmt: skip
    known = [band for band in bands if band is not None]
    if size_bytes is None:
        low, high = (min(low for low, _ in known), max(high for _, high in known)) if known else (None, None)
        return likely, Rate(limit=limit, expected_low=low, expected_high=high), None
    least = size_bytes / limit
    if not known:
        return likely, Rate(limit=limit), Rate(limit=least)
    low, high = min(low for low, _ in known), min(max(high for _, high in known), limit)
    time = Rate(limit=least, expected_low=max(size_bytes / high, least), expected_high=size_bytes / low)
    return likely, Rate(limit=limit, expected_low=low, expected_high=high), time


def _at(
    cluster: Cluster, collective: str, one: Algorithm, size_bytes: int | None, protocol: str
) -> tuple[float, float] | None:
    """(low, high) algbw of one algorithm at that size, in bytes/s; None where it has no band."""
    low, high = one.algbw_bytes_per_s.expected_low, one.algbw_bytes_per_s.expected_high
    if low is None or high is None or size_bytes is None:
        return None if low is None or high is None else (low, high)
    if collective == "send_recv":
        least, most = nccl_channels.band_bytes_per_s(cluster, size_bytes)
        low, high = min(low, least), min(high, most)
    shortest, longest = latency.band_s(cluster, collective, one.name, size_bytes, low, high, protocol)
    return size_bytes / longest, size_bytes / shortest


def _near(
    cluster: Cluster,
    collective: str,
    usable: tuple[Algorithm, ...],
    likely: Algorithm,
    size_bytes: int | None,
    protocol: str,
) -> list[Algorithm]:
    """The algorithms of which NCCL may take any there: near the point where it changes from one to the other.

    On two hosts the ring was seen where the tree would be faster, and EFA's plugin chooses by tables of its own.
    """
    best = _middle(cluster, collective, likely, size_bytes, protocol)
    far = _TABLES_APART.value if any(tuning.network_us(cluster)) else _NEARLY_EQUAL.value
    found = [one for one in usable if best <= far * _middle(cluster, collective, one, size_bytes, protocol)]
    large = size_bytes is None or size_bytes >= _LARGE_BYTES.value
    if likely.name == "tree" and large and domains(cluster) == 2:
        found += [one for one in usable if one.name == "ring" and one not in found]
    return found or [likely]


def _choices(cluster: Cluster, usable: tuple[Algorithm, ...], size_bytes: int | None) -> tuple[Algorithm, ...]:
    """What NCCL chooses from: inside one domain no tree for large sizes, as it plans that with a share of the ring's.

    Where the ring's way over sockets is the narrowest link a tree could be faster, but is not taken.
    """
    large = size_bytes is None or size_bytes >= _LARGE_BYTES.value
    ring = any(one.name == "ring" for one in usable)
    skipped = "tree" if ring and large and domains(cluster) == 1 else ""
    return tuple(one for one in usable if one.name != skipped)


def _middle(cluster: Cluster, collective: str, one: Algorithm, size_bytes: int | None, protocol: str) -> float:
    """What to rank algorithms by: the middle of the band at that size, 0 where there is no band."""
    middle = one.algbw_bytes_per_s.middle
    if middle is None or size_bytes is None:
        return middle or 0.0
    return size_bytes / latency.time_s(cluster, collective, one.name, size_bytes, middle, protocol)


def _algorithm(case: Case, collective: str, name: str, *, explained: bool) -> Algorithm:
    flows = Flows(problem_of(case.cluster, collective, name, case.relay))
    flow = flows.under(lambda one: one.limit_bytes_per_s)
    low, high = _expected(case, collective, name, flows, flow) or (None, None)
    rate = Rate(limit=flow.rate_bytes_per_s, expected_low=low, expected_high=high)
    return Algorithm(
        name=name,
        algbw_bytes_per_s=rate,
        busbw_bytes_per_s=rate.times(float(factor(collective, case.cluster.ranks))),
        bottleneck=_bottleneck(flows, flow) if explained else (),
        in_nccl=name not in NOT_IN_NCCL,
    )


def _expected(case: Case, collective: str, name: str, flows: Flows, flow: Flow) -> tuple[float, float] | None:
    """The band: the same flow over what NCCL reaches of each link; None where a link that it uses has no band."""
    bands = nccl.Bands(case, collective, name)
    found = {key: bands.of(resource) for key, resource in flows.problem.graph.resources.items()}
    if any(found[key].low is None for key in flow.shares):
        return None
    high = flows.rate_under(lambda one: found[one.id].high)
    low = flows.rate_under(lambda one: found[one.id].low or 0.0)
    if low <= 0:  # without the links of unknown band nothing gets through, so they decide
        return None
    cap = nccl.tree_cap(case.cluster, name)
    if cap is None:
        return low, high
    share = float(factor(collective, case.cluster.ranks))
    return min(low, cap[0] / share), min(high, cap[1] / share)


def _bottleneck(flows: Flows, flow: Flow) -> tuple[Share, ...]:
    """The resources that decide the limit, by kind, the greatest share first."""
    known = flows.problem.graph.resources
    kinds: dict[str, list[Resource]] = defaultdict(list)
    for name in flow.shares:
        kinds[known[name].kind].append(known[name])
    found = [_share(flows, flow, kind, resources) for kind, resources in kinds.items()]
    return tuple(sorted(found, key=lambda one: -one.share))


def _share(flows: Flows, flow: Flow, kind: str, resources: list[Resource]) -> Share:
    known = flows.problem.graph.resources
    doubled = flows.under(lambda one: one.limit_bytes_per_s * (2 if one.kind == kind else 1))
    following = max(doubled.shares, key=lambda name: doubled.shares[name], default="")
    alike = [one for one in known.values() if _alike(one, resources[0])]
    return Share(
        what=kind,
        where=tuple(resource.id for resource in resources),
        share=min(1.0, sum(flow.shares[resource.id] for resource in resources)),
        because=f"{len(alike)} like {resources[0].words}" if len(alike) > 1 else resources[0].words,
        doubled_bytes_per_s=doubled.rate_bytes_per_s,
        then=known[following].kind if following else "",
        sources=getattr(link_limit(resources[0].link)[0], "sources", ()),
    )


def _alike(one: Resource, other: Resource) -> bool:
    """The same kind of link at the same rate, in the same direction."""
    direction = one.id.rpartition(":")[2] == other.id.rpartition(":")[2] or "tx" not in one.id + other.id
    return (one.kind, one.limit_bytes_per_s) == (other.kind, other.limit_bytes_per_s) and direction


def _because(best: Algorithm) -> str:
    if not best.bottleneck:
        return f"{best.name}: nothing known holds it back"
    first = best.bottleneck[0]
    return f"{best.name}: {first.what} decides {first.share:.0%} of it, {first.because}"


def _assumptions(cluster: Cluster, collective: str, chosen: str) -> tuple[str, ...]:
    found = ["one rank for each GPU, all hosts alike, ranks numbered host by host"]
    unknown = not_counted(flow_graph(cluster))
    if unknown:
        found.append(f"not known and so not counted, the limit may be lower: {', '.join(unknown[:4])}")
    if chosen == "tree" and cluster.hosts > 1:
        found.append(f"NCCL takes the tree or the ring: the band covers both ({RING_SEEN})")
    if cluster.hosts > 1 and not cluster.fabric.tiers:
        found.append("the fabric is non-blocking (a cluster file can say otherwise)")
    if cluster.hosts > 1 and collective == "all_reduce" and not cluster.fabric.in_network_reduction:
        found.append("the switches do not reduce (SHARP): with in_network_reduction=true in the cluster file they do")
    return tuple(found)


def _sources(cluster: Cluster) -> tuple[str, ...]:
    named: dict[str, None] = {}
    for link in cluster.host.links:
        limit, _ = link_limit(link)
        documents: tuple[Source, ...] = getattr(limit, "sources", ())
        named.update(dict.fromkeys(map(str, documents)))
    return (*named, str(NCCL_TOPO), str(NCCL_TUNING))

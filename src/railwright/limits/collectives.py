"""The algorithms of a collective on a cluster, each with its limit, its band and its bottleneck.

The limit of an algorithm is a maximum concurrent flow (`flow`, `traffic`). Its band is the same program over the rates
that NCCL reaches on each link (`nccl`). The duals of the program name the bottleneck.
"""

from __future__ import annotations

from collections import defaultdict

from railwright.busbw import busbw_factor
from railwright.errors import UsageError
from railwright.limits import latency, nccl, tuning
from railwright.limits.case import Case
from railwright.limits.choice import find_best
from railwright.limits.flow import Flow, Flows
from railwright.limits.flow_graph import Resource
from railwright.limits.limit import Limit
from railwright.limits.path import link_limit
from railwright.limits.rates import Algorithm, Rate, Share
from railwright.limits.traffic import NOT_IN_NCCL, build_problem, find_protocol, list_algorithms


def compute_algorithms(case: Case, collective: str, *, explained: bool = True) -> tuple[Algorithm, ...]:
    """Compute every algorithm that can run there at large sizes; without `explained`, skip the bottlenecks.

    Raises UsageError for fewer than two GPUs or an algorithm that cannot run there, and CannotJudge if no limit
    follows.
    """
    cluster = case.cluster
    if cluster.ranks < 2:
        raise UsageError(
            f"{collective} needs two GPUs, {cluster.name} has {cluster.ranks}", hint="give --count, or gpus=8"
        )
    name = case.algorithm.lower()
    names = list_algorithms(cluster, collective) if name == "auto" else (name,)
    return tuple(_compute_algorithm(case, collective, name, explained=explained) for name in names)


def build_limit(found: tuple[Algorithm, ...], bytes_per_s: float) -> Limit:
    """Return `bytes_per_s` as the limit of a collective, whose reason is the narrowest link of the best algorithm."""
    best = find_best(found)
    narrowest = best.bottleneck[0] if best.bottleneck else None
    return Limit(
        quantity="bandwidth_bytes_per_s",
        value=bytes_per_s,
        kind="derived",
        because=f"{best.name}: {narrowest.what}, {narrowest.because}" if narrowest else best.name,
        bottleneck=narrowest.where[0] if narrowest else "",
        sources=narrowest.sources if narrowest else (),
    )


def _compute_algorithm(case: Case, collective: str, name: str, *, explained: bool) -> Algorithm:
    flows = Flows(build_problem(case.cluster, collective, name, case.relay))
    flow = flows.solve_under(lambda resource: resource.limit_bytes_per_s)
    low, high = _compute_band(case, collective, name, flows, flow) or (None, None)
    sent = tuning.data_share(find_protocol(case.cluster)) if name in latency.WITH_PROTOCOLS else 1.0
    rate = Rate(limit=flow.rate_bytes_per_s * sent, expected_low=low, expected_high=high)
    return Algorithm(
        name=name,
        algbw_bytes_per_s=rate,
        busbw_bytes_per_s=rate.times(float(busbw_factor(collective, case.cluster.ranks))),
        bottleneck=_find_bottleneck(flows, flow, sent) if explained else (),
        in_nccl=name not in NOT_IN_NCCL,
    )


def _compute_band(case: Case, collective: str, name: str, flows: Flows, flow: Flow) -> tuple[float, float] | None:
    """Return the band: the same flow over the rates that NCCL reaches; None if a link in use has no band."""
    bands = nccl.Bands(case, collective, name)
    found = {key: bands.find(resource) for key, resource in flows.problem.graph.resources.items()}
    if any(found[key].low is None for key in flow.shares):
        return None
    high = flows.solve_rate(lambda resource: found[resource.id].high)
    low = flows.solve_rate(lambda resource: found[resource.id].low or 0.0)
    if low <= 0:  # the links without a band decide: no data passes without them
        return None
    cap = nccl.tree_cap(case.cluster, name)
    if cap is None:
        return low, high
    share = float(busbw_factor(collective, case.cluster.ranks))
    return min(low, cap[0] / share), min(high, cap[1] / share)


def _find_bottleneck(flows: Flows, flow: Flow, sent: float) -> tuple[Share, ...]:
    """Return the resources that decide the limit, by kind, greatest share first. `sent` is the share of bytes that is
    data.
    """
    known = flows.problem.graph.resources
    kinds: dict[str, list[Resource]] = defaultdict(list)
    for name in flow.shares:
        kinds[known[name].kind].append(known[name])
    found = [_compute_share(flows, flow, kind, resources, sent) for kind, resources in kinds.items()]
    return tuple(sorted(found, key=lambda share: -share.share))


def _compute_share(flows: Flows, flow: Flow, kind: str, resources: list[Resource], sent: float) -> Share:
    known = flows.problem.graph.resources
    doubled = flows.solve_under(lambda resource: resource.limit_bytes_per_s * (2 if resource.kind == kind else 1))
    following = max(doubled.shares, key=lambda name: doubled.shares[name], default="")
    alike = [resource for resource in known.values() if _are_alike(resource, resources[0])]
    return Share(
        what=kind,
        where=tuple(resource.id for resource in resources),
        share=min(1.0, sum(flow.shares[resource.id] for resource in resources)),
        because=f"{len(alike)} like {resources[0].words}" if len(alike) > 1 else resources[0].words,
        doubled_bytes_per_s=doubled.rate_bytes_per_s * sent,
        then=known[following].kind if following else "",
        sources=getattr(link_limit(resources[0].link), "sources", ()),
    )


def _are_alike(resource: Resource, other: Resource) -> bool:
    """Report whether both are the same kind of link at the same rate in the same direction."""
    direction = resource.id.rpartition(":")[2] == other.id.rpartition(":")[2] or "tx" not in resource.id + other.id
    return (resource.kind, resource.limit_bytes_per_s) == (other.kind, other.limit_bytes_per_s) and direction

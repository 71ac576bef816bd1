"""A collective as a row of `limits` and `whatif`: the limit, the band of NCCL's choice, and the reason."""

from __future__ import annotations

import msgspec
from msgspec.structs import replace

from railwright.busbw import busbw_factor
from railwright.errors import UsageError
from railwright.expected.machine import Machine
from railwright.expected.nccl_collectives import compute_reached
from railwright.limits.choice import compute_large_rate, find_best
from railwright.limits.flow_graph import flow_graph, list_uncounted
from railwright.limits.limit import Source
from railwright.limits.path import link_limit
from railwright.limits.rates import Algorithm, Rate, Share
from railwright.limits.software import software_limits
from railwright.limits.sources import NCCL_TOPO, NCCL_TUNING, RING_SEEN
from railwright.limits.traffic import collective_name
from railwright.results.workload import Collective
from railwright.topology.cluster import Cluster, describe_gpus


class CollectiveLimit(msgspec.Struct, frozen=True, kw_only=True, tag="collective", tag_field="record",
                      omit_defaults=True, forbid_unknown_fields=True):  # fmt: skip
    """The limit of the best algorithm, the band of NCCL's choice, and the reason."""

    collective: str
    cluster: str
    hosts: int
    ranks: int
    scale: str
    """GPUs and racks in words."""
    algorithm: str
    """The requested algorithm, or `auto` for the best that NCCL has there."""
    size_bytes: int | None = None
    algbw_bytes_per_s: Rate
    busbw_bytes_per_s: Rate
    time_s: Rate | None = None
    """The time of one operation of `size_bytes`; the limit is the least time."""
    chosen: str
    """The algorithm that is likely the fastest there."""
    because: str
    bottleneck: tuple[Share, ...]
    software_limits: tuple[str, ...] = ()
    assumptions: tuple[str, ...] = ()
    algorithms: tuple[Algorithm, ...] = ()
    sources: tuple[str, ...] = ()


def collective_row(
    cluster: Cluster, collective: str, algorithm: str = "auto", size_bytes: int | None = None
) -> CollectiveLimit:
    """Return the limit, band and bottleneck of a collective. Raises UsageError and CannotJudge."""
    if size_bytes is not None and size_bytes < 1:
        raise UsageError(f"a collective must move at least 1 byte, got {size_bytes}", hint="give --size 1 or more")
    collective = collective_name(collective)
    workload = Collective(operation=collective, algorithm=algorithm, size_bytes=size_bytes, ranks=cluster.ranks)
    found = compute_reached(workload, Machine(cluster=cluster))
    best = find_best(found.algorithms)
    share = float(busbw_factor(collective, cluster.ranks))
    return CollectiveLimit(
        collective=collective,
        cluster=cluster.name,
        hosts=cluster.hosts,
        ranks=cluster.ranks,
        scale=describe_gpus(cluster),
        algorithm=algorithm,
        size_bytes=size_bytes,
        algbw_bytes_per_s=found.rate,
        busbw_bytes_per_s=found.rate.times(share),
        time_s=found.time,
        chosen=found.likely.name,
        because=_explain_bottleneck(best),
        bottleneck=best.bottleneck,
        software_limits=software_limits(cluster, collective, best.name),
        assumptions=_list_assumptions(cluster, collective, found.likely.name),
        algorithms=tuple(_apply_protocol(cluster, collective, algorithm) for algorithm in found.algorithms),
        sources=_list_sources(cluster),
    )


def _apply_protocol(cluster: Cluster, collective: str, algorithm: Algorithm) -> Algorithm:
    """Return the algorithm with its rates at large sizes under the cluster's protocol."""
    rate = compute_large_rate(cluster, collective, algorithm)
    return replace(
        algorithm, algbw_bytes_per_s=rate, busbw_bytes_per_s=rate.times(float(busbw_factor(collective, cluster.ranks)))
    )


def _explain_bottleneck(best: Algorithm) -> str:
    if not best.bottleneck:
        return f"{best.name}: no link of known rate limits it"
    first = best.bottleneck[0]
    return f"{best.name}: {first.what} decides {first.share:.0%} of it, {first.because}"


def _list_assumptions(cluster: Cluster, collective: str, chosen: str) -> tuple[str, ...]:
    found = ["one rank for each GPU, all hosts alike, ranks numbered host by host"]
    unknown = list_uncounted(flow_graph(cluster))
    if unknown:
        found.append(f"unknown and not counted, so the limit may be lower: {', '.join(unknown[:4])}")
    if chosen == "tree" and cluster.hosts > 1:
        found.append(f"NCCL takes the tree or the ring: the band covers both ({RING_SEEN})")
    if cluster.hosts > 1 and not cluster.fabric.tiers:
        found.append("the fabric is non-blocking (a cluster file can say otherwise)")
    if cluster.hosts > 1 and collective == "all_reduce" and not cluster.fabric.in_network_reduction:
        found.append("the switches do not reduce (SHARP): with in_network_reduction=true in the cluster file they do")
    return tuple(found)


def _list_sources(cluster: Cluster) -> tuple[str, ...]:
    named: dict[str, None] = {}
    for link in cluster.host.links:
        limit = link_limit(link)
        documents: tuple[Source, ...] = getattr(limit, "sources", ())
        named.update(dict.fromkeys(map(str, documents)))
    return (*named, str(NCCL_TOPO), str(NCCL_TUNING))

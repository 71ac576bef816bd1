"""Flows collide on the uplinks of switches: hashing puts two on one link while another is idle, or uplinks are few.

Two flows on a link get half of it each. Meta (SIGCOMM 2024, RDMA over Ethernet for distributed training)
gained up to 40 % AllReduce by spreading flows over more hash values than one for each pair.
"""

from __future__ import annotations

from msgspec.structs import replace

from railwright.faults.cases import crosses_network
from railwright.faults.fault import Fault, Hypotheses
from railwright.limits.case import Case
from railwright.limits.traffic import domain_hosts, domains
from railwright.topology.cluster import Cluster, Fabric, Tier

_FLOWS_ON_A_LINK = 2.0
"""The number of flows in the smallest collision."""


def _hypotheses(case: Case) -> Hypotheses:
    fabric = _share_uplinks(case.cluster) if crosses_network(case) else None
    if fabric is not None:
        yield FAULT.supposed(
            "two flows share each uplink of the leaf switches (hashing, or too few uplinks)",
            replace(case, cluster=replace(case.cluster, fabric=fabric)),
            "the same test is fast with hosts of one leaf only; the switches' uplink counters differ, and"
            " NCCL_IB_QPS_PER_CONNECTION=4 or adaptive routing changes the rate",
        )


def _share_uplinks(cluster: Cluster) -> Fabric | None:
    """Return the fabric with half the uplink rate at its lowest tier; None if no traffic leaves that tier.

    If the tiers are unknown, each NVLink domain gets its own leaf, because it is unknown whether hosts share one.
    """
    fabric = cluster.fabric
    if not fabric.tiers:
        inside = domain_hosts(cluster)
        leaf = Tier(name="leaf", hosts=inside, oversubscription=_FLOWS_ON_A_LINK)
        tiers = (leaf, Tier(name="spine", hosts=inside * domains(cluster)))
        return replace(fabric, rail_optimised=False, tiers=tiers)
    lowest = fabric.tiers[0]
    leaves_it = lowest.hosts < cluster.hosts or (fabric.rail_optimised and len(fabric.tiers) > 1)
    if not leaves_it:
        return None
    shared = replace(lowest, oversubscription=lowest.oversubscription * _FLOWS_ON_A_LINK)
    return replace(fabric, tiers=(shared, *fabric.tiers[1:]))


FAULT = Fault(
    name="uplinks_shared",
    summary="flows collide on the uplinks of switches",
    right="flows do not collide on the uplinks of switches",
    needs_results=True,
    ways=_hypotheses,
)

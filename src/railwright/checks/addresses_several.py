"""A RoCE interface with several addresses of one kind, so that the order in which they were added decides the GID.

Traffic from an address of another subnet takes another route, and the right GID index differs between hosts.
"""

from __future__ import annotations

from collections import Counter

from railwright.checks import needs
from railwright.checks.check import Check, Facts, Findings
from railwright.checks.roce_gids import GIDS, gids, roce, roce_nics, unread
from railwright.topology.gpus import format_runs


def _signs(facts: Facts) -> Findings:
    several: dict[str, int] = {}
    for nic in roce_nics(facts.topology):
        counts = Counter((gid.netdev, gid.kind) for gid in gids(nic) or () if gid.is_routable)
        if counts and max(counts.values()) > 1:
            several[nic.id] = max(counts.values())
    if several:
        yield CHECK.finding(
            several,
            f"an interface of {format_runs(several)} has {max(several.values())} addresses of one kind",
            ("RoCE v2 GIDs", str(max(several.values())), GIDS),
        )


CHECK = Check(
    name="addresses_several",
    summary="an interface of the fabric has several addresses",
    right="every interface of the fabric has one address",
    certainty="possible",
    costs="traffic may use the source address of another subnet, or not arrive",
    remedy="keep one address on each interface of the fabric, or select the subnet with NCCL_IB_ADDR_RANGE=SUBNET/BITS",
    signs=_signs,
    needs=(needs.settings, roce),
    asks=(unread,),
)

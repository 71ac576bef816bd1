"""Several addresses of one kind on a RoCE port's interface: which one RDMA takes depends on the order they came in.

An address of another subnet then leaves by another route, and an index that was right on one host is not on the next.
"""

from __future__ import annotations

from collections import Counter

from railwright.checks import needs
from railwright.checks.check import Check, Facts, Findings
from railwright.checks.roce_gids import GIDS, gids, roce, roce_nics, unread
from railwright.topology.gpus import runs


def _signs(facts: Facts) -> Findings:
    several: dict[str, int] = {}
    for nic in roce_nics(facts.topology):
        counts = Counter((one.netdev, one.kind) for one in gids(nic) or () if one.is_routable)
        if counts and max(counts.values()) > 1:
            several[nic.id] = max(counts.values())
    if several:
        yield CHECK.finding(
            several,
            f"an interface of {runs(several)} has {max(several.values())} addresses of one kind",
            ("RoCE v2 GIDs", str(max(several.values())), GIDS),
        )


CHECK = Check(
    name="addresses_several",
    summary="an interface of the fabric has several addresses",
    certainty="possible",
    costs="traffic may leave with the address of another subnet, or not arrive",
    remedy="one address on each interface of the fabric; or NCCL_IB_ADDR_RANGE=SUBNET/BITS, which says which",
    signs=_signs,
    needs=(needs.settings, roce),
    asks=(unread,),
)

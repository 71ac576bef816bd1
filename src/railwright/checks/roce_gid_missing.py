"""A RoCE port without an address: its GIDs are link-local, so that RDMA ends at the next router, or does not begin.

The kernel makes a RoCE v2 GID of each IP address of the port's netdev (Linux drivers/infiniband/core/roce_gid_mgmt.c).
"""

from __future__ import annotations

from railwright.checks import needs
from railwright.checks.check import Check, Facts, Findings
from railwright.checks.roce_gids import GIDS, gids, roce, roce_nics, unread
from railwright.topology.gpus import runs


def _signs(facts: Facts) -> Findings:
    tables = {nic.id: gids(nic) for nic in roce_nics(facts.topology)}
    bare = [name for name, table in tables.items() if table is not None and not any(one.is_routable for one in table)]
    if bare:
        yield CHECK.finding(
            bare,
            f"{runs(bare)} have no RoCE v2 GID of an IP address that was given to them",
            ("GIDs", "link-local alone", GIDS),
            certainty="likely" if len(bare) < len(tables) else "possible",
        )


CHECK = Check(
    name="roce_gid_missing",
    summary="a RoCE port has no address that RDMA can be routed by",
    costs="RDMA through routers does not work, and libraries that look for an IPv4 GID take TCP or end",
    remedy="give the port's netdev its address: ip address add ADDRESS dev NETDEV; then look with show_gids",
    signs=_signs,
    needs=(needs.settings, roce),
    asks=(unread,),
)

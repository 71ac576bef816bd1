"""A RoCE port without an IP address: its GIDs are link-local, so RDMA cannot cross routers, or does not work at all.

The kernel creates a RoCE v2 GID for each IP address of the port's netdev (Linux
drivers/infiniband/core/roce_gid_mgmt.c).
"""

from __future__ import annotations

from railwright.checks import needs
from railwright.checks.check import Check, Facts, Findings
from railwright.checks.roce_gids import GIDS, gids, roce, roce_nics, unread
from railwright.topology.gpus import format_runs


def _signs(facts: Facts) -> Findings:
    tables = {nic.id: gids(nic) for nic in roce_nics(facts.topology)}
    bare = [name for name, table in tables.items() if table is not None and not any(gid.is_routable for gid in table)]
    if bare:
        yield CHECK.finding(
            bare,
            f"{format_runs(bare)} have no RoCE v2 GID of a configured IP address",
            ("GIDs", "link-local only", GIDS),
            certainty="likely" if len(bare) < len(tables) else "possible",
        )


CHECK = Check(
    name="roce_gid_missing",
    summary="a RoCE port has no routable address",
    right="every RoCE port has a routable address",
    costs="RDMA through routers does not work, and libraries that look for an IPv4 GID use TCP or fail",
    remedy="assign the netdev its address: ip address add ADDRESS dev NETDEV; then check with show_gids",
    signs=_signs,
    needs=(needs.settings, roce),
    asks=(unread,),
)

"""A fabric of IPv6 addresses alone, while what uses it looks for IPv4.

NCCL looks for GIDs of IPv4 unless NCCL_IB_ADDR_FAMILY says AF_INET6 (NCCL User Guide, NCCL_IB_ADDR_FAMILY).
"""

from __future__ import annotations

from railwright.checks import needs
from railwright.checks.check import Check, Facts, Findings
from railwright.checks.roce_gids import GIDS, gids, roce, roce_nics, unread
from railwright.topology.gpus import runs

_FAMILY = "NCCL_IB_ADDR_FAMILY"


def _signs(facts: Facts) -> Findings:
    tables = {nic.id: gids(nic) or () for nic in roce_nics(facts.topology)}
    kinds = {name: {one.kind for one in table if one.is_routable} for name, table in tables.items()}
    six = [name for name, kind in kinds.items() if kind == {"IPv6"}]
    family = facts.environment.get(_FAMILY, "").strip().upper()
    if six and family != "AF_INET6":
        said = f"{_FAMILY} is {family[:20]}" if family else f"{_FAMILY} is not known to be AF_INET6"
        yield CHECK.finding(
            six,
            f"{runs(six)} have IPv6 addresses alone, and {said}",
            ("GIDs", "IPv6 alone", GIDS),
            certainty="likely" if family else "possible",
        )


CHECK = Check(
    name="fabric_ipv6_only",
    summary="RDMA ports have IPv6 addresses alone, and tools look for IPv4",
    costs="NCCL finds no GID of IPv4; tools that take IPv4 alone do not connect, or take another network",
    remedy=f"{_FAMILY}=AF_INET6 and NCCL_SOCKET_FAMILY=AF_INET6 in the environment of jobs; ib_write_bw --ipv6-addr",
    signs=_signs,
    needs=(needs.settings, roce),
    asks=(unread,),
)

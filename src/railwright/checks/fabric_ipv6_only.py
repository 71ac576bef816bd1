"""A fabric with only IPv6 addresses, used by programs that look for IPv4.

NCCL looks for IPv4 GIDs unless NCCL_IB_ADDR_FAMILY is AF_INET6 (NCCL User Guide, NCCL_IB_ADDR_FAMILY).
"""

from __future__ import annotations

from railwright.checks import needs
from railwright.checks.check import Check, Facts, Findings
from railwright.checks.roce_gids import GIDS, gids, roce, roce_nics, unread
from railwright.topology.gpus import format_runs

_FAMILY = "NCCL_IB_ADDR_FAMILY"


def _signs(facts: Facts) -> Findings:
    tables = {nic.id: gids(nic) or () for nic in roce_nics(facts.topology)}
    kinds = {name: {gid.kind for gid in table if gid.is_routable} for name, table in tables.items()}
    six = [name for name, kind in kinds.items() if kind == {"IPv6"}]
    family = facts.environment.get(_FAMILY, "").strip().upper()
    if six and family != "AF_INET6":
        state = f"{_FAMILY} is {family[:20]}" if family else f"{_FAMILY} is not known to be AF_INET6"
        yield CHECK.finding(
            six,
            f"{format_runs(six)} have only IPv6 addresses, and {state}",
            ("GIDs", "IPv6 only", GIDS),
            certainty="likely" if family else "possible",
        )


CHECK = Check(
    name="fabric_ipv6_only",
    summary="RDMA ports have only IPv6 addresses, and tools look for IPv4",
    right="RDMA ports have the addresses that tools look for",
    costs="NCCL finds no IPv4 GID; tools that support only IPv4 do not connect, or use another network",
    remedy=f"set {_FAMILY}=AF_INET6 and NCCL_SOCKET_FAMILY=AF_INET6 for jobs; use ib_write_bw --ipv6-addr",
    signs=_signs,
    needs=(needs.settings, roce),
    asks=(unread,),
)

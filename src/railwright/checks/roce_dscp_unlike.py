"""RoCE ports of one host that map a DSCP to different priorities, according to `dcb app show`.

RoCE v2 packets carry the DSCP of their traffic class; the port's table maps it to a priority, and so to a queue that
is lossless or not. The right table depends on the fabric, but the ports of a host must agree.
IEEE 802.1Qcd; iproute2, dcb-app(8).
"""

from __future__ import annotations

from railwright.checks.roce_unlike import LOOK_WITH, make_check
from railwright.topology.gpus import format_runs
from railwright.topology.settings import NONE


def _format_difference(names: list[str], value: str, usual: str) -> str:
    verb = "maps" if len(names) == 1 else "map"
    return f"{format_runs(names)} {verb} {_format_table(value)}, most others {_format_table(usual)}"


def _format_table(value: str) -> str:
    """Format the whole table, including the entries that all ports share."""
    return "no DSCP to a priority" if value == NONE else f"DSCP to priorities as {value}"


CHECK = make_check(
    "roce_dscp_unlike",
    "RoCE ports of a host map a DSCP to different priorities",
    "RoCE ports map each DSCP to the same priority",
    "dscp_priorities",
    says=_format_difference,
    seen=("DSCP:priority", "dcb app show"),
    unread=f"dcb does not report the DSCP table of {{}}{LOOK_WITH}",
    costs="packets in a queue without PFC or ECN are lost under congestion; no cost on an idle fabric",
    remedy="dcb app replace dev NETDEV dscp-prio 26:3, with the fabric's values; use mlnx_qos if it manages the port",
)

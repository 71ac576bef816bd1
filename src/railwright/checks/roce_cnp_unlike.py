"""RoCE ports of one host whose congestion notifications (CNP) have different DSCPs, according to sysfs.

Switches give CNPs a queue of their own by the DSCP, so that they overtake the traffic that they slow.
NVIDIA, RoCE configuration of ConnectX (`ecn/roce_np/cnp_dscp`); only the drivers of MLNX_OFED and DOCA-OFED have the
file.
"""

from __future__ import annotations

from railwright.checks.roce_unlike import NO_OFED, make_check
from railwright.topology.gpus import format_runs


def _format_difference(names: list[str], value: str, usual: str) -> str:
    verb = "sends" if len(names) == 1 else "send"
    return f"{format_runs(names)} {verb} congestion notifications with DSCP {value}, most others with {usual}"


CHECK = make_check(
    "roce_cnp_unlike",
    "RoCE ports of a host send congestion notifications with different DSCPs",
    "RoCE ports send congestion notifications with the same DSCP",
    "cnp_dscp",
    says=_format_difference,
    seen=("DSCP of CNPs", "/sys/class/net/*/ecn/roce_np/cnp_dscp"),
    unread="the driver of {} does not show the DSCP of its congestion notifications",
    costs="under congestion some senders slow down late; no cost on an idle fabric",
    remedy="echo 48 | tee /sys/class/net/NETDEV/ecn/roce_np/cnp_dscp, with the fabric's value",
    lacking=NO_OFED,
)

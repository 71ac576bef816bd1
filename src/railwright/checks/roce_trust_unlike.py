"""RoCE ports of one host that take the priority of a packet from different fields, according to sysfs.

A port that trusts DSCP takes the priority from the IP header, and one that trusts PCP from the VLAN tag, which routed
RoCE v2 packets do not have: there all of them have the default priority.
NVIDIA, mlnx_qos; only the drivers of MLNX_OFED and DOCA-OFED have the file.
"""

from __future__ import annotations

from railwright.checks.roce_unlike import LOOK_WITH, NO_OFED, make_check
from railwright.topology.gpus import format_runs


def _format_difference(names: list[str], value: str, usual: str) -> str:
    verb = "trusts" if len(names) == 1 else "trust"
    return f"{format_runs(names)} {verb} {value.upper()}, most others {usual.upper()}"


CHECK = make_check(
    "roce_trust_unlike",
    "RoCE ports of a host take the priority of packets from different fields",
    "RoCE ports take the priority of packets from the same field",
    "trust_mode",
    says=_format_difference,
    seen=("trust mode", "/sys/class/net/*/qos/trust"),
    unread=f"the driver of {{}} does not show its trust mode{LOOK_WITH}",
    costs="packets in a queue without PFC or ECN are lost under congestion; no cost on an idle fabric",
    remedy="mlnx_qos -i NETDEV --trust dscp, or pcp, to match the fabric",
    lacking=NO_OFED,
)

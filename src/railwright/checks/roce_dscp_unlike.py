"""RoCE ports of one host that take a DSCP for different priorities, by `dcb app show`.

RoCE v2 packets carry the DSCP of their traffic class; the port's table says which priority, and so which queue and
whether it is lossless, that means. The table is the fabric's design; that the ports of a host differ is not.
IEEE 802.1Qcd; iproute2, dcb-app(8).
"""

from __future__ import annotations

from railwright.checks.roce_unlike import LOOK_WITH, unlike
from railwright.topology.gpus import runs
from railwright.topology.settings import NONE


def _says(names: list[str], value: str, usual: str) -> str:
    return f"{runs(names)} {'takes' if len(names) == 1 else 'take'} {_words(value)}, most others {_words(usual)}"


def _words(value: str) -> str:
    """Its table; what no port differs in is not left out, since the whole is what is set."""
    return "no DSCP for a priority" if value == NONE else f"DSCP for priorities as {value}"


CHECK = unlike(
    "roce_dscp_unlike",
    "RoCE ports of a host take a DSCP for different priorities",
    "dscp_priorities",
    says=_says,
    seen=("DSCP:priority", "dcb app show"),
    unread=f"dcb does not tell the DSCP table of {{}}{LOOK_WITH}",
    costs="packets in a queue without PFC or ECN are lost under congestion; none on an idle fabric",
    remedy="dcb app replace dev NETDEV dscp-prio 26:3, as the fabric is set up; mlnx_qos where it decides",
)

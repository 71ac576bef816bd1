"""RoCE ports of one host that take a DSCP for different priorities, by `dcb app show`.

RoCE v2 packets carry the DSCP of their traffic class; the port's table says which priority, and so which queue and
whether it is lossless, that means. The table is the fabric's design; that the ports of a host differ is not.
IEEE 802.1Qcd; iproute2, dcb-app(8).
"""

from __future__ import annotations

from railwright.checks import needs
from railwright.checks.check import Check, Facts, Findings
from railwright.checks.finding import OfPart
from railwright.checks.roce_gids import roce
from railwright.checks.roce_unlike import unlike, unread
from railwright.results.records import Evidence
from railwright.topology.gpus import runs
from railwright.topology.settings import NONE

_FACT = "dscp_priorities"


def _signs(facts: Facts) -> Findings:
    for names, value, usual in unlike(facts.topology, _FACT):
        yield CHECK.finding(
            map(OfPart, names),
            f"{runs(names)} {'takes' if len(names) == 1 else 'take'} {_words(value)}, most others {_words(usual)}",
            Evidence(claim="DSCP:priority", value=value, seen="dcb app show"),
            certainty="likely",
            costs="packets in a queue without PFC or ECN are lost under congestion; none on an idle fabric",
            remedy="dcb app replace dev NETDEV dscp-prio 26:3, as the fabric is set up; mlnx_qos where it decides",
        )


def _words(value: str) -> str:
    """Its table; what no port differs in is not left out, since the whole is what is set."""
    return "no DSCP for a priority" if value == NONE else f"DSCP for priorities as {value}"


CHECK = Check(
    name="roce_dscp_unlike",
    summary="RoCE ports of a host take a DSCP for different priorities",
    signs=_signs,
    needs=(needs.settings, roce),
    asks=(lambda topology: unread(topology, _FACT, "the DSCP table"),),
)

"""RoCE ports of one host whose lossless priorities are not the same, by `dcb pfc show`.

Which priority is lossless, or none where ECN alone is to do, is the fabric's design; that the ports of a host differ is
not. IEEE 802.1Qbb; iproute2, dcb-pfc(8).
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

_FACT = "lossless_priorities"


def _signs(facts: Facts) -> Findings:
    for names, value, usual in unlike(facts.topology, _FACT):
        yield CHECK.finding(
            map(OfPart, names),
            f"{runs(names)} {'has' if len(names) == 1 else 'have'} {_words(value)}, most others {_words(usual)}",
            Evidence(claim="lossless priorities", value=value, seen="dcb pfc show"),
            certainty="likely",
            costs="packets are lost under congestion on one side, or pauses spread it; none on an idle fabric",
            remedy="dcb pfc set dev NETDEV prio-pfc 3:on, as the fabric is set up; mlnx_qos where that driver decides",
        )


def _words(value: str) -> str:
    return "no lossless priority" if value == NONE else f"lossless priority {value}"


CHECK = Check(
    name="roce_pfc_unlike",
    summary="RoCE ports of a host differ in their lossless priorities",
    signs=_signs,
    needs=(needs.settings, roce),
    asks=(lambda topology: unread(topology, _FACT, "the priorities"),),
)

"""RoCE ports of one host that differ in pauses of all their traffic (IEEE 802.3x), by `ethtool -a`.

Whether a lossless fabric pauses whole ports, single priorities or none is its design; that the ports of a host differ
is not. A pause stops every class, also what is not RDMA: NVIDIA/daqiri#250 measured a fifth of 400 Gb/s lost to them
with no counter of drops moving. IEEE 802.3 annex 31B; ethtool(8).
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

_FACT = "pause"
_WORDS = {NONE: "neither heed nor send pauses", "rx": "heed pauses", "tx": "send pauses", "rx tx": "heed and send them"}


def _signs(facts: Facts) -> Findings:
    for names, value, usual in unlike(facts.topology, _FACT):
        yield CHECK.finding(
            map(OfPart, names),
            f"{runs(names)}: {_words(value)}; most other ports: {_words(usual)}",
            Evidence(claim="pauses of all traffic", value=value, seen="ethtool -a"),
            certainty="likely",
            costs="one side loses packets under congestion, or is stopped whole by it; none on an idle fabric",
            remedy="ethtool -A NETDEV rx off tx off, or on, as the fabric is set up; beside PFC they are off",
        )


def _words(value: str) -> str:
    return _WORDS.get(value, value)


CHECK = Check(
    name="roce_pause_unlike",
    summary="RoCE ports of a host differ in pauses of all their traffic",
    signs=_signs,
    needs=(needs.settings, roce),
    asks=(lambda topology: unread(topology, _FACT, "the pauses", told_by="ethtool -a", instead=""),),
)

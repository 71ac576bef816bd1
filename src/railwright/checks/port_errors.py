"""A port that counted errors since its driver started: a cable, its optics, or a link that went down and came back.

The counters are those of InfiniBand's PortCounters, which Ethernet ports of ConnectX have too, and of mlx5 those of
packets that were lost or damaged. They tell no time: what moves while a benchmark runs is in its record.
"""

from __future__ import annotations

from railwright.checks import needs
from railwright.checks.check import Check, Facts, Findings
from railwright.checks.parts import rdma_nics
from railwright.topology.devices import Topology
from railwright.topology.gpus import runs
from railwright.topology.settings import NONE

_FACT = "port_errors"
_COUNTERS = "/sys/class/infiniband/*/ports/*/counters, hw_counters"


def _signs(facts: Facts) -> Findings:
    for nic in rdma_nics(facts.topology):
        counted = nic.facts.get(_FACT, NONE)
        if counted != NONE and nic.facts.get("state") != "down":
            yield CHECK.finding(
                (nic.id,), f"{nic.id} counted {str(counted)[:200]}", ("error counters", str(counted)[:200], _COUNTERS)
            )


def _unread(topology: Topology) -> str:
    blind = [nic.id for nic in rdma_nics(topology) if _FACT not in nic.facts and nic.facts.get("state") != "down"]
    return f"nothing counts errors of {runs(blind)}, or nobody could read it" if blind else ""


CHECK = Check(
    name="port_errors",
    summary="a port counted errors",
    certainty="possible",
    costs="each error repeats packets, and waits; old ones cost nothing now",
    remedy="look again under load: what still moves is a fault of cable or optics: mlxlink -d DEVICE -c",
    signs=_signs,
    needs=(needs.settings, needs.rdma_nic),
    asks=(_unread,),
)

"""A port that has counted errors since its driver started: a cable, optics, or a link that flapped.

The counters are InfiniBand's PortCounters, which Ethernet ports of ConnectX also have, and mlx5's counters of lost
and damaged packets. They have no timestamps; benchmark records hold the increments during a run.
"""

from __future__ import annotations

from railwright.checks import needs
from railwright.checks.check import Check, Facts, Findings
from railwright.checks.parts import rdma_nics
from railwright.topology.devices import Topology
from railwright.topology.gpus import format_runs
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


def _explain_unread(topology: Topology) -> str:
    blind = [nic.id for nic in rdma_nics(topology) if _FACT not in nic.facts and nic.facts.get("state") != "down"]
    return f"the error counters of {format_runs(blind)} do not exist or cannot be read" if blind else ""


CHECK = Check(
    name="port_errors",
    summary="a port counted errors",
    right="no port counted errors",
    certainty="possible",
    costs="each error causes retransmissions and delays; past errors cost nothing now",
    remedy="check again under load: counters that still increase point to the cable or optics (mlxlink -d DEVICE -c)",
    signs=_signs,
    needs=(needs.settings, needs.rdma_nic),
    asks=(_explain_unread,),
)

"""The kernel moves pages between NUMA nodes while programs run, and unmaps them first to see who uses them.

RCCL warns of it at its start (src/init.cc), and ROCm's documentation switches it off: pages that a GPU or a NIC also
uses fault again and again.
"""

from __future__ import annotations

from railwright.checks import needs
from railwright.checks.check import Change, Check, Facts, Findings
from railwright.checks.finding import OfPart
from railwright.checks.host_settings import host_id, read, setting
from railwright.results.records import Evidence
from railwright.topology.devices import Topology

_FACT = "numa_balancing"


def _signs(facts: Facts) -> Findings:
    mode = setting(facts.topology, _FACT)
    if isinstance(mode, int) and mode > 0 and not _lacks(facts.topology):
        yield CHECK.finding(
            (OfPart(host_id(facts.topology)),),
            f"the kernel balances pages between NUMA nodes (mode {mode})",
            Evidence(claim="numa_balancing", value=str(mode), seen="/proc/sys/kernel/numa_balancing"),
            certainty="possible",
            costs="times that vary from run to run (RCCL src/init.cc)",
            remedy="sysctl kernel.numa_balancing=0, and numa_balancing=disable on the kernel's command line",
        )


def _lacks(topology: Topology) -> str:
    return "" if len(topology.of_kind("cpu")) > 1 else "one NUMA node alone"


CHECK = Check(
    name="numa_balancing_on",
    summary="the kernel moves pages between NUMA nodes",
    signs=_signs,
    needs=(needs.settings, _lacks),
    asks=(read(_FACT),),
    change=lambda _: Change(files="proc/sys/kernel/numa_balancing", value="0"),
)

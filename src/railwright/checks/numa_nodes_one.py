"""One NUMA node in each socket of an AMD EPYC: a setting that may be worth a try, and no fault.

With NPS2 or NPS4 each half or quarter of a socket interleaves its own memory channels alone. Local access is faster,
and a program that is not placed by node loses (AMD, Socket SP5/SP6 Platform NUMA Topology; HPC Tuning Guides for EPYC).
Vendors of GPU servers differ in what they ask for, so that only a measurement of the same job decides.
"""

from __future__ import annotations

from railwright.checks import needs
from railwright.checks.check import Check, Facts, Findings
from railwright.checks.host_settings import is_virtual, read, setting
from railwright.topology.devices import Topology

_FACT = "numa_nodes_per_socket"
_ZEN = frozenset({0x17, 0x19, 0x1A})
"""Families of AMD processors whose BIOS has the setting."""


def _signs(facts: Facts) -> Findings:
    if setting(facts.topology, _FACT) == 1 and not _other(facts.topology):
        yield CHECK.of_host(
            facts,
            "each socket is one NUMA node (NPS1); NPS2 or NPS4 may give local memory and GPUs' copies more",
            ("NUMA nodes per socket", "1", "/sys/devices/system/node, cpu topology"),
        )


def _other(topology: Topology) -> str:
    """Why it is no processor whose sockets can be split."""
    if is_virtual(topology):
        return "a guest, whose NUMA nodes are its hypervisor's"
    cpus = topology.of_kind("cpu")
    amd = any(cpu.facts.get("vendor") == "AuthenticAMD" and cpu.facts.get("family") in _ZEN for cpu in cpus)
    return "" if amd else "no AMD EPYC"


CHECK = Check(
    name="numa_nodes_one",
    summary="sockets of an EPYC are not split into NUMA nodes",
    certainty="possible",
    costs="not known before it is measured: one operator of EPYC GPU servers reports 15 % more memory bandwidth"
    " with NPS2",
    remedy="measure, change NUMA nodes per socket in the BIOS, measure again: railwright prove and compare; pin"
    " each process to the cores of its node",
    signs=_signs,
    needs=(needs.settings, _other),
    asks=(read(_FACT),),
)

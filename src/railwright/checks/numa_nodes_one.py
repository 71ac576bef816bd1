"""A single NUMA node per socket of an AMD EPYC: not a fault, but another setting may be worth trying.

With NPS2 or NPS4 each half or quarter of a socket interleaves only its own memory channels. Local access is faster,
but a program that is not pinned to a node loses (AMD, Socket SP5/SP6 Platform NUMA Topology; HPC Tuning Guides for
EPYC).
Vendors of GPU servers recommend different settings, so only a measurement of the same job decides.
"""

from __future__ import annotations

from railwright.checks import needs
from railwright.checks.check import Check, Facts, Findings
from railwright.checks.host_settings import is_virtual, require_read, setting
from railwright.topology.devices import Topology

_FACT = "numa_nodes_per_socket"
_ZEN = frozenset({0x17, 0x19, 0x1A})
"""Families of AMD processors whose BIOS has the setting."""


def _signs(facts: Facts) -> Findings:
    if setting(facts.topology, _FACT) == 1 and not _cannot_split(facts.topology):
        yield CHECK.host_finding(
            facts,
            "each socket is one NUMA node (NPS1); NPS2 or NPS4 may make local memory and GPU copies faster",
            ("NUMA nodes per socket", "1", "/sys/devices/system/node, cpu topology"),
        )


def _cannot_split(topology: Topology) -> str:
    """Return the reason why the sockets cannot be split; empty if they can."""
    if is_virtual(topology):
        return "a virtual machine, whose hypervisor defines the NUMA nodes"
    cpus = topology.of_kind("cpu")
    amd = any(cpu.facts.get("vendor") == "AuthenticAMD" and cpu.facts.get("family") in _ZEN for cpu in cpus)
    return "" if amd else "no AMD EPYC"


CHECK = Check(
    name="numa_nodes_one",
    summary="sockets of an EPYC are not split into NUMA nodes",
    right="the sockets are split into NUMA nodes",
    certainty="possible",
    costs="unknown until measured: one operator of EPYC GPU servers reports 15 % more memory bandwidth with NPS2",
    remedy="measure with railwright prove, change NUMA nodes per socket in the BIOS, measure and compare again; pin"
    " each process to the cores of its node",
    signs=_signs,
    needs=(needs.settings, _cannot_split),
    asks=(require_read(_FACT),),
)

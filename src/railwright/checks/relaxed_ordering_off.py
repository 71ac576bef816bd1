"""Writes of a NIC that may not overtake each other: the memory of a NUMA node further away then holds up all of them.

The bit is `Enable Relaxed Ordering` of the PCIe Device Control register. Linux clears it below root ports that
mishandle such writes (drivers/pci/probe.c, pci_configure_relaxed_ordering), firmware or a BIOS elsewhere. NCCL, UCX and
perftest mark their writes by themselves, unless they are told not to.
"""

from __future__ import annotations

from railwright.checks import needs
from railwright.checks.check import Check, Facts, Findings
from railwright.checks.host_settings import is_virtual
from railwright.checks.parts import blind, rdma_nics
from railwright.checks.settings import Cause, Settings, is_one_of
from railwright.topology.gpus import runs

_COSTS = "writes wait for each other, most of all in virtual machines (NCCL, NCCL_IB_PCI_RELAXED_ORDERING)"
_SETTINGS = Settings(
    {
        "NCCL_IB_PCI_RELAXED_ORDERING": Cause(is_one_of("0"), "keeps NCCL's writes in order"),
        "UCX_IB_PCI_RELAXED_ORDERING": Cause(is_one_of("off", "no", "n", "0"), "keeps UCX's writes in order"),
    },
    costs=_COSTS,
    remedy="unset it: both ask the NIC whether it can (NCCL: 2, UCX: auto)",
)


def _signs(facts: Facts) -> Findings:
    off = [nic.id for nic in rdma_nics(facts.topology) if nic.facts.get("relaxed_ordering") is False]
    if off and not facts.topology.is_described:
        yield CHECK.finding(
            off,
            f"{runs(off)} may not mark writes as relaxed in order",
            ("Enable Relaxed Ordering", "off", "PCIe Device Control register"),
            # A hypervisor shows a register of its own.
            certainty="possible" if is_virtual(facts.topology) else "likely",
        )


_UNREAD = "the PCIe Device Control register of {} cannot be read (root may read it)"

CHECK = Check(
    name="relaxed_ordering_off",
    summary="a NIC's writes may not overtake each other",
    costs=_COSTS,
    remedy="switch it on in the BIOS and with mlxconfig -d DEVICE set PCI_WR_ORDERING=1, restart; then lspci"
    " -vv -s ADDRESS | grep RlxdOrd shows RlxdOrd+",
    settings=_SETTINGS,
    signs=_signs,
    needs=(needs.settings, needs.rdma_nic),
    asks=(blind(rdma_nics, "relaxed_ordering", _UNREAD),),
)

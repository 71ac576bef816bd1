"""Writes of a NIC that must stay in order, so that writes to a distant NUMA node hold up all others.

The bit is `Enable Relaxed Ordering` of the PCIe Device Control register. Linux clears it below root ports that
mishandle such writes (drivers/pci/probe.c, pci_configure_relaxed_ordering); firmware or a BIOS may clear it elsewhere.
NCCL, UCX and perftest mark their writes themselves unless configured otherwise.
"""

from __future__ import annotations

from railwright.checks import needs
from railwright.checks.check import Check, Command, Facts, Findings
from railwright.checks.commands import set_pcie_control
from railwright.checks.host_settings import is_virtual
from railwright.checks.parts import blind, rdma_nics
from railwright.checks.settings import Cause, Settings, is_one_of
from railwright.topology.devices import Device, Topology
from railwright.topology.gpus import format_runs

_COSTS = "writes wait for each other, especially in virtual machines (NCCL, NCCL_IB_PCI_RELAXED_ORDERING)"
_ENABLE_BIT = 0x10
_SETTINGS = Settings(
    {
        "NCCL_IB_PCI_RELAXED_ORDERING": Cause(is_one_of("0"), "keeps NCCL's writes in order"),
        "UCX_IB_PCI_RELAXED_ORDERING": Cause(is_one_of("off", "no", "n", "0"), "keeps UCX's writes in order"),
    },
    costs=_COSTS,
    remedy="unset it: by default both query the NIC's capability (NCCL: 2, UCX: auto)",
)


def _signs(facts: Facts) -> Findings:
    off = [nic.id for nic in _find_off(facts.topology)]
    if off and not facts.topology.is_described:
        yield CHECK.finding(
            off,
            f"{format_runs(off)} may not mark writes as relaxed-ordered",
            ("Enable Relaxed Ordering", "off", "PCIe Device Control register"),
            # A hypervisor presents a virtual register.
            certainty="possible" if is_virtual(facts.topology) else "likely",
        )


_UNREAD = "the PCIe Device Control register of {} cannot be read (root may read it)"


def _find_off(topology: Topology) -> list[Device]:
    return [nic for nic in rdma_nics(topology) if nic.facts.get("relaxed_ordering") is False]


def _build_commands(topology: Topology) -> tuple[Command, ...]:
    """Return the writes to the register; a hypervisor presents a virtual one."""
    if is_virtual(topology):
        return ()
    return tuple(set_pcie_control(nic, _ENABLE_BIT, _ENABLE_BIT, 0) for nic in _find_off(topology) if nic.address)


CHECK = Check(
    name="relaxed_ordering_off",
    summary="a NIC's writes must stay in order",
    right="NICs may use relaxed ordering",
    costs=_COSTS,
    remedy="enable it in the BIOS and with mlxconfig -d DEVICE set PCI_WR_ORDERING=1, and reboot; then lspci"
    " -vv -s ADDRESS | grep RlxdOrd shows RlxdOrd+",
    settings=_SETTINGS,
    signs=_signs,
    needs=(needs.settings, needs.rdma_nic),
    asks=(blind(rdma_nics, "relaxed_ordering", _UNREAD),),
    change=_build_commands,
)

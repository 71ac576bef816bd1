"""In a guest, NICs without address translation services send every GPU transfer through the root complex.

A hypervisor needs ACS to isolate guests, so ACS stays on. With ATS the NIC requests the translated address
and may then write to the GPU directly (NCCL User Guide, Troubleshooting, PCI Access Control Services).
"""

from __future__ import annotations

from railwright.checks import needs
from railwright.checks.check import Check, Facts, Findings
from railwright.checks.host_settings import IN_A_GUEST, is_virtual
from railwright.checks.parts import rdma_nics
from railwright.topology.devices import Device, Topology
from railwright.topology.gpus import format_runs


def _signs(facts: Facts) -> Findings:
    off = [nic.id for nic in rdma_nics(facts.topology) if nic.facts.get("ats_enabled") is False and _has_ats(nic)]
    if off and is_virtual(facts.topology):
        yield CHECK.finding(
            off,
            f"ATS is off in {format_runs(off)}: in a guest their GPU transfers cross the root complex",
            ("ATS", "off", "ATS control register"),
        )


def _has_ats(nic: Device) -> bool:
    return nic.facts.get("ats_capable") is True


def _explain_unread(topology: Topology) -> str:
    blind = [nic.id for nic in rdma_nics(topology) if not _has_ats(nic)]
    return f"the guest cannot see whether {format_runs(blind)} have ATS" if blind else ""


CHECK = Check(
    name="ats_off",
    summary="in a guest, NICs cannot reach GPUs without the root complex",
    right="NICs of this guest reach GPUs without the root complex (ATS is on)",
    certainty="likely",
    costs="most of GPU-NIC bandwidth under one switch (NCCL User Guide, Troubleshooting)",
    remedy=IN_A_GUEST,
    signs=_signs,
    needs=(needs.settings, needs.gpu, needs.rdma_nic, needs.some(is_virtual, "not a virtual machine")),
    asks=(_explain_unread,),
)

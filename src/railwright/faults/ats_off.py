"""In a guest, NICs without address translation services send every transfer with a GPU through the root complex.

A hypervisor needs ACS to keep guests apart, so that it stays on there. With ATS the NIC asks for the translated address
and may then write to the GPU directly (NCCL User Guide, Troubleshooting, PCI Access Control Services).
"""

from __future__ import annotations

from railwright.faults import needs
from railwright.faults.fault import Facts, Fault, Findings, OfPart
from railwright.faults.host_settings import is_virtual
from railwright.faults.parts import rdma_nics
from railwright.results.records import Evidence
from railwright.topology.devices import Device, Topology
from railwright.topology.gpus import runs

IN_A_GUEST = (
    "have ATS switched on in the NICs, by the host: mlxconfig -d DEVICE set ATS_ENABLED=true; give NCCL a topology file"
    " of the real machine (NCCL_TOPO_FILE), because the guest's own shows no switches"
)
"""What helps in a guest. ACS is the host's, keeps guests apart, and stays on."""


def _signs(facts: Facts) -> Findings:
    off = [nic.id for nic in rdma_nics(facts.topology) if nic.facts.get("ats_enabled") is False and _has_ats(nic)]
    if off and is_virtual(facts.topology):
        yield FAULT.finding(
            map(OfPart, off),
            f"ATS is off in {runs(off)}: in a guest their transfers with GPUs cross the root complex",
            Evidence(claim="ATS", value="off", seen="ATS control register"),
            certainty="likely",
            costs="most of GPU-NIC bandwidth under one switch (NCCL User Guide, Troubleshooting)",
            remedy=IN_A_GUEST,
        )


def _has_ats(nic: Device) -> bool:
    return nic.facts.get("ats_capable") is True


def _guest(topology: Topology) -> str:
    return "" if is_virtual(topology) else "no guest of a hypervisor"


def _unread(topology: Topology) -> str:
    blind = [nic.id for nic in rdma_nics(topology) if not _has_ats(nic)]
    return f"the guest is not shown whether {runs(blind)} have ATS" if blind else ""


FAULT = Fault(
    name="ats_off",
    summary="in a guest, NICs cannot reach GPUs without the root complex",
    signs=_signs,
    needs=(needs.settings, needs.gpu, needs.rdma_nic, _guest),
    asks=(_unread,),
)
"""What it costs depends on the real machine's switches, which a guest does not see."""

"""ACS redirects peer-to-peer requests to the root complex, although GPU and NIC share a PCIe switch.

nccl-tests issue 112 shows 9.84 GB/s where the direct path carries several times that. A VM cannot switch ACS off
itself; there the path depends on ATS.
"""

from __future__ import annotations

from msgspec.structs import replace

from railwright.checks import needs
from railwright.checks.check import Facts, Findings
from railwright.checks.finding import PartPlace
from railwright.checks.host_settings import IN_A_GUEST, is_virtual
from railwright.checks.parts import links_below_switches
from railwright.faults.cases import crosses_network, gpus_use_pcie, replace_host
from railwright.faults.fault import Fault, Hypotheses
from railwright.limits.case import Case
from railwright.topology.changes import change_pcie
from railwright.topology.devices import Link, PcieLink, Topology

_REMEDY = "switch ACS off in the BIOS, or clear the ACS control bits of the switch ports with setpci"


def _signs(facts: Facts) -> Findings:
    shared = links_below_switches(facts.topology)
    redirected, unreadable = (
        [PartPlace(link.id) for link in shared if _state(link) is state] for state in (True, None)
    )
    if redirected:
        yield FAULT.finding(
            redirected,
            f"ACS redirects peer-to-peer requests of {len(redirected)} ports below PCIe switches to the root complex",
            ("acs", "request redirect on", "ACS control register"),
            remedy=IN_A_GUEST if is_virtual(facts.topology) else _REMEDY,
        )
    if unreadable:
        yield FAULT.blind(
            unreadable,
            f"the ACS state of {len(unreadable)} ports below PCIe switches cannot be read",
            remedy="run as root: extended config space is hidden from other users",
        )


def _state(link: Link) -> bool | None:
    return link.protocol.acs_redirect if isinstance(link.protocol, PcieLink) else None


def _degrade(topology: Topology, where: str) -> Topology:
    """Return the machine with ACS redirect on the link `where`."""
    return change_pcie(topology, [where], lambda link: replace(link, acs_redirect=True))


def _build_with_and_without(topology: Topology) -> tuple[Topology, Topology]:
    ids = [link.id for link in links_below_switches(topology)]
    return topology, change_pcie(topology, ids, lambda link: replace(link, acs_redirect=False))


def redirect_peers(case: Case) -> Case | None:
    """Return the case with all peer-to-peer requests redirected to the root complex; None if nothing changes.

    The redirect matters only if peers communicate through a shared switch: GPU and NIC, or GPUs without NVLink.
    """
    host = case.cluster.host
    links = links_below_switches(host)
    uses_pcie = crosses_network(case) or (gpus_use_pcie(case) and not host.joins_gpus)
    if not uses_pcie or all(_state(link) for link in links):
        return None
    for link in links:
        host = _degrade(host, link.id)
    return replace_host(case, host)


def _hypotheses(case: Case) -> Hypotheses:
    if detour := redirect_peers(case):
        yield FAULT.supposed(
            "ACS redirects peer-to-peer requests below PCIe switches to the root complex",
            detour,
            "as root: lspci -vvv | grep ACSCtl: a switch port with ReqRedir+ redirects; or railwright audit",
        )


FAULT = Fault(
    name="acs_redirect",
    summary="ACS redirects peer-to-peer traffic through the root complex",
    right="peer-to-peer traffic stays below its PCIe switch (ACS does not redirect it)",
    costs="most of GPU-NIC and GPU-GPU bandwidth under one switch (nccl-tests issue 112: 9.84 GB/s)",
    signs=_signs,
    needs=(needs.settings, needs.pcie_switch),
    mend=_build_with_and_without,
    degrade=_degrade,
    only_gpu_memory=True,
    ways=_hypotheses,
)

"""Every fault finds itself in a healthy machine that it was laid into, and not before."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from railwright.faults.model import Facts, Fault
from railwright.faults.registry import FAULTS
from railwright.topology.expand import expand
from railwright.topology.model import Link, PcieLink, Topology

LAID = [fault for fault in FAULTS if fault.degrade is not None]


def with_pcie(topology: Topology, device: str = "", **facts: object) -> Topology:
    """The machine with facts changed in every PCIe link, or in those of one device."""
    links = tuple(
        replace(link, protocol=replace(link.protocol, **facts))
        if isinstance(link.protocol, PcieLink) and (not device or device in (link.a, link.b))
        else link
        for link in topology.links
    )
    return replace(topology, links=links)


def healthy() -> Topology:
    """An HGX H100 whose ports below switches have ACS switched off, as such machines are set up."""
    return with_pcie(expand("hgx-h100", {}), acs_redirect=False)


def pcie_links(topology: Topology) -> list[Link]:
    return [link for link in topology.links if isinstance(link.protocol, PcieLink)]


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_a_healthy_machine_shows_no_fault(fault: Fault) -> None:
    assert fault.look(Facts(topology=healthy())) == ()


@pytest.mark.parametrize("fault", LAID, ids=lambda fault: fault.name)
def test_a_fault_laid_into_a_machine_is_found_where_it_was_laid(fault: Fault) -> None:
    topology = healthy()
    link = next(link for link in pcie_links(topology) if {"gpu3"} & {link.a, link.b})
    assert fault.degrade is not None
    findings = fault.look(Facts(topology=fault.degrade(topology, link.id)))
    assert [finding.where for finding in findings] == [(link.id,)]
    assert findings[0].certainty == "seen"
    assert findings[0].remedy
    assert findings[0].evidence


def test_an_idle_gpu_at_a_lower_rate_is_only_possibly_at_fault() -> None:
    (finding,) = FAULTS[0].look(Facts(topology=with_pcie(healthy(), "gpu0", gt_per_s=2.5)))
    assert finding.certainty == "possible"


def test_acs_that_cannot_be_read_is_said_and_not_passed() -> None:
    (acs,) = [fault for fault in FAULTS if fault.name == "acs_redirect"]
    (finding,) = acs.look(Facts(topology=with_pcie(healthy(), acs_redirect=None)))
    assert finding.certainty == "could not look"

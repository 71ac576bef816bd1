"""Each fault is found in a healthy machine after it is added, and not before."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from railwright.checks.check import Check, Facts
from railwright.checks.finding import Finding
from railwright.checks.registry import CHECKS
from railwright.faults.every_check import EVERY_CHECK
from railwright.faults.fault import Fault
from railwright.faults.registry import FAULTS
from railwright.results.records import Evidence, Result
from railwright.topology.devices import Device, EthernetLink, InfinibandLink, Link, PcieLink, Topology, Unknown
from railwright.topology.expand import expand
from railwright.topology.shapes import SHAPES

LAID = {
    "pcie_below_maximum": ("switch3--gpu3", ("switch3--gpu3",)),
    "nvlink_below_maximum": ("gpu3", ("nvswitch0--gpu3",)),
    "acs_redirect": ("switch3--gpu3", ("switch3--gpu3",)),
    "gpudirect_off": ("host0", ("host0",)),
    "nic_across_sockets": ("host0", tuple(f"gpu{number}" for number in range(8))),
    "mtu_small": ("nic3", ("nic3", "nic3--fabric0")),
}
"""A case: the place of a fault, and the place where it must be seen."""
LEAVES_NO_TRACE = ("nic_unused", "tcp_fallback", "p2p_disabled")
"""Laid in by taking something away: what is not there does not say that it should be."""


def fault_named(name: str) -> Fault:
    (found,) = [fault for fault in FAULTS if fault.name == name]
    return found


def look(name: str, topology: Topology, **facts: object) -> tuple[Finding, ...]:
    return fault_named(name).look(Facts(topology=topology, **facts))


def with_pcie(topology: Topology, device: str = "", **facts: object) -> Topology:
    """Change every PCIe link, or those of one device."""
    links = tuple(
        replace(link, protocol=replace(link.protocol, **facts))
        if isinstance(link.protocol, PcieLink) and (not device or device in (link.a, link.b))
        else link
        for link in topology.links
    )
    return replace(topology, links=links)


def with_port(topology: Topology, **facts: object) -> Topology:
    """Change every NIC port."""
    links = tuple(
        replace(link, protocol=replace(link.protocol, **facts))
        if isinstance(link.protocol, InfinibandLink | EthernetLink)
        else link
        for link in topology.links
    )
    return replace(topology, links=links)


def with_facts(topology: Topology, *names: str, **facts: object) -> Topology:
    """Add facts to some devices."""

    def changed(device: Device) -> Device:
        return replace(device, facts={**device.facts, **facts}) if device.id in names else device

    return replace(topology, devices=tuple(changed(device) for device in topology.devices))


def healthy() -> Topology:
    """An HGX H100 with ACS switched off below its PCIe switches, as is usual for such machines."""
    return with_pcie(expand("hgx-h100", {}), acs_redirect=False)


def captured(**host: object) -> Topology:
    """The same machine as a capture describes it."""
    return replace(with_facts(healthy(), "host0", **host), source="capture")


@pytest.mark.parametrize("check", EVERY_CHECK, ids=lambda check: check.name)
def test_a_healthy_machine_shows_no_fault(check: Check) -> None:
    assert check.look(Facts(topology=healthy())) == ()


@pytest.mark.parametrize("shape", SHAPES)
def test_no_published_machine_is_at_fault(shape: str) -> None:
    facts = Facts(topology=expand(shape, {}))
    for check in EVERY_CHECK:
        certainties = {finding.certainty for finding in check.look(facts)}
        assert certainties <= {"possible", "could not look"}, check.name


def test_every_fault_that_can_be_laid_into_a_machine_is_laid_here() -> None:
    assert {fault.name for fault in FAULTS if fault.degrade is not None} == {*LAID, *LEAVES_NO_TRACE}


def test_every_check_and_every_fault_is_listed_once_with_a_summary() -> None:
    names = [check.name for check in EVERY_CHECK]
    assert sorted(names) == sorted({check.name for check in CHECKS} | {fault.name for fault in FAULTS})
    assert all(check.summary for check in EVERY_CHECK)


@pytest.mark.parametrize("name", LAID)
def test_a_fault_laid_into_a_machine_is_found_where_it_was_laid(name: str) -> None:
    where, seen = LAID[name]
    degrade = fault_named(name).degrade
    assert degrade is not None
    findings = look(name, degrade(healthy(), where))
    assert [finding.where for finding in findings] == [seen]
    assert findings[0].certainty in ("seen", "likely")
    assert findings[0].costs
    assert findings[0].remedy
    assert findings[0].evidence


@pytest.mark.parametrize("name", [*LAID, *LEAVES_NO_TRACE])
def test_a_fault_laid_in_changes_the_machine_and_a_place_that_is_not_there_nothing_else(name: str) -> None:
    degrade = fault_named(name).degrade
    assert degrade is not None
    where = LAID.get(name, ("nic3", ()))[0]
    assert degrade(healthy(), where) != healthy()
    if name not in ("gpudirect_off", "p2p_disabled"):  # faults of the whole machine
        assert degrade(healthy(), "no such place") == healthy()


def test_an_idle_gpu_at_a_lower_rate_is_only_possibly_at_fault() -> None:
    (finding,) = look("pcie_below_maximum", with_pcie(healthy(), "gpu0", gt_per_s=2.5))
    assert finding.certainty == "possible"


def test_pcie_links_that_cannot_be_read_are_said_once() -> None:
    (finding,) = look("pcie_below_maximum", with_pcie(healthy(), "gpu0", gt_per_s=None))
    assert (finding.certainty, finding.where) == ("could not look", ("switch0--gpu0",))


def test_acs_that_cannot_be_read_is_said_and_not_passed() -> None:
    (finding,) = look("acs_redirect", with_pcie(healthy(), acs_redirect=None))
    assert finding.certainty == "could not look"


def test_acs_on_the_port_of_a_card_with_two_nics_is_seen() -> None:
    cards = with_pcie(expand("oci-bm-gpu-h100-8", {}), "card0", acs_redirect=True)
    (finding,) = look("acs_redirect", cards)
    assert (finding.certainty, finding.where) == ("seen", ("switch0--card0",))


def test_loaded_peermem_is_enough_for_gpudirect() -> None:
    for module in ("nvidia_peermem", "nv_peer_mem"):
        assert look("gpudirect_off", captured(modules=f"nvidia {module} mlx5_core", kernel="6.8.0")) == ()


def test_gpudirect_without_peermem_is_likely_off_on_a_kernel_without_dma_buf() -> None:
    (old,) = look("gpudirect_off", captured(modules="nvidia mlx5_core", kernel="5.4.0-150-generic"))
    assert old.certainty == "likely"
    (new,) = look("gpudirect_off", captured(modules="nvidia mlx5_core", kernel="6.8.0"))
    assert new.certainty == "could not look"


@pytest.mark.parametrize("kernel", ["", "five", "5", "99999999.1", "5.99999999999"])
def test_a_kernel_version_that_cannot_be_read_says_nothing(kernel: str) -> None:
    (finding,) = look("gpudirect_off", captured(modules="nvidia", kernel=kernel))
    assert finding.certainty == "could not look"


def test_machines_without_gpu_or_rdma_are_not_asked_for_gpudirect() -> None:
    no_rdma = replace(expand("gcp-a3-mega", {}), source="capture")
    no_gpu = replace(expand("laptop", {}), source="live")
    assert look("gpudirect_off", no_rdma) == ()
    assert look("gpudirect_off", no_gpu) == ()


def test_a_single_port_that_is_down_beside_others_that_are_up_is_likely_a_fault() -> None:
    up = with_facts(healthy(), *(f"nic{number}" for number in range(8)), state="up", rdma_device="mlx5_0")
    (finding,) = look("nic_unused", with_facts(up, "nic5", state="down"))
    assert (finding.certainty, finding.where) == ("likely", ("nic5",))
    assert look("nic_unused", up) == ()


def test_the_second_port_of_a_card_may_be_meant_to_be_down() -> None:
    cards = expand("oci-bm-gpu-h100-8", {})
    up = with_facts(cards, *(nic.id for nic in cards.of_kind("nic")), state="up", rdma_device="mlx5_0")
    (finding,) = look("nic_unused", with_facts(up, "nic1", state="down"))
    assert finding.certainty == "possible"


def test_one_nic_for_two_sockets_cannot_be_near_all_gpus() -> None:
    (finding,) = look("nic_across_sockets", expand("hgx-h100", {"nics": "1"}))
    assert finding.certainty == "possible"
    assert finding.where == ("gpu4", "gpu5", "gpu6", "gpu7")


@pytest.mark.parametrize(
    ("mtu", "packet"), [(1500, "1024"), (4096, "2048"), (4191, "2048"), (4192, ""), (9000, ""), (100, "0")]
)
def test_an_ethernet_mtu_leaves_the_packets_that_linux_would_choose(mtu: int, packet: str) -> None:
    roce = with_port(expand("hgx-h100", {"nic-protocol": "ethernet"}), mtu_bytes=mtu)
    findings = look("mtu_small", roce)
    assert len(findings) == (1 if packet else 0)
    assert all(f"packets of {packet} bytes" in finding.says for finding in findings)


def test_a_small_mtu_of_a_slower_port_is_only_possibly_a_fault() -> None:
    roce = expand("hgx-h100", {"nic-protocol": "ethernet"})
    slow = EthernetLink(line_rate_bits_per_s=25e9, mtu_bytes=1500, rdma=True)
    links = tuple(replace(link, protocol=slow) if link.a == "nic0" else link for link in roce.links)
    (finding,) = look("mtu_small", replace(roce, links=links))
    assert finding.certainty == "possible"


def test_an_mtu_that_cannot_be_read_is_said_once_and_not_for_a_port_that_is_down() -> None:
    unknown = with_port(healthy(), mtu_bytes=None)
    (finding,) = look("mtu_small", unknown)
    assert finding.certainty == "could not look"
    assert len(finding.where) == 16
    down = with_facts(unknown, *(nic.id for nic in unknown.of_kind("nic")), state="down")
    assert look("mtu_small", down) == ()


def test_nvlinks_that_cannot_be_read_are_said() -> None:
    blind = replace(healthy(), links=tuple(link for link in healthy().links if "nvswitch0" not in (link.a, link.b)))
    unknown = replace(blind, unknown=(Unknown(what="NVLink of gpu0, gpu1", why="not in sysfs"),))
    (finding,) = look("nvlink_below_maximum", unknown)
    assert finding.certainty == "could not look"
    assert look("nvlink_below_maximum", blind) == ()


def test_cards_that_hang_from_each_other_keep_no_fault_busy_for_ever() -> None:
    loop = Topology(
        name="loop",
        source="saved",
        devices=(
            Device(id="card0", kind="card"),
            Device(id="card1", kind="card"),
            Device(id="nic0", kind="nic"),
            Device(id="gpu0", kind="gpu"),
            Device(id="fabric0", kind="fabric"),
        ),
        links=(
            Link(a="card0", b="card1", protocol=PcieLink()),
            Link(a="card1", b="card0", protocol=PcieLink()),
            Link(a="card0", b="nic0", protocol=PcieLink()),
            Link(a="nic0", b="fabric0", protocol=InfinibandLink(line_rate_bits_per_s=1e9, mtu_bytes=4096)),
        ),
    )
    for check in EVERY_CHECK:
        check.look(Facts(topology=loop))
    for fault in FAULTS:
        if fault.degrade is not None:
            fault.degrade(loop, "nic0")


@pytest.mark.parametrize(("protocol", "hosts", "found"), [("tcp/lo", 1, 1), ("cma/memory", 1, 0), ("tcp/eth0", 2, 0)])
def test_tcp_is_a_fault_inside_one_host_only(protocol: str, hosts: int, found: int) -> None:
    evidence = Evidence(claim="ucx_protocol", value=protocol, seen="UCX_PROTO_INFO")
    result = Result(
        benchmark="kv_transfer",
        quantity="bandwidth_bytes_per_s",
        path="memory0>memory0",
        hosts=hosts,
        evidence=(evidence,),
    )
    assert len(look("tcp_fallback", healthy(), results=(result,))) == found


def test_one_finding_is_for_all_parts_of_which_the_same_is_said() -> None:
    machine = expand("hgx-h100", {"nic-protocol": "ethernet", "mtu": "1500"})
    (finding,) = look("mtu_small", machine)
    assert finding.says.startswith("MTU 1500 of nic0-7 limits")
    assert {f"nic{number}" for number in range(8)} <= set(finding.where)
    links = tuple(
        replace(link, protocol=replace(link.protocol, mtu_bytes=4096)) if link.a == "nic3" else link
        for link in machine.links
    )
    apart = look("mtu_small", replace(machine, links=links))
    assert sorted(len(one.where) for one in apart) == [2, 14]

"""The checks for hardware that test machines may not have: VFs, RDMA and offload. Each turns a view into a line."""

from __future__ import annotations

from dataclasses import replace
from ipaddress import ip_address, ip_network

import msgspec
import pytest
from tests.conftest import ROOT

from railwright.net.check import exit_status, explain_failures
from railwright.net.checks import bgp, drops, flows, offload, rdma, route
from railwright.net.checks.registry import CHECKS
from railwright.net.view import (
    Addresses,
    Attached,
    CachedFlow,
    Counters,
    Key,
    Line,
    Networks,
    PodName,
    Port,
    PortAddress,
    Rail,
    Route,
    Unseen,
    View,
)

VF = Port(
    name="net1",
    up=True,
    carrier=True,
    mac="02:00:00:00:00:05",
    mtu_bytes=9000,
    kind="",
    pci="0000:01:00.2",
    is_vf=True,
    driver="mlx5_core",
    rdma={"mlx5_2": "ACTIVE"},
    addresses=(PortAddress(ip_address("10.1.0.5"), 24, True),),
    routes=(Route(ip_network("10.1.0.0/17"), ip_address("10.1.0.1"), "main"),
            Route(ip_network("10.1.128.0/17"), ip_address("10.1.0.1"), "main")),
)  # fmt: skip
ATTACHED = Attached(
    key=Key("net1"),
    pod=PodName("a", "b"),
    parts=("PART_FLOWS", "PART_ROUTES"),
    rail="rail0",
    tenant="ns:a",
    host_interface="pf0vf2",
    mac=VF.mac,
    addresses=Addresses((ip_address("10.1.0.5"),)),
    gateways=Addresses((ip_address("10.1.0.1"),)),
    gateway_mac="02:00:00:00:00:01",
    open_tenants=(),
    netns="/run/netns/x y",
    device_id=VF.pci,
    flows_wanted=12,
    flows_installed=12,
    advertised=True,
    dropped=Counters(spoofed=0),
)
RAIL = Rail(
    rail="rail0",
    switch_ready=True,
    session_established=True,
    problems=(),
    prefixes=Networks((ip_network("10.1.0.0/16"), ip_network("fd00:1::/32"))),
)
NOTHING = Unseen("was not asked in this test")
VIEW = View(
    interface="net1",
    port=VF,
    attached=ATTACHED,
    attached_after=ATTACHED,
    rail=RAIL,
    rail_after=RAIL,
    ways=(),
    gateways=NOTHING,
    echoes=NOTHING,
    isolations=NOTHING,
    cached=NOTHING,
    host_end=NOTHING,
    announced=NOTHING,
    leaf=NOTHING,
    rdma_shared=True,
    verbs_files=("uverbs2",),
    recorded=NOTHING,
    netns="/run/netns/x y",
)
HARDWARE = CachedFlow(
    in_port="pf0vf2", offloaded=True, layer="tc", match="eth_type(0x0800),ipv4(src=10.1.0.5)", actions="3", packets=9
)
ARP = CachedFlow(
    in_port="pf0vf2", offloaded=False, layer="ovs", match="eth_type(0x0806)", actions="slow", packets=1, why="slow path"
)


def changed(port: Port | None = None, **fields: object) -> View:
    return replace(VIEW, port=port or VF, **fields)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("view", "state", "says"),
    [
        (VIEW, "ok", "mlx5_2 ACTIVE"),
        (changed(msgspec.structs.replace(VF, rdma={})), "bad", "has no RDMA device in this namespace"),
        (changed(msgspec.structs.replace(VF, rdma={"mlx5_2": "DOWN"})), "bad", "mlx5_2 of net1 is DOWN"),
        (changed(verbs_files=()), "bad", "no /dev/infiniband/uverbs*"),
        (changed(verbs_files=Unseen("seen only inside it")), "not looked", "seen only inside it"),
        # A VF was attached, but the present interface has no PCI function.
        (changed(msgspec.structs.replace(VF, pci="", rdma={}, kind="veth")), "bad", "has no RDMA device"),
    ],
)
def test_a_vf_needs_an_rdma_device_that_is_up_and_can_be_opened(view: View, state: str, says: str) -> None:
    line = rdma.CHECK.look(view)
    assert (line.state, says in line.says) == (state, True), line


def test_devices_of_one_namespace_each_have_a_remedy_of_their_own() -> None:
    gone = msgspec.structs.replace(VF, rdma={})
    assert "plugin `rdma`" in rdma.CHECK.look(changed(gone, rdma_shared=False)).remedy


def test_data_of_a_vf_must_run_in_hardware_and_arp_need_not() -> None:
    software = msgspec.structs.replace(HARDWARE, offloaded=False, layer="ovs", why="hw-offload is off")
    dropped = msgspec.structs.replace(software, actions="drop")
    assert offload.CHECK.look(changed(cached=(HARDWARE, ARP, dropped))).state == "ok"
    line = offload.CHECK.look(changed(cached=(HARDWARE, software)))
    assert (line.state, line.says) == ("bad", "1 of 2 cached flows run in hardware: hw-offload is off")
    # ARP alone proves nothing, nor do the flows of another port.
    for cached in ((ARP,), (msgspec.structs.replace(HARDWARE, in_port="pf0vf3"),), ()):
        assert offload.CHECK.look(changed(cached=cached)).state == "not looked"


def test_two_halves_of_the_rails_prefix_are_the_whole_and_one_is_not() -> None:
    assert route.CHECK.look(VIEW).state == "ok"
    line = route.CHECK.look(changed(msgspec.structs.replace(VF, routes=VF.routes[:1])))
    assert (line.state, "10.1.0.0/16" in line.says) == ("bad", True)
    # Foreign names are quoted in a command that a person may paste.
    assert line.remedy.startswith(
        "nsenter --net='/run/netns/x y' ip -4 route replace 10.1.0.0/16 via 10.1.0.1 dev net1"
    )


def test_of_what_was_not_seen_nothing_is_ok() -> None:
    asked = ("attached", "attached_after", "rail", "rail_after", "gateways", "echoes", "isolations", "cached",
             "host_end", "leaf", "announced", "verbs_files", "recorded")  # fmt: skip
    blind = replace(VIEW, **dict.fromkeys(asked, NOTHING), port=None, rdma_shared=None, netns=None)  # type: ignore[arg-type]
    states = {check.name: check.look(blind).state for check in CHECKS}
    assert states == {check.name: "bad" if check.name == "interface" else "not looked" for check in CHECKS}
    unknown = replace(blind, port=VF, attached=None, attached_after=None)
    assert {check.name for check in CHECKS if check.look(unknown).state == "bad"} == {"flows", "bgp"}


def test_flows_that_could_not_be_counted_are_not_none() -> None:
    uncounted = msgspec.structs.replace(ATTACHED, counted=False, flows_installed=0, dropped={})
    assert flows.CHECK.look(changed(attached=uncounted, attached_after=uncounted)).state == "not looked"
    assert flows.CHECK.look(changed(attached_after=uncounted)).state == "ok"
    lost = msgspec.structs.replace(ATTACHED, flows_installed=7)
    assert flows.CHECK.look(changed(attached_after=lost)).says == "7 of 12 flows are on the bridge"


def test_a_session_is_judged_as_it_is_after_the_packets() -> None:
    down = msgspec.structs.replace(
        RAIL, session_established=False, problems=("BGP with 192.0.2.2 is Idle (last end: Hold Timer Expired)",)
    )
    back = bgp.CHECK.look(changed(rail=down))
    assert (back.state, back.evidence[0].value) == ("ok", "down, and established after the packets")
    lost = bgp.CHECK.look(changed(rail_after=down))
    assert (lost.state, lost.evidence[0].value) == ("bad", "established, and down after the packets")
    assert lost.evidence[-1].value == down.problems[0]
    # If the daemon does not answer the second time, its first answer counts.
    assert bgp.CHECK.look(changed(rail=down, rail_after=NOTHING)).state == "bad"
    assert bgp.CHECK.look(changed(rail_after=NOTHING)).state == "ok"


def test_refused_congestion_notifications_are_bad() -> None:
    before, after = (msgspec.structs.replace(ATTACHED, dropped=Counters(refused_dscp=count)) for count in (7, 11))
    rail = msgspec.structs.replace(RAIL, dropped=Counters(no_leaf=0))
    line = drops.CHECK.look(changed(attached=before, attached_after=after, rail=rail, rail_after=rail))
    assert (line.state, line.says[:40]) == ("bad", "4 of its packets were dropped as refused")
    assert "dscp.cnp" in line.remedy
    assert drops.CHECK.look(changed(attached=after, attached_after=after, rail=rail, rail_after=rail)).state == "ok"


def test_who_may_talk_is_no_stranger() -> None:
    other, opened = (msgspec.structs.replace(ATTACHED, tenant=tenant) for tenant in ("ns:b", "ns:c"))
    mine = msgspec.structs.replace(ATTACHED, open_tenants=("ns:c",))
    assert [mine.may_talk_to(one) for one in (mine, other, opened)] == [True, False, True]


def test_a_fault_that_another_explains_is_told_once() -> None:
    lines = [
        Line(check=name, interface="net1", state="bad", says=name) for name in ("bgp", "leaf", "reach", "isolation")
    ]
    told = explain_failures(lines)
    assert [line.state for line in told] == ["bad", "not looked", "not looked", "bad"]
    assert told[1].says == "leaf; the failed check bgp would explain it"
    assert told[1].remedy == "fix bgp first"


def test_the_exit_status_is_that_of_the_worst_line() -> None:
    ok, bad, unseen = (
        Line(check="mtu", interface="net1", state=state, says="") for state in ("ok", "bad", "not looked")
    )
    assert [exit_status(lines) for lines in ([ok], [ok, unseen], [ok, unseen, bad], [])] == [0, 3, 1, 3]


def test_every_check_is_told_in_the_docs() -> None:
    page = (ROOT / "docs/net-check.md").read_text()
    assert [check.name for check in CHECKS if f"| `{check.name}` |" not in page] == []

"""Networks without railwrightd: the other end of an interface by the kernel, and the checks by the runtime's record."""

from __future__ import annotations

from dataclasses import replace
from ipaddress import ip_address, ip_network
from pathlib import Path

import msgspec
import pytest
from tests.net.test_checks import NOTHING, VF, VIEW
from tests.net.test_runtime_records import OVS, record

from railwright.errors import CannotJudge
from railwright.net.check import explain_failures
from railwright.net.checks import port, rdma, route
from railwright.net.checks.registry import CHECKS
from railwright.net.host import read_host_end
from railwright.net.recorded import HostEnd, is_foreign
from railwright.net.runtime import parse_record
from railwright.net.view import Port, Route, Unseen, View

PCI = "0000:01:00.2"
UP = HostEnd(name="pf0vf1", up=True, carrier=True, mtu_bytes=9000, master="ovs-system", kind="representor")
AWAY = Unseen("railwrightd is not on PATH here")


def net(sys: Path, name: str, **files: str) -> None:
    folder = sys / "class/net" / name
    folder.mkdir(parents=True)
    for file, text in ({"flags": "0x1003", "carrier": "1", "mtu": "9000", "ifindex": "7"} | files).items():
        (folder / file).write_text(text + "\n")


@pytest.fixture
def node(tmp_path: Path) -> Path:
    """The /sys of a node: PF p0 with a VF in switchdev mode, and a veth."""
    pf = tmp_path / "bus/pci/devices/0000:01:00.0"
    vf = tmp_path / "bus/pci/devices" / PCI
    vf.mkdir(parents=True)
    (pf / "net").mkdir(parents=True)
    (pf / "virtfn1").symlink_to(vf)
    (vf / "physfn").symlink_to(pf)
    net(tmp_path, "p0", phys_switch_id="abc", phys_port_name="p0")
    net(tmp_path, "pf0vf0", phys_switch_id="abc", phys_port_name="pf0vf0")
    net(tmp_path, "eth7", phys_switch_id="abc", phys_port_name="c1pf0vf1", mtu="4200")
    net(tmp_path, "foreign", phys_switch_id="def", phys_port_name="pf0vf1")
    net(tmp_path, "eth0", ifindex="42", iflink="42")
    net(tmp_path, "veth5", ifindex="42", iflink="3", carrier="0")
    (pf / "net/p0").symlink_to(tmp_path / "class/net/p0")
    (tmp_path / "class/net/br0").mkdir()
    (tmp_path / "class/net/veth5/master").symlink_to(tmp_path / "class/net/br0")
    return tmp_path


def test_the_other_end_is_found_by_the_kernel(node: Path) -> None:
    vf = msgspec.structs.replace(VF, pci=PCI)
    end = read_host_end(vf, "", "/run/netns/x", node)
    assert (end.name, end.kind, end.mtu_bytes, end.up, end.carrier) == ("eth7", "representor", 4200, True, True)
    veth = Port(name="net1", up=True, carrier=True, mac="", mtu_bytes=1500, kind="veth", index=3, peer_index=42)
    end = read_host_end(veth, "", "/run/netns/x", node)
    assert (end.name, end.master, end.carrier) == ("veth5", "br0", False)
    assert read_host_end(vf, "pf0vf0", "/run/netns/x", node).name == "pf0vf0"
    for name in ("eth7", "pf0vf0"):
        (node / "class/net" / name / "phys_port_name").unlink()
    end = read_host_end(vf, "", "/run/netns/x", node)  # legacy SR-IOV
    assert (end.name, end.kind) == ("p0", "PF")
    with pytest.raises(CannotJudge, match="not on this node"):
        read_host_end(msgspec.structs.replace(veth, peer_index=43), "", "/run/netns/x", node)
    with pytest.raises(CannotJudge, match="on the node"):
        read_host_end(vf, "", None, node)


def foreign(**changes: object) -> View:
    recorded = parse_record(record(OVS | {"deviceID": VF.pci, "link_state_check_interval": 10}, {"type": "rdma"}), "/f")
    recorded = msgspec.structs.replace(recorded, routes=(ip_network("10.1.0.0/16"),))
    fields = dict.fromkeys(("attached", "attached_after", "rail", "rail_after"), AWAY)
    view = replace(VIEW, **fields, recorded=recorded, host_end=UP)  # type: ignore[arg-type]
    return replace(view, **changes)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("end", "state", "says"),
    [
        (UP, "ok", "pf0vf1 is up, a port of ovs-system"),
        (msgspec.structs.replace(UP, kind="PF", master=""), "ok", "no representor"),
        (msgspec.structs.replace(UP, up=False, carrier=False), "bad", "is down"),
        (msgspec.structs.replace(UP, carrier=False), "bad", "has no carrier"),
        (msgspec.structs.replace(UP, master=""), "not looked", "may be in userspace"),
        (AWAY, "not looked", "railwrightd is not on PATH here"),
    ],
)
def test_the_other_end_forwards(end: HostEnd | Unseen, state: str, says: str) -> None:
    line = port.CHECK.look(foreign(host_end=end))
    assert (line.state, says in line.says) == (state, True), line


def test_a_veth_that_is_no_port_of_a_bridge_is_bad() -> None:
    recorded = parse_record(record({"type": "bridge"}), "/f")
    view = foreign(recorded=recorded, host_end=msgspec.structs.replace(UP, master="", kind=""))
    assert port.CHECK.look(view).state == "bad"


def test_without_the_daemon_the_record_is_what_was_attached() -> None:
    view = foreign()
    lines = {line.check: line for line in explain_failures(one.look(view) for one in CHECKS)}
    assert [name for name in ("interface", "address", "route", "rdma", "port") if lines[name].state != "ok"] == []
    assert is_foreign(view)
    assert [one.name for one in CHECKS if one.is_ours] == ["flows", "bgp", "drops"]
    other = msgspec.structs.replace(VF, mac="02:00:00:00:00:99")
    assert "was attached with 02:00:00:00:00:05" in CHECKS[0].look(replace(view, port=other)).says
    half = msgspec.structs.replace(VF, routes=(Route(ip_network("10.1.0.0/24"), ip_address("10.1.0.1"), "main"),))
    assert route.CHECK.look(replace(view, port=half)).says.startswith("no route of net1 leads to 10.1.0.0/16")
    assert not is_foreign(replace(view, recorded=NOTHING))


def test_each_address_has_a_gid() -> None:
    with_gid = msgspec.structs.replace(VF, gids={"mlx5_2": ["fe80::1", "10.1.0.5"]})
    assert rdma.CHECK.look(foreign(port=with_gid)).state == "ok"
    without = msgspec.structs.replace(VF, gids={"mlx5_2": ["fe80::1"]})
    line = rdma.CHECK.look(foreign(port=without))
    assert (line.state, line.says[:38]) == ("bad", "mlx5_2 has no RoCE v2 GID of 10.1.0.5,")

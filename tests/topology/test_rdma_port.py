"""RoCE's GIDs, ECN and errors of ports from sysfs; only the kind of each address is reported."""

import json

import pytest

from railwright.topology.devices import EfaLink, PcieLink
from railwright.topology.sources.capture import capture
from railwright.topology.sources.load import load
from railwright.topology.sources.look import open_capture
from railwright.topology.sources.rdma_port import gid_kind

from .machines import files_of, write_archive

MACHINE = "8gpu-pcie"
LOCAL = b"fe80:0000:0000:0000:0ac0:ebff:fe12:3456\n"
FOUR = b"0000:0000:0000:0000:0000:ffff:0a01:0203\n"
SIX = b"2a02:06b8:0c00:0000:0000:0000:0000:0017\n"
ZERO = b"0000:0000:0000:0000:0000:0000:0000:0000\n"


def ports():
    """Return the RDMA ports of the machine, changed to RoCE with one address."""
    return sorted({path.rpartition("/")[0] for path in files_of(MACHINE) if path.endswith("/link_layer")})


def table(port, *entries):
    files = {}
    for index, (gid, version) in enumerate((*entries, *[(ZERO, None)] * 20)):
        files[f"{port}/gids/{index}"] = gid
        if version:
            files[f"{port}/gid_attrs/types/{index}"] = version
            files[f"{port}/gid_attrs/ndevs/{index}"] = b"eth2\n"
    return files


def nic(tmp_path, **changed):
    files = {**files_of(MACHINE), "capture.json": json.dumps({"format": 2}).encode(), **changed}
    path = write_archive(tmp_path / "machine.jsonl", files)
    return next(device for device in load(str(path)).of_kind("nic") if "rdma_device" in device.facts), path


def roce(*entries, **more):
    port = ports()[0]
    return {f"{port}/link_layer": b"Ethernet\n", **table(port, *entries), **more}


def test_the_gid_table_has_no_addresses(tmp_path):
    device, _ = nic(
        tmp_path,
        **roce(
            (LOCAL, b"IB/RoCE v1\n"), (LOCAL, b"RoCE v2\n"), (ZERO, None), (FOUR, b"RoCE v2\n"), (SIX, b"RoCE v2\n")
        ),
    )
    assert device.facts["roce_gids"] == "0:v1/link-local/eth2 1:v2/link-local/eth2 3:v2/IPv4/eth2 4:v2/IPv6/eth2"


@pytest.mark.parametrize("entry", [(b"what\n", b"RoCE v2\n"), (FOUR, b"RoCE v7\n"), (FOUR, None)])
def test_an_invalid_gid_table_is_omitted(tmp_path, entry):
    device, path = nic(tmp_path, **roce((LOCAL, b"RoCE v2\n"), entry))
    assert "roce_gids" not in device.facts
    assert any(note.what.startswith("GIDs of") for note in load(str(path)).unknown)


def test_an_empty_table_differs_from_a_missing_one(tmp_path):
    device, _ = nic(tmp_path, **roce())
    assert device.facts["roce_gids"] == "none"
    other, _ = nic(tmp_path, **{f"{ports()[0]}/link_layer": b"Ethernet\n"})
    assert "roce_gids" not in other.facts


def netdev_of_first():
    return next(
        path.rpartition("/")[0] for path in files_of(MACHINE)
        if path.startswith(ports()[0].partition("/infiniband/")[0]) and path.endswith("/mtu")
    )  # fmt: skip


def test_trust_mode_cnps_and_the_bond_of_the_gids_are_facts(tmp_path):
    netdev, bond = netdev_of_first(), "sys/devices/virtual/net/eth2/bonding"
    told = {"trust_mode": "dscp", "cnp_dscp": "48", "bond": "eth2", "bond_mode": "802.3ad", "bond_ports": "p0 p1"}
    files = {f"{netdev}/qos/trust": b"dscp\n", f"{netdev}/ecn/roce_np/cnp_dscp": b"48\n",
             f"{bond}/mode": b"802.3ad 4\n", f"{bond}/slaves": b"p0 p1\n"}  # fmt: skip
    entry = (FOUR, b"RoCE v2\n")
    assert nic(tmp_path, **roce(entry, **files))[0].facts.items() >= told.items()
    assert not told.keys() & nic(tmp_path, **roce(entry))[0].facts.keys()
    assert "bond" not in nic(tmp_path, **roce(entry, **files | {f"{bond}/slaves": b"\n"}))[0].facts


def test_ecn_is_on_if_both_directions_are(tmp_path):
    netdev = netdev_of_first()
    ways = {f"{netdev}/ecn/roce_{way}/enable/{number}": b"1\n" for way in ("np", "rp") for number in range(8)}
    assert nic(tmp_path, **roce(), **ways)[0].facts["roce_ecn"] == "on"
    off = ways | {path: b"0\n" for path in ways if "roce_rp" in path}
    assert nic(tmp_path, **roce(), **off)[0].facts["roce_ecn"] == "off"
    globally = off | {f"{netdev}/ecn/roce_np/enable/{number}": b"0\n" for number in range(1, 8)}
    globally |= {f"{netdev}/ecn/roce_rp/enable/3": b"1\n"}
    assert nic(tmp_path, **roce(), **globally)[0].facts["roce_ecn"] == "on for priority 3"
    third = off | {f"{netdev}/ecn/roce_rp/enable/3": b"1\n"}
    assert nic(tmp_path, **roce(), **third)[0].facts["roce_ecn"] == "on for priority 3"
    assert "roce_ecn" not in nic(tmp_path, **roce(), **(third | {f"{netdev}/ecn/roce_np/enable/7": b"x"}))[0].facts


def test_only_error_counters_are_errors(tmp_path):
    counters = {f"{ports()[0]}/counters/{name}": b"0\n" for name in ("symbol_error", "link_downed", "port_xmit_wait")}
    assert nic(tmp_path, **counters)[0].facts["port_errors"] == "none"
    some = counters | {f"{ports()[0]}/counters/link_downed": b"3\n", f"{ports()[0]}/counters/port_xmit_wait": b"9\n"}
    assert nic(tmp_path, **some)[0].facts["port_errors"] == "link_downed 3"


def test_lost_packets_of_mlx5_are_errors_and_reordered_ones_are_not(tmp_path):
    counters = {f"{ports()[0]}/counters/symbol_error": b"0\n", f"{ports()[0]}/hw_counters/out_of_sequence": b"812\n"}
    assert nic(tmp_path, **counters)[0].facts["port_errors"] == "none"
    lost = counters | {f"{ports()[0]}/hw_counters/local_ack_timeout_err": b"2705\n"}
    assert nic(tmp_path, **lost)[0].facts["port_errors"] == "local_ack_timeout_err 2705"


def test_an_efa_is_neither_infiniband_nor_roce(tmp_path):
    port = ports()[0]
    device = port.rpartition("/ports/")[0]
    files = {f"{port}/link_layer": b"Unknown\n", f"{port}/state": b"4: ACTIVE\n", **table(port, (LOCAL, b"\n"))}
    for more in ({}, {f"{device}/node_type": b"7: unspecified\n"}):
        device, path = nic(tmp_path, **files, **more)
        links = [link.protocol for link in load(str(path)).links if device.id in (link.a, link.b)]
        assert [type(link) for link in links if not isinstance(link, PcieLink)] == [EfaLink]
        assert device.facts["state"] == "up"
        assert "roce_gids" not in device.facts


def test_iwarp_has_nothing_of_roce(tmp_path):
    device = ports()[0].rpartition("/ports/")[0]
    nic_found, _ = nic(tmp_path, **roce(), **{f"{device}/node_type": b"4: RNIC\n"})
    assert nic_found.facts["rdma_transport"] == "iWARP"
    assert not {"roce_gids", "roce_ecn"} & set(nic_found.facts)


def test_entries_left_empty_by_pods_do_not_hide_later_ones(tmp_path):
    device, _ = nic(tmp_path, **roce(*[(ZERO, None)] * 20, (FOUR, b"RoCE v2\n")))
    assert device.facts["roce_gids"] == "20:v2/IPv4/eth2"


def test_a_capture_keeps_gids_and_a_redacted_one_hides_addresses(tmp_path):
    device, path = nic(tmp_path, **roce((LOCAL, b"IB/RoCE v1\n"), (FOUR, b"RoCE v2\n"), (SIX, b"RoCE v2\n")))
    for redact in (False, True):
        again = tmp_path / f"again-{redact}.jsonl"
        capture(open_capture(path), again, redact=redact)
        (again_device,) = [each for each in load(str(again)).of_kind("nic") if each.address == device.address]
        assert again_device.facts["roce_gids"] == device.facts["roce_gids"]
        assert again_device.facts.get("port_errors") == device.facts.get("port_errors")
    held = json.dumps([json.loads(line) for line in again.read_text().splitlines()])
    assert not any(part in held for part in ("0a01:0203", "2a02", "0ac0:ebff"))


@pytest.mark.parametrize(
    ("gid", "kind"),
    [(LOCAL, "link-local"), (FOUR, "IPv4"), (SIX, "IPv6"), (ZERO, "empty"), (b"", ""), (b"10.1.2.3", ""),
     (b"::", "empty"),
     (b"fe80:0000:0000:0000:0000:0000:0000:0000", "empty"), (b"fe80::1%eth0", "link-local")],
)  # fmt: skip
def test_kinds_of_gids(gid, kind):
    assert gid_kind(gid.decode().strip()) == kind

"""NIC ports in public reports: the output of tools and sysfs, and our reading of the same ports."""

from __future__ import annotations

import json
import re
from pathlib import Path

import msgspec
import pytest

from railwright.checks.roce_gids import gids
from railwright.topology.devices import PcieLink
from railwright.topology.sources.load import load
from railwright.topology.sources.port_settings import (
    parse_dcb_dscp,
    parse_dcb_lossless,
    parse_mlnx_qos_dscp,
    parse_mlnx_qos_lossless,
)

from .machines import files_of, write_archive

FILE = Path(__file__).parents[2] / "testdata/external/reports/ports.toml"
REPORTS = msgspec.toml.decode(FILE.read_text(encoding="utf-8"))
MACHINE = "8gpu-pcie"
PORT = min(path.rpartition("/")[0] for path in files_of(MACHINE) if path.endswith("/link_layer"))
DEVICE = PORT.rpartition("/ports/")[0]
NETDEV = PORT.partition("/infiniband/")[0] + "/net/"
ROW = re.compile(r"^\s*(\S+)\s+\d+\s+(\d+)\s+([0-9a-f:]{39})\s+(?:([\d.]+)\s+)?(v[12])\s+(\S+)\s*$", re.MULTILINE)
VERSIONS = {"v1": b"IB/RoCE v1\n", "v2": b"RoCE v2\n"}
EMPTY = b"0000:0000:0000:0000:0000:0000:0000:0000\n"
DSCP_OF = {"AF31": 26, "CS6": 48}


def by_source(report):
    return report["source"].split()[0]


def nic_with(files, tmp_path):
    """Return the first RDMA NIC of a machine with these files, and the types of its links to the fabric."""
    kept = {path: content for path, content in files_of(MACHINE).items() if not path.startswith(PORT)}
    path = write_archive(tmp_path / "machine.jsonl", {**kept, "capture.json": b'{"format": 2}', **files})
    topology = load(str(path))
    nic = next(nic for nic in topology.of_kind("nic") if nic.facts.get("rdma_device") == DEVICE.rpartition("/")[2])
    links = [link.protocol for link in topology.links if nic.id in (link.a, link.b)]
    return nic, [link for link in links if not isinstance(link, PcieLink)]


@pytest.mark.parametrize("report", REPORTS["show_gids"], ids=by_source)
def test_a_gid_table_agrees_with_show_gids(report, tmp_path):
    rows = ROW.findall(report["text"])
    first = [row for row in rows if row[0] == rows[0][0]]
    files = {f"{PORT}/link_layer": b"Ethernet\n"}
    for index in range(64):
        files[f"{PORT}/gids/{index}"] = EMPTY
    for _, index, gid, _, version, netdev in first:
        files[f"{PORT}/gids/{index}"] = gid.encode()
        files[f"{PORT}/gid_attrs/types/{index}"] = VERSIONS[version]
        files[f"{PORT}/gid_attrs/ndevs/{index}"] = netdev.encode()
    nic, _ = nic_with(files, tmp_path)
    found = gids(nic)
    assert found is not None
    assert [(gid.number, gid.version, gid.netdev) for gid in found] == [(int(row[1]), row[4], row[5]) for row in first]
    assert [gid.kind == "IPv4" for gid in found] == [bool(row[3]) for row in first]
    assert next((gid.number for gid in found if gid.is_routable), -1) == report["first_routable"]


@pytest.mark.parametrize("report", REPORTS["mlnx_qos"], ids=by_source)
def test_priorities_agree_with_mlnx_qos(report):
    assert parse_mlnx_qos_lossless(report["text"]) == tuple(report["lossless"])
    table = dict(parse_mlnx_qos_dscp(report["text"]))
    assert len(table) == 64
    assert table[26] == report["priority_of_dscp_26"]


@pytest.mark.parametrize("report", REPORTS["dcb"], ids=by_source)
def test_priorities_agree_with_dcb(report):
    """The table for people, compared with the JSON of the same program."""
    lossless = [word == "on" for _, word in re.findall(r"\b([0-7]):(on|off)", report["text"])]
    assert parse_dcb_lossless(json.dumps({"pfc_cap": 8, "prio_pfc": lossless})) == tuple(report["lossless"])
    table = [[DSCP_OF[name], int(priority)] for name, priority in re.findall(r"\b([A-Z]+\d+):([0-7])", report["text"])]
    assert [list(pair) for pair in parse_dcb_dscp(json.dumps({"dscp_prio": table}))] == report["dscp"]


@pytest.mark.parametrize("report", REPORTS["sysfs"], ids=by_source)
def test_a_port_has_the_facts_found_from_its_files(report, tmp_path):
    files = {f"{DEVICE}/{name}": content.encode() + b"\n" for name, content in report["files"].items()}
    netdevs = {path: b"" for path in files_of(MACHINE) if path.startswith(NETDEV)}
    kept = {f"{PORT}/link_layer": b"InfiniBand\n", f"{PORT}/state": b"4: ACTIVE\n"}
    nic, links = nic_with({**netdevs, **kept, **files}, tmp_path)
    assert {name: nic.facts.get(name) for name in report["facts"]} == report["facts"]
    assert not set(report["lacks"]) & set(nic.facts)
    (link,) = links
    assert type(link).__name__.lower().startswith(report["link"])
    assert not report.get("no_rate") or link.line_rate_bits_per_s is None

"""Compares our findings with those of tools in public reports on the same machines."""

from __future__ import annotations

import json
import lzma
import re
from pathlib import Path

import msgspec
import pytest
from msgspec.structs import replace
from tests.checks.machines import tuned, with_facts

from railwright.checks.check import Facts
from railwright.checks.finding import PartPlace
from railwright.checks.outcome import look_for
from railwright.faults.every_check import EVERY_CHECK
from railwright.topology.matrix import parse_matrix
from railwright.topology.paths import Affinity
from railwright.topology.sources.load import load
from railwright.topology.sources.pci_config import CONVENTIONAL_BYTES, read_config
from railwright.topology.sources.tools import parse_ucx

REPORTS = Path(__file__).parents[2] / "testdata/external/reports"
LSPCI = [json.loads(line) for line in lzma.decompress((REPORTS / "lspci.jsonl.xz").read_bytes()).splitlines()]
UCX = msgspec.toml.decode((REPORTS / "ucx.toml").read_text(encoding="utf-8"))["report"]
SAME = {"NODE": "PHB"}
"""Through the CPU, either way."""
PORT_TYPES = {
    "Root Port": "root_port",
    "Downstream Port": "downstream",
    "PCI/PCI-X": "other_bridge",
    "Endpoint": "endpoint",
    "Legacy Endpoint": "endpoint",
    "Root Complex Integrated Endpoint": "root_complex_endpoint",
}


def test_a_configuration_space_says_what_lspci_says_of_it():
    assert len(LSPCI) == 36
    for row in LSPCI:
        config = bytes.fromhex(row["config"])
        space, where = read_config(config), f"{row['source']} {row['function']}"
        assert space.port_type == PORT_TYPES[row["port"]], where
        for name in ("max_payload_supported_bytes", "max_payload_bytes", "max_read_request_bytes", "relaxed_ordering"):
            assert getattr(space, name) == row[name], (where, name)
        whole = len(config) > CONVENTIONAL_BYTES
        for name in ("acs_redirect", "ats_enabled"):  # lspci prints nothing without the capability
            assert getattr(space, name) == (bool(row[name]) if whole else None), (where, name)
        assert space.ats_capable == ((row["ats_enabled"] is not None) if whole else None), where
    assert any(row["acs_redirect"] for row in LSPCI)
    assert any(row["ats_enabled"] for row in LSPCI)


def of_report(report):
    """A machine with the report's NICs, each with the state that `ibv_devinfo` prints."""
    ports = re.findall(r"hca_id:\s*(\S+)(?:(?!hca_id)[\s\S])*?(?:state:\s*PORT_(\w+)|(?=hca_id)|\Z)", report["ports"])
    machine = tuned()
    gone = {nic.id for nic in machine.of_kind("nic")[len(ports) :]}
    machine = replace(
        machine,
        devices=tuple(one for one in machine.devices if one.id not in gone),
        links=tuple(link for link in machine.links if not gone & {link.a, link.b}),
    )
    for number, (device, state) in enumerate(ports):
        facts = {"rdma_device": device, **({"state": "down"} if state == "DOWN" else {})}
        machine = with_facts(machine, "nic", number, **facts)
    ucx = parse_ucx(report["version"], report["transports"])
    told = {"ucx": ucx.version, "ucx_transports": " ".join(ucx.transports), "ucx_devices": " ".join(ucx.devices)}
    return with_facts(machine, "host", **told)


@pytest.mark.parametrize("report", UCX, ids=lambda report: report["source"].split()[-1])
def test_what_a_ucx_knows_is_found_as_its_report_found_it(report):
    facts = Facts(topology=of_report(report), environment={})
    states = {check.name: look_for(check, facts).state for check in EVERY_CHECK if check.name.startswith("ucx_")}
    assert {name for name, state in states.items() if state == "found"} == set(report["fires"])
    assert all(states[name] == "fine" for name in report["silent"])


def test_a_port_that_is_up_and_that_ucx_does_not_list_would_be_found():
    report = {**UCX[0], "ports": UCX[0]["ports"].replace("PORT_DOWN", "PORT_ACTIVE")}
    facts = Facts(topology=of_report(report), environment={})
    (check,) = [one for one in EVERY_CHECK if one.name == "ucx_without_rdma"]
    assert [finding.where for finding in check.look(facts)] == [(PartPlace("nic1"),)]


@pytest.mark.parametrize("file", sorted(REPORTS.glob("topo-m-*.txt")), ids=lambda file: file.stem)
def test_which_nic_is_near_which_gpu_is_what_the_matrix_says(file):
    text = file.read_text(encoding="utf-8")
    printed = parse_matrix(text)
    assert printed is not None
    near = Affinity(load(str(file)))
    assert near.gpus
    assert near.nics
    for gpu in near.gpus:
        (cells,) = [line.split()[1:] for line in text.splitlines() if line.startswith(gpu.id.upper())]
        for nic in near.nics:
            told = cells[printed.names.index(nic.id.upper())]
            assert near.kind(gpu.id, nic.id) == SAME.get(told, told)

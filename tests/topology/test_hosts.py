"""Every machine of testdata/hosts yields the facts of its expected.txt."""

import os

import pytest

from railwright.checks.check import Facts
from railwright.faults.every_check import EVERY_CHECK
from railwright.report.text.topology import render_topology
from railwright.topology.paths import Affinity
from railwright.topology.sources.load import load

from .machines import HOSTS, NAMES, archive

SHAPES = {
    "8xh100-8nic": ("hgx-h100", "infiniband", 400e9),
    "8xh100-2nic": ("hgx-h100 nics=2 nic-protocol=ethernet", "ethernet", 400e9),
    "8xa100-4nic": ("hgx-a100 nics=4 numa-per-socket=2", "infiniband", 200e9),
    "8gpu-pcie": ("pcie-8gpu", "ethernet", 100e9),
}


@pytest.mark.parametrize("name", NAMES)
def test_tree_and_affinity_are_as_expected(name):
    expected = HOSTS / name / "expected.txt"
    text = render_topology(load(str(archive(name))))
    if os.environ.get("RAILWRIGHT_UPDATE_EXPECTED"):
        expected.write_text(text)
    assert text == expected.read_text()


@pytest.mark.parametrize("name", NAMES)
def test_no_recorded_machine_has_a_lost_or_broken_gpu(name):
    facts = Facts(topology=load(str(archive(name))))
    looked = ("gpu_lost", "gpu_memory_errors", "compute_mode_prohibited")
    findings = [finding for check in EVERY_CHECK if check.name in looked for finding in check.look(facts)]
    blind = any(item.what.startswith("NVLink of") for item in facts.topology.unknown)
    assert [finding.certainty for finding in findings] == (["could not look"] * 2 if blind else [])


def test_there_are_at_least_five_machines():
    assert len(NAMES) >= 5
    assert set(SHAPES) <= set(NAMES)


@pytest.mark.parametrize("name", SHAPES)
def test_shape_has_the_affinity_of_the_captured_machine(name):
    shape, protocol, rate = SHAPES[name]
    assert _matrix(load(shape), protocol, rate) == _matrix(load(str(archive(name))), protocol, rate)


def _matrix(topology, protocol, rate):
    """Path kinds per GPU to the NICs of that protocol and rate: management NICs are not part of a shape."""
    fabric = {
        link.a
        for link in topology.links
        if link.b == "fabric0"
        and link.protocol.__struct_config__.tag == protocol
        and link.protocol.line_rate_bits_per_s == rate
    }
    affinity = Affinity(topology)
    assert fabric
    return [[affinity.kind(gpu.id, nic.id) for nic in affinity.nics if nic.id in fabric] for gpu in affinity.gpus]


def test_source_n_has_six_gpus_without_a_nic_under_their_switch():
    affinity = Affinity(load(str(archive("8xh100-2nic"))))
    near = [gpu.id for gpu in affinity.gpus if "PIX" in [affinity.kind(gpu.id, nic.id) for nic in affinity.nics]]
    assert near == ["gpu0", "gpu4"]


def test_facts_of_the_links_come_from_configuration_space():
    topology = load(str(archive("8gpu-pcie")))
    link = next(link for link in topology.links if link.b == "gpu6")
    assert (link.a, link.protocol.width, link.protocol.max_width) == ("switch1", 8, 16)
    assert (link.protocol.max_payload_bytes, link.protocol.max_read_request_bytes) == (256, 4096)
    assert link.protocol.acs_redirect is True


def test_a_management_controllers_display_is_not_a_gpu():
    topology = load(str(archive("8gpu-pcie")))
    assert [gpu.name for gpu in topology.of_kind("gpu")] == ["NVIDIA L40S"] * 8


def test_memory_channels_are_shared_by_the_nodes_of_a_socket():
    links = {link.b: link.protocol for link in load(str(archive("8xa100-4nic"))).links}
    assert (links["memory0"].channels, links["memory0"].transfers_per_s, links["memory0"].bus_bytes) == (4, 3.2e9, 8)
    links = {link.b: link.protocol for link in load(str(archive("8xh100-2nic"))).links}
    assert links["memory1"].channels == 12

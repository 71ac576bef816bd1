"""The GPUs that NVIDIA's libraries list, the number of switches behind NVLink, and their text."""

import json
import re

import pytest
from tests.stand_ins import stand_ins  # noqa: F401 - a fixture

from railwright.report.pictures.topology import render_topology_svg
from railwright.report.text.topology import render_topology
from railwright.topology.gpus import usable_gpus
from railwright.topology.paths import Graph
from railwright.topology.sources import nvidia_probe
from railwright.topology.sources.load import load
from railwright.topology.sources.nvidia_model import PROBE

from .machines import archive, files_of, write_archive
from .probed import MACHINE, ask, look, machine_with, why


@pytest.fixture
def document(stand_ins):  # noqa: F811 - pytest's way to ask for a fixture
    """Return the probe's answer for two healthy H200, as plain data that a test may change."""
    return ask(stand_ins)


def test_a_gpu_that_nvml_does_not_list_is_reported(tmp_path, document):
    document["nvml"]["gpus"].pop()
    topology = machine_with(tmp_path, document)
    assert why(topology)["NVLink of gpu1"] == "NVIDIA's library does not list this GPU"


def test_a_gpu_that_neither_library_lists_is_lost_and_not_hidden_by_a_variable(tmp_path, document):
    document["nvml"]["gpus"].pop()
    document["cuda"]["gpus"].pop()
    topology = machine_with(tmp_path, document)
    (finding,) = look("gpu_lost", topology)
    assert (finding.certainty, finding.where) == ("seen", ("gpu1",))
    assert [gpu.id for gpu in usable_gpus(topology)] == ["gpu0"]
    text = render_topology(topology)
    assert "not listed by NVIDIA's library NVML" in text
    assert "CUDA_VISIBLE_DEVICES" not in text


@pytest.mark.parametrize(
    ("nodes", "allowed", "container", "lost"),
    [
        (2, 2, True, True),  # a container that was given both
        (1, 1, True, False),  # a container that was given the other
        (2, 1, False, False),  # a job whose cgroup allows one
        (2, 2, False, True),
        (1, 1, False, True),  # no node was made for a GPU that could not be started
        (2, 0, False, True),  # modes that refuse all and an NVML that lists one: odd, so not believed
        (None, None, True, True),
    ],
)
def test_a_gpu_that_a_container_or_a_job_was_not_given_is_not_lost(tmp_path, document, nodes, allowed, container, lost):
    document["nvml"]["gpus"].pop()
    document["cuda"]["gpus"].pop()
    document["nvml"] |= {"device_nodes": nodes, "device_nodes_allowed": allowed}
    files = {path: raw for path, raw in files_of(MACHINE).items() if path != ".dockerenv"}
    files |= {".dockerenv": b""} if container else {}
    files |= {PROBE: json.dumps(document).encode(), "proc/1/cgroup": b"0::/\n", "proc/self/cgroup": b"0::/\n"}
    topology = load(str(write_archive(tmp_path / "machine.jsonl", files)))
    assert ("container" in topology.device("host0").facts) is container
    assert bool(look("gpu_lost", topology)) is lost
    assert ("not given to this container or job" in render_topology(topology)) is not lost
    assert [gpu.id for gpu in usable_gpus(topology)] == ["gpu0"]


def test_the_probe_counts_the_device_nodes(monkeypatch, tmp_path):
    for name in ("nvidia0", "nvidia10", "nvidiactl", "nvidia-uvm", "null"):
        (tmp_path / name).touch()
    monkeypatch.setattr(nvidia_probe, "_DEVICES", tmp_path)
    monkeypatch.setattr(nvidia_probe.os, "access", lambda node, _: node.name == "nvidia10")
    assert nvidia_probe._count_device_nodes() == {"device_nodes": 2, "device_nodes_allowed": 1}
    monkeypatch.setattr(nvidia_probe, "_DEVICES", tmp_path / "none")
    assert nvidia_probe._count_device_nodes() == {}


def test_a_gpu_that_is_hidden_from_cuda_is_reported(tmp_path, document):
    document["cuda"]["gpus"].pop()
    topology = machine_with(tmp_path, document)
    assert topology.device("gpu1").facts["cuda_visible"] is False
    assert "not visible to CUDA (CUDA_VISIBLE_DEVICES?)" in render_topology(topology)
    assert look("gpu_lost", topology) == ()
    assert why(topology)["CUDA attributes of gpu1"] == "CUDA does not list this GPU"


def test_equal_gpus_are_printed_as_ranges(tmp_path, document):
    gpus = load(str(archive("8xh100-8nic"))).of_kind("gpu")
    listed = [{**document["nvml"]["gpus"][0], "address": gpu.address, "mig": gpu.id == "gpu3"} for gpu in gpus]
    topology = machine_with(tmp_path, {"format": 1, "nvml": {"gpus": listed}, "cuda": {}}, "8xh100-8nic")
    text = render_topology(topology)
    assert re.search(r"^  gpu0-2, gpu4-7  compute capability", text, re.M)
    assert re.search(r"^  gpu3  compute capability", text, re.M)
    del listed[6]
    topology = machine_with(tmp_path, {"format": 1, "nvml": {"gpus": listed}, "cuda": {}}, "8xh100-8nic")
    words = "to gpu0-5, gpu7"
    assert words in render_topology(topology)
    assert words in render_topology_svg(topology)


@pytest.mark.parametrize("remote", ["hidden", "ones"])
def test_switches_are_not_counted_where_the_other_ends_have_no_address(tmp_path, stand_ins, remote):  # noqa: F811
    answer = ask(stand_ins, STANDIN_NVML_REMOTE=remote)
    assert "ffff" not in json.dumps(answer["nvml"])
    (switch,) = machine_with(tmp_path, answer).of_kind("nvswitch")
    assert (switch.name, "chips" in switch.facts) == ("NVSwitches", False)


def test_an_address_of_all_ones_in_a_capture_does_not_count_as_a_switch(tmp_path, document):
    links = [link for gpu in document["nvml"]["gpus"] for link in gpu["nvlinks"]]
    four = machine_with(tmp_path, document)
    assert (four.of_kind("nvswitch")[0].name, "number of NVSwitches" in why(four)) == ("4 NVSwitches", False)
    for link in links:
        link["remote_address"] = "ffffffff:ff:ff.0"
    topology = machine_with(tmp_path, document)
    (switch,) = topology.of_kind("nvswitch")
    assert (switch.name, "chips" in switch.facts) == ("NVSwitches", False)
    assert "number of NVSwitches" in why(topology)
    text = render_topology(topology)
    assert "number of NVSwitches: NVIDIA's library does not say" in text
    assert "1 NVSwitch" not in text + render_topology_svg(topology)
    assert Graph(topology).find("gpu0", "gpu1").kind == "NVL"
    for link in links:
        link["remote"] = "unknown"
    assert machine_with(tmp_path, document).of_kind("nvswitch")

"""A child process queries NVIDIA's libraries. Captures keep the answer like a file, and only possible answers are
accepted.
"""

import json
import os
import re
import subprocess
import sys

import msgspec
import pytest
from tests.stand_ins import environment, stand_ins  # noqa: F401 - a fixture

from railwright.report.pictures.topology import render_topology_svg
from railwright.report.text.topology import render_topology
from railwright.topology.devices import NvlinkLink, PcieLink
from railwright.topology.paths import Graph
from railwright.topology.sources import nvidia
from railwright.topology.sources.asked import ProbedRoot
from railwright.topology.sources.capture import capture
from railwright.topology.sources.load import load
from railwright.topology.sources.look import open_capture
from railwright.topology.sources.machine import discover
from railwright.topology.sources.nvidia import PROBE, ask_nvidia
from railwright.topology.sources.root import Root, Unreadable
from railwright.topology.sources.saved import decode_topology, encode_topology

from .machines import archive, files_of, write_archive
from .probed import ADDRESSES, MACHINE, ask, look, machine_with, why


@pytest.fixture
def document(stand_ins):  # noqa: F811 - pytest's way to ask for a fixture
    """Return the probe's answer for two healthy H200, as plain data that a test may change."""
    return ask(stand_ins)


@pytest.fixture
def stood_in(stand_ins, monkeypatch):  # noqa: F811
    """Let child processes load the stand-in libraries, with faults if given."""

    def inject(**faults):
        for name, value in environment(stand_ins, *ADDRESSES, **faults).items():
            monkeypatch.setenv(name, value)

    return inject


def asked(files: Root) -> Root:
    """Return files of a machine together with NVIDIA's libraries' answer."""
    return ProbedRoot(files, {PROBE: ask_nvidia})


def test_live_machine_has_what_sysfs_hides(stood_in):
    stood_in()
    topology = discover(asked(open_capture(archive(MACHINE))), "live")
    gpu = topology.device("gpu1")
    assert gpu.name == "NVIDIA H200"
    assert gpu.facts["memory_bytes"] == 143771 * 2**20
    assert gpu.facts["power_limit_w"] == gpu.facts["power_default_w"] == 700
    assert gpu.facts["sm_clock_max_hz"] == 1980e6
    assert gpu.facts["hbm_bandwidth_bytes_per_s"] == pytest.approx(4.917e12, rel=1e-3)
    assert (gpu.facts["ecc"], gpu.facts["mig"], gpu.facts["persistence"]) == (True, False, True)
    assert (gpu.facts["dma_buf"], gpu.facts["copy_engines"], gpu.facts["cuda_visible"]) == (True, 3, True)
    assert topology.device("host0").facts["nvidia_driver"] == "580.159.04"
    path = Graph(topology).find("gpu0", "gpu1")
    assert (path.kind, [link.protocol.links for link in path.links]) == ("NVL", [18, 18])
    assert not [name for name in why(topology) if "NVLink" in name or "CUDA" in name]


def test_the_text_and_the_picture_show_it(stood_in):
    stood_in()
    topology = discover(asked(open_capture(archive(MACHINE))), "live")
    text = render_topology(topology)
    assert "nvswitch0 to gpu0, gpu1  18x NVLink 4 each" in text
    assert re.search(r"^  gpu0, gpu1  compute capability 9.0, .* 140 GiB at 4917 GB/s, 3 copy engines$", text, re.M)
    assert "700 W, ECC on, persistence on, MIG off, NVLink fabric completed" in text
    assert "every GPU reaches the memory of every other" in text
    assert "700 W, ECC on" in render_topology_svg(topology)


@pytest.mark.parametrize("redact", [False, True])
def test_a_capture_shows_the_same_machine_again(stood_in, tmp_path, redact):
    stood_in()
    done = capture(asked(open_capture(archive(MACHINE))), tmp_path / "here.jsonl", redact=redact)
    stood_in(STANDIN_NVML_HANG="1")  # reading a capture starts no probe
    again = load(str(tmp_path / "here.jsonl"))
    normalised = [msgspec.structs.replace(found, name="", source="live") for found in (again, done.topology)]
    assert normalised[0] == normalised[1]
    assert ("5ec2e700" in (tmp_path / "here.jsonl").read_text()) is not redact
    assert "580.159.04" in (tmp_path / "here.jsonl").read_text()


def test_a_captured_machine_starts_no_child(stood_in, monkeypatch):
    stood_in()
    monkeypatch.setattr(nvidia, "run", lambda *_, **__: pytest.fail("a child was started"))
    topology = load(str(archive(MACHINE)))
    assert why(topology)["NVLink of gpu0, gpu1"] == "sysfs does not show it, only NVIDIA's library does"


def test_a_machine_without_nvidia_gpus_starts_no_child(monkeypatch):
    monkeypatch.setattr(nvidia, "run", lambda *_, **__: pytest.fail("a child was started"))
    discover(asked(open_capture(archive("2cpu-firecracker-vm"))), "live")


def test_a_driver_that_hangs_costs_the_time_out_and_is_named(stood_in, monkeypatch):
    stood_in(STANDIN_NVML_HANG="1")
    monkeypatch.setattr(nvidia, "TIMEOUT_S", 1.5)
    topology = discover(asked(open_capture(archive(MACHINE))), "live")
    assert why(topology)["NVLink of gpu0, gpu1"] == "NVIDIA's library NVML gave no answer within 1.5 s"
    assert look("nvlink_below_maximum", topology)[0].certainty == "could not look"
    assert look("p2p_disabled", topology)[0].certainty == "could not look"


def test_a_driver_that_crashes_is_named(stood_in):
    stood_in(STANDIN_NVML_CRASH="1")
    topology = discover(asked(open_capture(archive(MACHINE))), "live")
    assert "killed by SIGABRT" in why(topology)["NVLink of gpu0, gpu1"]


def test_nvmls_answer_is_kept_if_cuda_gives_none():
    text = '{"nvml": {"driver": "580"}}{"cuda": {"gpus": [{"addr'
    assert nvidia._parse_answers(text) == {"nvml": {"driver": "580"}}


def test_a_line_on_standard_error_is_not_an_answer(stood_in, monkeypatch, tmp_path):
    (tmp_path / "sitecustomize.py").write_text("import sys\nprint('{1} [a warning]', file=sys.stderr)\n")
    stood_in(PYTHONPATH=str(tmp_path))
    topology = discover(asked(open_capture(archive(MACHINE))), "live")
    assert topology.device("gpu1").name == "NVIDIA H200"


def test_a_missing_library_is_named(tmp_path, document):
    answer = {**document, "nvml": {"problem": "libnvidia-ml.so.1 cannot be loaded"}, "cuda": {"problem": "no libcuda"}}
    topology = machine_with(tmp_path, answer)
    assert why(topology)["NVLink of gpu0, gpu1"] == "libnvidia-ml.so.1 cannot be loaded"
    assert why(topology)["CUDA attributes of gpu0, gpu1"] == "no libcuda"


@pytest.mark.machine
def test_without_the_libraries_the_probe_says_so():
    variables = {name: value for name, value in os.environ.items() if name != "LD_LIBRARY_PATH"}
    program = [sys.executable, "-m", "railwright.topology.sources.nvidia_probe"]
    done = subprocess.run(program, env=variables, capture_output=True, text=True, timeout=300, check=True)
    if "cannot be loaded" not in done.stdout:
        pytest.skip("this machine has NVIDIA's libraries")
    assert [json.loads(line).popitem()[1]["problem"] for line in done.stdout.splitlines()] == [
        "libnvidia-ml.so.1 cannot be loaded",
        "libcuda.so.1 cannot be loaded",
    ]


def test_inactive_links_are_seen(tmp_path, stand_ins):  # noqa: F811
    topology = machine_with(tmp_path, ask(stand_ins, STANDIN_NVML_LINKS="12"))
    (finding,) = look("nvlink_below_maximum", topology)
    assert (finding.certainty, finding.where) == ("seen", ("nvswitch0--gpu1",))
    assert finding.says.startswith("12 of 18 NVLinks")


def test_a_gpu_without_any_active_link_is_seen_among_others_that_have_some(tmp_path, document):
    gpus = load(str(archive("8xh100-8nic"))).of_kind("gpu")
    healthy = document["nvml"]["gpus"][0]
    listed = [{**healthy, "address": gpu.address} for gpu in gpus]
    listed[3] = {**listed[3], "nvlinks": [{"link": link, "active": False} for link in range(18)]}
    topology = machine_with(tmp_path, {"format": 1, "nvml": {"gpus": listed}, "cuda": {}}, "8xh100-8nic")
    (finding,) = look("nvlink_below_maximum", topology)
    assert (finding.certainty, finding.where) == ("seen", ("gpu3",))
    for gpu in listed:
        gpu["nvlinks"] = listed[3]["nvlinks"]
    without = machine_with(tmp_path, {"format": 1, "nvml": {"gpus": listed}, "cuda": {}}, "8xh100-8nic")
    assert look("nvlink_below_maximum", without) == ()


def test_links_between_two_gpus_need_no_switch(tmp_path, stand_ins):  # noqa: F811
    topology = machine_with(tmp_path, ask(stand_ins, STANDIN_NVML_REMOTE="gpu"))
    assert [link for link in topology.links if isinstance(link.protocol, NvlinkLink)] == [
        next(link for link in topology.links if (link.a, link.b) == ("gpu0", "gpu1"))
    ]
    assert not topology.of_kind("nvswitch")


def test_links_with_hidden_other_ends_count_as_links_to_switches(tmp_path, stand_ins):  # noqa: F811
    topology = machine_with(tmp_path, ask(stand_ins, STANDIN_NVML_REMOTE="hidden"))
    assert Graph(topology).find("gpu0", "gpu1").devices == ("gpu0", "nvswitch0", "gpu1")


def test_active_links_that_lead_nowhere_known_are_noted(tmp_path, document):
    for gpu in document["nvml"]["gpus"]:
        gpu.pop("fabric_state", None)
        gpu["nvlinks"] = [{"link": 0, "active": True}]
    answer = {**document, "nvml": {**document["nvml"], "pairs": []}}
    topology = machine_with(tmp_path, answer)
    assert "does not say where they lead" in why(topology)["NVLink of gpu0, gpu1"]


def test_links_of_an_unknown_generation_have_no_rate_and_are_noted(tmp_path, document):
    for gpu in document["nvml"]["gpus"]:
        gpu["compute_capability"] = "77.0"
        gpu["nvlinks"] = [{"link": 0, "active": True, "version": 99, "remote": "switch"}]
    topology = machine_with(tmp_path, document)
    assert "of which generation" in why(topology)["NVLink of gpu0, gpu1"]
    assert not topology.of_kind("nvswitch")
    saved = decode_topology(encode_topology(topology), "saved")
    assert saved.links == topology.links


def test_switches_that_pci_shows_are_joined_to_no_gpu(tmp_path, document):
    gpus = load(str(archive("8xh100-8nic"))).of_kind("gpu")
    healthy = document["nvml"]["gpus"][0]
    answer = {"format": 1, "nvml": {"gpus": [{**healthy, "address": gpu.address} for gpu in gpus]}, "cuda": {}}
    topology = machine_with(tmp_path, answer, "8xh100-8nic")
    stands_for_all = topology.of_kind("nvswitch")[-1]
    assert (stands_for_all.address, stands_for_all.facts["chips"]) == ("", 4)
    path = Graph(topology).find("gpu0", "gpu7")
    assert [link.protocol.links for link in path.links] == [18, 18]
    nvlinks = [link.a for link in topology.links if isinstance(link.protocol, NvlinkLink)]
    assert nvlinks == [stands_for_all.id] * 8


def test_a_pcie_link_that_sysfs_hides_is_filled_in_and_one_that_it_shows_is_kept(tmp_path, document):
    files = files_of(MACHINE)
    shown = [path for path in files if "0000:00:06.0/" in path and "link_" in path]
    assert shown
    hidden = {path: raw for path, raw in files.items() if path not in shown}
    document["nvml"]["gpus"][1]["pcie_generation"] = 3
    hidden[PROBE] = json.dumps(document).encode()
    topology = load(str(write_archive(tmp_path / "hidden.jsonl", hidden)))
    links = {link.b: link.protocol for link in topology.links if isinstance(link.protocol, PcieLink)}
    assert (links["gpu0"].gt_per_s, links["gpu0"].width, links["gpu0"].max_width) == (32.0, 16, 16)
    assert links["gpu1"].gt_per_s == 32.0


def test_peers_that_the_driver_refuses_are_a_fault_where_nvlink_joins_them(tmp_path, stand_ins):  # noqa: F811
    topology = machine_with(tmp_path, ask(stand_ins, STANDIN_NVML_PEER="4"))
    (finding,) = look("p2p_disabled", topology)
    assert (finding.certainty, finding.where) == ("seen", ("gpu0", "gpu1"))
    assert finding.says == "gpu0, gpu1 may not access each other's memory (disabled by regkey)"


def test_a_gpu_that_the_fabric_manager_left_out_is_seen(tmp_path, stand_ins):  # noqa: F811
    topology = machine_with(tmp_path, ask(stand_ins, STANDIN_NVML_FABRIC="1"))
    (finding,) = look("p2p_disabled", topology)
    assert (finding.certainty, finding.where) == ("seen", ("gpu1",))
    assert "not started" in finding.says


def first_gpu(document, **changed):
    document["nvml"]["gpus"][0].update(changed)
    return document


@pytest.mark.parametrize(
    "spoil",
    [
        lambda document: b"",
        lambda document: b"\xff\xfe{",
        lambda document: b"[" * 100_000,
        lambda document: b"[]",
        lambda document: {**document, "format": 2},
        lambda document: first_gpu(document, address="0000:00:06.0/../../etc"),
        lambda document: first_gpu(document, name="x" * 100_000),
        lambda document: first_gpu(document, memory_bytes=-1),
        lambda document: first_gpu(document, memory_bytes=10**400),
        lambda document: first_gpu(document, power_limit_w=1e308),
        lambda document: first_gpu(document, sm_clock_max_hz="fast"),
        lambda document: first_gpu(document, nvlinks=[{"link": 0, "active": True}] * 1000),
        lambda document: first_gpu(document, event_reasons=2**64),
        lambda document: json.dumps(document).replace("700.0", "NaN").encode(),
        lambda document: {**document, "nvml": {"gpus": [{"address": "0000:00:06.0"}] * 1000}},
    ],
)
def test_an_impossible_document_is_refused_as_a_whole(tmp_path, document, spoil):
    topology = machine_with(tmp_path, spoil(document))
    assert "nvidia/probe.json" in why(topology)["NVLink of gpu0, gpu1"]
    assert "memory_bytes" not in topology.device("gpu0").facts
    assert "not known" in render_topology(topology)


def test_escape_sequences_do_not_reach_the_terminal(tmp_path, document):
    red = "\x1b[31mH200\x1b]0;owned\x07"
    first_gpu(document, name=red, compute_mode=red, fabric_state=red, fabric_problem=red, compute_capability=red)
    document["nvml"]["driver"] = red
    text = render_topology(machine_with(tmp_path, document))
    assert "\x1b" not in text
    assert "\x07" not in text
    assert "?[31mH200" in text


def test_other_documents_are_read_as_live_ones(stood_in):
    stood_in()
    root = asked(open_capture(archive(MACHINE)))
    assert json.loads(root.read(PROBE))["nvml"]["cuda"] == "13.0"
    assert root.read_bytes(PROBE) is root.read_bytes(PROBE)  # asked once
    assert isinstance(root.read("nvidia/other.json"), Unreadable)
    assert root.name == MACHINE
    assert "sys" not in root.list("proc")

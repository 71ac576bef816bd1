"""`railwright topo`: text, record, picture, capture and NCCL's file."""

import json
import subprocess
import sys
import xml.etree.ElementTree as ET
from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner
from tests.conftest import InProcess

from railwright.errors import CannotJudge, UsageError
from railwright.options.machine import join_changes
from railwright.report.formats.nccl_xml import render_nccl_xml
from railwright.report.pictures.topology import render_topology_svg
from railwright.report.text.topology import render_affinity, render_topology
from railwright.report.topology_gpus import gpu_lines
from railwright.topology.devices import PcieLink
from railwright.topology.sources.load import load
from railwright.topology.sources.saved import decode_topology
from railwright.verbs import topo as verb

from .machines import HOSTS, NAMES, archive


def topo(*arguments):
    result = CliRunner().invoke(verb.topo, list(arguments), catch_exceptions=False)
    assert result.exit_code == 0
    return result.output


def test_text_of_a_capture():
    assert topo("--from", str(archive("8xh100-2nic"))) == (HOSTS / "8xh100-2nic/expected.txt").read_text()


def test_equal_gpus_share_a_line_and_a_different_one_has_its_own():
    topology = load(str(archive("2xh200-probed-vm")))
    lines = gpu_lines(topology)
    assert lines[0].startswith("GPUs  driver ")
    assert lines[1].startswith("  gpu0, gpu1  compute capability 9.0, 132 SMs at up to 1980 MHz, ")
    assert lines[-1] == "  every GPU reaches the memory of every other"
    devices = [
        msgspec.structs.replace(device, facts=device.facts | {"sm_count": 114}) if device.id == "gpu1" else device
        for device in topology.devices
    ]
    apart = [line for line in gpu_lines(msgspec.structs.replace(topology, devices=tuple(devices))) if " SMs " in line]
    assert [line.split()[0] for line in apart] == ["gpu0", "gpu1"]
    assert [" 114 SMs " in line for line in apart] == [False, True]
    assert gpu_lines(load("hgx-h100")) == []


def test_changes_need_no_quotes():
    assert topo("--from", "hgx-h100", "nics=2") == topo("--from", "hgx-h100 nics=2")
    assert "hgx-h100 nics=2 (shape)" in topo("--from=hgx-h100", "nics=2")


@pytest.mark.parametrize(
    ("given", "joined"),
    [
        (["--from", "a", "b=1", "--json"], ["--from", "a b=1", "--json"]),
        (["--from=a", "b=1", "c=2"], ["--from=a b=1 c=2"]),
        (["--svg", "x=1.svg"], ["--svg", "x=1.svg"]),
        (["--from", "a", "file", "b=1"], ["--from", "a", "file", "b=1"]),
        (["--", "--from", "a", "b=1"], ["--", "--from", "a", "b=1"]),
        (["--from"], ["--from"]),
        (["--from", "GB200", "NVL72", "ib", "400G"], ["--from", "GB200 NVL72 ib 400G"]),
        (["--from", "ND", "H100", "v5", "gpu0>gpu1"], ["--from", "ND H100 v5", "gpu0>gpu1"]),
        (["--from", "a", "capture", "H100"], ["--from", "a", "capture", "H100"]),
    ],
)
def test_words_are_joined_only_after_from(given, joined):
    assert join_changes(given) == joined


@pytest.mark.parametrize(
    "words",
    [
        ("limits", "--host", "hgx", "b300", "cx8"),
        ("limits", "hgx-b300", "cx8", "gpu0>nic0"),
        ("whatif", "--count", "2", "--host", "hgx", "b300", "cx8", "--host", "hgx-h100"),
        ("explain", "table.txt", "--host", "hgx", "b300", "cx8"),
        ("topo", "--host", "hgx", "b300", "cx8"),
        ("storage", "cufile-json", "--host=hgx", "b300", "cx8"),
    ],
)
def test_every_verb_names_the_unknown_word_of_a_machine(answer: InProcess, tmp_path: Path, words) -> None:
    table = tmp_path / "table.txt"
    table.write_text("# nThread 1 nGpus 1\n")
    done = answer(*(str(table) if word == "table.txt" else word for word in words))
    assert (done.status, "not a change: 'cx8'" in done.err) == (2, True), done.err


def test_json_is_the_record_that_the_text_is_made_from():
    printed = topo("--from", "hgx-a100", "nics=4", "--json")
    topology = decode_topology(printed.encode(), "output")
    assert json.loads(printed)["schema_version"] == 1
    text = render_topology(msgspec.structs.replace(topology, source="shape"))
    assert text == topo("--from", "hgx-a100", "nics=4")


def test_this_machine_is_shown():
    assert "cpu0" in topo()


def test_errors_are_railwrights_own():
    for arguments in (["--from", "hgx-h10"], ["--json", "capture", "x"], ["export"], ["export", "--nccl-xml", "--from",
                      "laptop"], ["--from", "laptop", "--svg", "/no/such/dir/x.svg"]):  # fmt: skip
        with pytest.raises(UsageError):
            CliRunner().invoke(verb.topo, arguments, catch_exceptions=False)


def test_an_unreadable_machine_cannot_be_judged(tmp_path):
    (tmp_path / "sys").mkdir()
    with pytest.raises(CannotJudge):
        CliRunner().invoke(verb.topo, ["--from", str(tmp_path)], catch_exceptions=False)


@pytest.mark.machine
def test_capture_command(tmp_path):  # asks the tools of whatever MPI is installed here
    output = topo("capture", "--redact", str(tmp_path / "here.jsonl"))
    assert "railwright topo --from" in output
    live, again = topo().splitlines(), topo("--from", str(tmp_path / "here.jsonl")).splitlines()
    assert again[0] == "here (capture)"
    assert again[1:] == live[1:]


@pytest.mark.machine
def test_start_up_loads_nothing_heavy():
    heavy = ("msgspec", "rich", "jinja2")
    code = f"import sys, railwright.verbs.topo; print([name for name in {heavy} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize("text", [*(str(archive(name)) for name in NAMES), "hgx-h100", "laptop", "pcie-8gpu nics=32"])
def test_svg_is_well_formed_and_loads_nothing(text):
    svg = render_topology_svg(load(text))
    tree = ET.fromstring(svg)
    assert tree.get("viewBox").startswith("0 0 400 ")
    assert "prefers-color-scheme" in svg
    assert "<script" not in svg
    assert "http" not in svg.replace("http://www.w3.org/2000/svg", "")
    words = " ".join(element.text or "" for element in tree.iter("{http://www.w3.org/2000/svg}text"))
    for device in load(text).of_kind("gpu", "nic", "drive"):
        assert device.id in words


def test_degraded_links_are_marked():
    topology = load(str(archive("8gpu-pcie")))
    assert "gpu6" in next(line for line in render_topology(topology).splitlines() if "could be PCIe 4.0 x16" in line)
    assert "degraded: could be PCIe 4.0 x16" in render_topology_svg(topology)


def test_an_idle_gpus_slow_link_is_not_called_degraded():
    topology = load(str(archive("8gpu-pcie")))
    links = tuple(
        msgspec.structs.replace(link, protocol=msgspec.structs.replace(link.protocol, gt_per_s=2.5))
        if link.b == "gpu0"
        else link
        for link in topology.links
    )
    idle = msgspec.structs.replace(topology, links=links)
    line = next(line for line in render_topology(idle).splitlines() if " gpu0 " in line)
    assert "an idle GPU lowers it" in line
    assert render_topology_svg(idle).count("degraded") == 1  # gpu6, which has too few lanes


def test_affinity_warns_of_acs():
    assert "ACS redirect is on below switch0, switch1" in render_affinity(load(str(archive("8gpu-pcie"))))
    assert "ACS" not in render_affinity(load(str(archive("8xh100-8nic"))))


def nccl(name, **options):
    text = render_nccl_xml(load(str(archive(name))), **options)
    # NCCL's parser: no declaration, no entities, no line break in a tag.
    assert text.startswith("<system version=")
    assert "&" not in text
    assert all(line.strip().startswith("<") and line.strip().endswith(">") for line in text.splitlines())
    return ET.fromstring(text)


def test_nccl_file_has_the_machines_tree():
    system = nccl("8xh100-2nic")
    assert system.get("version") == "1"
    assert [cpu.get("numaid") for cpu in system] == ["0", "1"]
    first = system[0]
    assert {"affinity", "arch", "vendor", "familyid", "modelid"} <= set(first.attrib)
    switch = first[0]
    assert (switch.get("class"), switch.get("busid")) == ("0x060400", "0000:09:00.0")
    gpu, nic = switch
    assert gpu.attrib == {"busid": "0000:0b:00.0", "class": "0x030200", "vendor": "0x10de", "device": "0x2330",
                          "link_speed": "32.0 GT/s PCIe", "link_width": "16"}  # fmt: skip
    assert gpu[0].attrib == {"dev": "0", "sm": "90"}
    assert nic[0][0].attrib == {"name": "mlx5_0", "dev": "0", "speed": "400000", "port": "1"}
    assert len(list(system.iter("gpu"))) == 8
    assert len(list(system.iter("net"))) == 2


def test_nccl_file_has_affinity_masks_of_32_bit_words():
    mask = nccl("8xh100-2nic")[0].get("affinity")
    bits = int(mask.replace(",", ""), 16)
    assert all(len(word) == 8 for word in mask.split(","))
    assert [bits >> cpu & 1 for cpu in (0, 47, 48, 95, 96, 143, 144)] == [1, 1, 0, 0, 1, 1, 0]


def test_nccl_file_knows_lost_lanes_and_unknown_links():
    widths = {pci.get("busid"): pci.get("link_width") for pci in nccl("8gpu-pcie").iter("pci")}
    assert widths["0000:bd:00.0"] == "8"
    topology = load(str(archive("8gpu-pcie")))
    links = tuple(
        msgspec.structs.replace(link, protocol=PcieLink()) if link.b == "gpu0" else link for link in topology.links
    )
    text = render_nccl_xml(msgspec.structs.replace(topology, links=links))
    assert 'link_speed="" link_width="0"' in text


def test_nccl_file_for_a_vm_has_the_vms_addresses():
    guests = {"0000:0b:00.0": "0000:05:00.0", "0000:0c:00.0": "0000:06:00.0"}
    system = nccl("8xh100-2nic", guest_addresses=guests)
    buses = [pci.get("busid") for pci in system.iter("pci")]
    assert buses == ["ffff:00:00.0", "0000:05:00.0", "0000:06:00.0"]
    assert "affinity" not in system[0].attrib
    with pytest.raises(UsageError, match="0000:99"):
        nccl("8xh100-2nic", guest_addresses={"0000:99:00.0": "0000:05:00.0"})
    with pytest.raises(UsageError, match="not a PCI address"):
        nccl("8xh100-2nic", guest_addresses={"0000:0b:00.0": "x"})


def test_nccl_file_needs_gpus_and_addresses():
    for text in ("laptop", "hgx-h100"):
        with pytest.raises(UsageError):
            render_nccl_xml(load(text))


def test_export_writes_a_file(tmp_path):
    topo("export", "--nccl-xml", str(tmp_path / "t.xml"), "--from", str(archive("8gpu-pcie")))
    assert ET.parse(tmp_path / "t.xml").getroot().tag == "system"

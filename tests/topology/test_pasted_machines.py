"""Machines as people paste them: the text of `nvidia-smi topo -m`, and the XML that NCCL dumps."""

from __future__ import annotations

from pathlib import Path

import pytest

from railwright.errors import UsageError
from railwright.report.formats.nccl_xml import render_nccl_xml
from railwright.topology.devices import EthernetLink, InfinibandLink, NvlinkLink, PcieLink, Topology
from railwright.topology.matrix import parse_matrix
from railwright.topology.paths import Affinity
from railwright.topology.sources.load import load

ROOT = Path(__file__).parents[2]
TOPO_M = ROOT / "testdata/explain/machines/topo-m-8xh100.txt"
DUMP = """<system version="1">
  <cpu numaid="0" affinity="ffff" arch="x86_64" vendor="GenuineIntel" familyid="6" modelid="143">
    <pci busid="0000:16:00.0" class="0x060400" link_speed="32.0 GT/s PCIe" link_width="16">
      <pci busid="0000:19:00.0" class="0x030200" link_speed="32.0 GT/s PCIe" link_width="16">
        <gpu dev="0" sm="90" rank="0" gdr="1"><nvlink target="0000:05:00.0" count="18" tclass="0x068000"/></gpu>
      </pci>
      <pci busid="0000:1a:00.0" class="0x020700" link_speed="32.0 GT/s PCIe" link_width="16">
        <nic><net name="mlx5_0" dev="0" speed="400000" port="1" guid="0x1" maxconn="131072" gdr="1"/></nic>
      </pci>
    </pci>
  </cpu>
  <cpu numaid="1" affinity="ff0000" arch="x86_64" vendor="GenuineIntel" familyid="6" modelid="143">
    <pci busid="0000:99:00.0" class="0x030200" link_speed="16.0 GT/s PCIe" link_width="8">
      <gpu dev="1" sm="90" rank="1" gdr="1"><nvlink target="0000:05:00.0" count="18" tclass="0x068000"/></gpu>
    </pci>
  </cpu>
</system>
"""


def written(tmp_path: Path, text: str, name: str = "machine.xml") -> str:
    (tmp_path / name).write_text(text, encoding="utf-8")
    return str(tmp_path / name)


def kinds(topology: Topology) -> dict[tuple[str, str], str | None]:
    near = Affinity(topology)
    return {(gpu.id, nic.id): near.kind(gpu.id, nic.id) for gpu in near.gpus for nic in near.nics}


def test_a_matrix_gives_trees_sockets_and_nvlinks() -> None:
    machine = load(f"{TOPO_M} gpu=H100 nic-rate=400Gb/s")
    found = kinds(machine)
    assert [found[item] for item in (("gpu0", "nic0"), ("gpu0", "nic1"), ("gpu7", "nic3"), ("gpu4", "nic0"))] == [
        "PXB", "PHB", "PXB", "SYS",
    ]  # fmt: skip
    nvlinks = [link.protocol for link in machine.links if isinstance(link.protocol, NvlinkLink)]
    assert nvlinks == [NvlinkLink(generation=4, links=18)] * 8
    ports = [link.protocol for link in machine.links if isinstance(link.protocol, InfinibandLink)]
    assert [port.line_rate_bits_per_s for port in ports] == [400e9] * 4, "mlx5_bond_0 is nearest to no GPU"
    assert machine.of_kind("nic")[0].facts["rdma_device"] == "mlx5_0"


def test_facts_missing_from_a_matrix_are_unknown_with_a_hint() -> None:
    machine = load(str(TOPO_M))
    assert [item.what for item in machine.unknown] == ["the model of the GPUs", "NIC4", "the rate of the NICs"]
    with pytest.raises(UsageError, match="must be a known GPU"):
        load(f"{TOPO_M} gpu=H9000")
    with pytest.raises(UsageError, match="nics"):
        load(f"{TOPO_M} nics=2")


def test_a_truncated_matrix_reports_its_missing_rows(tmp_path: Path) -> None:
    whole = TOPO_M.read_text(encoding="utf-8")
    cut = whole[: whole.index("\nGPU6 ")]
    unknown = {item.what for item in load(written(tmp_path, cut, "cut.txt")).unknown}
    assert "which NICs are near gpu6, gpu7" in unknown
    assert not any("which NICs are near" in item.what for item in load(str(TOPO_M)).unknown)


def test_a_matrix_is_found_among_other_lines_with_any_names_and_without_numa_nodes() -> None:
    text = "> \tGPU0\tGPU1\tmlx5_bond_0\tCPU Affinity\n> GPU0\t X \tPHB\tSYS\t0-63\n> GPU1\tPHB\t X \tSYS\t0-63\n"
    found = parse_matrix("GPU 0: NVIDIA A100-PCIE-40GB (UUID: GPU-1)\nGPU0 is up\n" + text)
    assert found is not None
    assert (found.names, found.models) == (("GPU0", "GPU1", "mlx5_bond_0"), ("NVIDIA A100-PCIE-40GB",))
    assert isinstance(found.port, EthernetLink)
    for broken in ("GPU0 GPU1\nGPU0 X\n", "GPU0\tGPU0\nGPU0 X X\n", "GPU0\tGPU1\nGPU0 X OK\n", "no GPU0 here"):
        assert parse_matrix(broken) is None, broken


def test_a_dump_gives_rates_widths_and_links(tmp_path: Path) -> None:
    machine = load(written(tmp_path, DUMP))
    assert kinds(machine) == {("gpu0", "nic0"): "PIX", ("gpu1", "nic0"): "SYS"}
    (nvlink,) = {link.protocol for link in machine.links if isinstance(link.protocol, NvlinkLink)}
    assert nvlink == NvlinkLink(generation=4, links=18)
    (port,) = [link.protocol for link in machine.links if isinstance(link.protocol, InfinibandLink)]
    assert port.line_rate_bits_per_s == 400e9
    assert machine.of_kind("gpu")[1].facts["compute_capability"] == "9.0"
    assert machine.unknown == ()


def test_our_own_export_is_read_back(tmp_path: Path) -> None:
    before = load(str(ROOT / "testdata/hosts/8xh100-8nic/machine.jsonl"))
    after = load(written(tmp_path, render_nccl_xml(before)))
    assert kinds(after) == kinds(before)
    assert {item.what for item in after.unknown} == {f"NVLink of gpu{number}" for number in range(8)}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (DUMP[:-20], "not well-formed XML"),
        ('<!DOCTYPE s [<!ENTITY a "b">]>' + DUMP, "declaration"),
        ("<system><cpu numaid='0'/></system>", "neither a GPU nor a NIC"),
        ("<system><cpu>" + "<pci class='0x060400'>" * 40 + "</pci>" * 40 + "</cpu></system>", "more than 24 times"),
        (DUMP.replace("<system", "<²system"), "neither a directory"),
        ("nothing of that kind", "neither a directory"),
    ],
)
def test_a_damaged_file_is_refused(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        load(written(tmp_path, text))


def test_a_matrix_takes_drives_their_generation_and_the_lack_of_peer_access() -> None:
    machine = load(f"{TOPO_M} gpu=H100 nic-rate=400Gb/s p2p=off drives=4 drive-pcie=5.0")
    drives = [link.protocol for link in machine.links if link.b.startswith("nvme")]
    assert drives == [PcieLink(gt_per_s=32.0, width=4)] * 4
    assert {drive.numa for drive in machine.of_kind("drive")} == {0, 1}
    assert not machine.joins_gpus
    assert machine.of_kind("host")[0].facts["peer_to_peer"] is False
    for wrong, message in (
        ("drive-pcie=5", "drive-pcie needs the number of drives"),
        ("drives=99", "drives must be 0 to 32, got 99"),
        ("p2p=perhaps", "p2p must be on, off, got perhaps"),
        ("nics=4", "there is no change to the output of nvidia-smi topo -m named 'nics'"),
    ):
        with pytest.raises(UsageError) as caught:
            load(f"{TOPO_M} {wrong}")
        assert message in caught.value.message

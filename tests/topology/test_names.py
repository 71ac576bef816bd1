"""Names that people use for machines: every known spelling, also with other case, dashes and vendors."""

from __future__ import annotations

import itertools
from collections import Counter

import pytest

from railwright.errors import UsageError
from railwright.topology.shapes import SHAPES, canonical_name
from railwright.topology.shapes.catalogue import CATALOGUE
from railwright.topology.sources.load import load

SPELT = {
    "GB200 NVL72": "gb200-nvl72", "8xH100": "hgx-h100", "DGX H100": "dgx-h100", "dgx_h100": "dgx-h100",
    "H100": "hgx-h100", "H200": "hgx-h200", "B200": "hgx-b200", "B300": "hgx-b300", "A100": "hgx-a100",
    "p6-b200": "aws-p6-b200", "a3-megagpu-8g": "gcp-a3-mega", "a3-ultragpu-8g": "gcp-a3-ultra",
    "a4-highgpu-8g": "gcp-a4", "BM.GPU.B4.8": "oci-bm-gpu-b4-8", "BM.GPU.MI300X.8": "oci-bm-gpu-mi300x-8",
    "ND H100 v5": "azure-nd-h100-v5", "L40S": "pcie-8gpu", "RTX 4090": "rtx-4090-8gpu", "H20": "hgx-h20",
    "GB300": "gb300-nvl72", "MI250X": "mi250x", "MI300A": "mi300a", "MI325X": "mi325x", "MI355X": "mi355x",
    "H100 NVL": "h100-nvl-8gpu", "H100 PCIe": "h100-pcie-8gpu", "A100 PCIe 40GB": "a100-pcie-40gb-8gpu",
    "A100 PCIe 80": "a100-pcie-80gb-8gpu", "V100 32": "dgx-1-v100", "H800": "hgx-h800", "A800": "hgx-a800",
    "RTX 6000 Ada": "rtx-6000-ada-8gpu", "RTX PRO 6000": "rtx-pro-6000-8gpu", "quad GH200": "quad-gh200",
    "DGX Spark": "dgx-spark", "p5.48xlarge": "aws-p5", "Standard_ND96isr_H100_v5": "azure-nd-h100-v5",
    "8 x H100": "hgx-h100", "4x GH200": "quad-gh200", "AWS p5en": "aws-p5en", "MI300X": "mi300x",
    "8x H100 SXM": "hgx-h100", "HGX H100": "hgx-h100", "a3 mega": "gcp-a3-mega", "GB300 NVL72": "gb300-nvl72",
}  # fmt: skip


NAMED = {
    "l4-8gpu": ("L4", "nvidia l4", "8x L4"), "a10-8gpu": ("A10", "NVIDIA A10", "8xA10"),
    "a30-8gpu": ("A30", "nvidia-a30", "8x A30"), "a40-8gpu": ("A40", "NVIDIA A40", "8xa40"),
    "t4-8gpu": ("T4", "Tesla T4", "8x T4"), "rtx-a6000-8gpu": ("A6000", "RTX A6000", "8x NVIDIA RTX A6000"),
    "rtx-a5000-8gpu": ("A5000", "rtx_a5000", "NVIDIA RTX A5000"),
    "rtx-4000-ada-8gpu": ("RTX 4000 Ada", "rtx-4000-ada", "NVIDIA RTX 4000 Ada Generation"),
    "rtx-2080-ti-8gpu": ("2080 Ti", "RTX 2080Ti", "NVIDIA GeForce RTX 2080 Ti"),
    "p100-pcie-8gpu": ("P100", "Tesla P100", "P100-PCIE-16GB"),
    "v100-pcie-8gpu": ("V100 PCIe", "Tesla V100-PCIE-32GB", "8x V100 PCIe"),
    "h200-nvl-8gpu": ("H200 NVL", "NVIDIA H200 NVL", "8x h200-nvl"),
    "h800-pcie-8gpu": ("H800 PCIe", "NVIDIA H800 PCIe", "8x H800 PCIe"),
    "a800-pcie-8gpu": ("A800 PCIe", "NVIDIA A800 80GB PCIe", "a800_pcie"),
    "hgx-h100-94gb-4gpu": ("H100 94GB", "H100 SXM5 94GB", "4x H100 94GB"),
    "hgx-a100-64gb-4gpu": ("A100 64GB", "NVIDIA A100-SXM-64GB", "Leonardo"),
    "mi100-8gpu": ("MI100", "AMD Instinct MI100", "8x MI100"), "mi210-8gpu": ("MI210", "Instinct MI210", "8xMI210"),
    "mi308x": ("MI308X", "AMD MI308X", "8x MI308X"), "mi350x": ("MI350X", "AMD Instinct MI350X", "8x MI350X"),
    "gaudi3-8gpu": ("Gaudi 3", "8x Intel Gaudi 3", "HL-325L"),
    "vera-rubin-nvl72": ("Vera Rubin", "VR200 NVL72", "Vera Rubin NVL144"),
    "aws-p6e-gb200": ("p6e-gb200", "p6e-gb200.36xlarge", "AWS P6e-GB200"),
    "aws-p6e-gb300": ("p6e-gb300", "p6e-gb300.36xlarge", "ec2 p6e gb300"),
    "aws-p5-4xlarge": ("p5.4xlarge", "P5 4xlarge", "aws p5.4xlarge"),
    "aws-g5": ("g5", "g5.48xlarge", "aws g5"), "aws-g6e": ("g6e", "g6e.48xlarge", "AWS G6e"),
    "azure-nd-gb300-v6": ("ND GB300 v6", "Standard_ND128isr_GB300_v6", "nd-gb300-v6"),
    "gcp-a4x": ("a4x", "a4x-highgpu-4g", "Google A4X"), "gcp-a4x-max": ("a4x-max", "a4x-maxgpu-4g-metal", "A4X Max"),
    "oci-bm-gpu-gb200-4": ("BM.GPU.GB200.4", "bm gpu gb200 4", "OCI BM.GPU.GB200.4"),
    "oci-bm-gpu-mi355x-8": ("BM.GPU.MI355X.8", "bm-gpu-mi355x-8", "OCI BM.GPU.MI355X.8"),
    "oci-bm-gpu-gb300-4": ("BM.GPU.GB300.4", "bm_gpu_gb300_4", "OCI BM.GPU.GB300.4"),
    "oci-bm-gpu-l40s-4": ("BM.GPU.L40S.4", "bm.gpu.l40s.4", "oracle BM.GPU.L40S.4"),
    "gh200-nvl2": ("dual GH200", "GH200 NVL2", "2x GH200"),
    "gb200-nvl4": ("GB200 NVL4", "gb200_nvl4", "NVIDIA GB200 NVL4"),
    "grace-cpu-superchip": ("Grace CPU Superchip", "grace-cpu", "NVIDIA Grace CPU"),
    "hgx-a100-4gpu": ("4x A100", "HGX A100 4-GPU", "4xA100 SXM4"),
    "hgx-h100-4gpu": ("4x H100", "HGX H100 4-GPU", "H100 x4"),
    "hgx-a100-40gb": ("A100 40GB", "A100-SXM4-40GB", "gpu:nvidia_a100-sxm4-40gb:8"),
    "hgx-a100-40gb-4gpu": ("4x A100 40GB", "HGX A100 40GB 4-GPU", "gpu:nvidia_a100-sxm4-40gb:4"),
    "dgx-1-v100-16gb": ("V100 16GB", "Tesla V100-SXM2-16GB", "gpu:v100-16gb:8"),
    "v100-pcie-16gb-8gpu": ("V100 PCIe 16GB", "Tesla V100-PCIE-16GB", "8x V100 PCIe 16GB"),
    "v100-sxm2-16gb-4gpu": ("4x V100 16GB", "4x Tesla V100-SXM2-16GB", "four V100 16GB"),
    "v100-sxm2-4gpu": ("4x V100", "4xV100 SXM2", "4x Tesla V100-SXM2-32GB"),
}  # fmt: skip


def test_every_machine_that_users_name_is_found_in_three_spellings():
    found = {written: load(written).name for names in NAMED.values() for written in names}
    assert found == {written: name for name, names in NAMED.items() for written in names}


def test_a_board_of_four_gpus_has_no_nvswitch_and_a_host_of_eight_keeps_it():
    boards = [name for boards in CATALOGUE.names.boards.values() for name in boards.values()]
    assert not [name for name in boards if load(name).of_kind("nvswitch")]
    assert load("hgx-h100 gpus=4", by_board=False).of_kind("nvswitch")
    counts = Counter(end for link in load("4x v100").links for end in (link.a, link.b) if link.id.startswith("gpu"))
    assert counts == {f"gpu{number}": 3 for number in range(4)}


def test_a_machine_without_a_model_is_refused_with_the_reason():
    with pytest.raises(UsageError, match="'Gaudi 2' has no shape: only Gaudi 3 is described"):
        load("Gaudi 2")


@pytest.mark.parametrize("written", SPELT)
def test_a_machine_is_found_however_its_name_is_spelt(written):
    separators = [written.translate(dict.fromkeys(map(ord, " _-"), other)) for other in (" ", "-", "_", "")]
    cases = (str.lower, str.upper, str)
    for spelt, case in itertools.product({written, *separators}, cases):
        assert canonical_name(case(spelt)) == SPELT[written], case(spelt)
        assert load(f"{case(spelt)} drives=0").name.split()[0] == SPELT[written]


def test_a_vendor_and_a_number_of_gpus_before_a_name_change_nothing():
    for written, name in (("NVIDIA {}", "H100"), ("nvidia-{}", "h100"), ("8x{}", "H100"), ("8x {}", "h100"),
                          ("8x NVIDIA {}", "H100"), ("AMD Instinct {}", "MI300X"), ("8x{}", "MI300X")):  # fmt: skip
        assert canonical_name(written.format(name)) == canonical_name(name)


@pytest.mark.parametrize(
    ("written", "name"),
    [  # as nvidia-smi, rocm-smi and clouds write them
        ("NVIDIA H100 80GB HBM3", "hgx-h100"), ("NVIDIA A100-SXM4-80GB", "hgx-a100"), ("NVIDIA H200", "hgx-h200"),
        ("NVIDIA A100 80GB PCIe", "a100-pcie-80gb-8gpu"), ("NVIDIA A100-PCIE-40GB", "a100-pcie-40gb-8gpu"),
        ("NVIDIA GH200 480GB", "gh200"), ("Tesla V100-SXM2-32GB", "dgx-1-v100"), ("B200 192GB", "hgx-b200"),
        ("gpu_8x_h100_sxm5", "hgx-h100"), ("8×H100", "hgx-h100"), ("H100x8", "hgx-h100"),  # noqa: RUF001
        ("RTX PRO 6000 Blackwell Server Edition", "rtx-pro-6000-8gpu"), ("MI300X OAM", "mi300x"),
        ("CoreWeave H100", "hgx-h100"), ("H100 SXM5 80GB", "hgx-h100"), ("HGX H100 8-GPU", "hgx-h100"),
    ],
)  # fmt: skip
def test_a_tools_gpu_name_means_its_most_common_machine(written, name):
    assert load(written).name == name


@pytest.mark.parametrize(
    ("written", "name"),
    [
        ("4xH100", "hgx-h100-4gpu"), ("2x H200 nics=2", "hgx-h200 gpus=2 nics=2"), ("H100 x4", "hgx-h100-4gpu"),
        ("HGX H100 4-GPU", "hgx-h100-4gpu"), ("hgx-h100 gpus=4 nics=2", "hgx-h100-4gpu nics=2"),
        ("4x V100", "v100-sxm2-4gpu"), ("v100 gpus=4 nics=1", "v100-sxm2-4gpu nics=1"),
        ("dgx-1-v100 gpus=4", "dgx-1-v100 gpus=4"), ("dgx-h100 gpus=4", "dgx-h100 gpus=4"),
        ("4x A40", "a40-8gpu gpus=4"),
        ("4x RTX 4090", "rtx-4090-8gpu gpus=4"), ("4x 2080 Ti", "rtx-2080-ti-8gpu gpus=4"),
        ("dual 3090", "rtx-3090-8gpu gpus=2"),
        ("gpu:h100:8", "hgx-h100"), ("gres/gpu:a100:4", "hgx-a100-4gpu"), ("gpu:h100:2(S:0-1)", "hgx-h100 gpus=2"),
        ("8 H100s", "hgx-h100"), ("eight H100", "hgx-h100"), ("ml.p5.48xlarge", "aws-p5"),
        ("8x RTX 4090", "rtx-4090-8gpu"),
        ("4xh100 gpus=2", "hgx-h100-4gpu gpus=2"), ("h100 NDR", "hgx-h100 nic-protocol=infiniband nic-rate=400G"),
        ("H20 100G", "hgx-h20 nic-rate=100G"),
    ],
)  # fmt: skip
def test_a_number_of_gpus_is_a_change_and_not_forgotten(written, name):
    assert load(written).name == name


@pytest.mark.parametrize(
    ("written", "suggestion"),
    [
        ("16xH100", "hgx-h100 with --count 2"), ("2x DGX H100", "dgx-h100 with --count 2"),
        ("p5 x2", "aws-p5 with --count 2"), ("72x GB200", "gb200-nvl72 with --count 18"),
        ("hgx-h100 x8", "hgx-h100 with --count 8"),
    ],
)  # fmt: skip
def test_a_name_of_several_hosts_is_refused_with_the_option(written, suggestion):
    with pytest.raises(UsageError, match=f"did you mean {suggestion}"):
        load(written)


@pytest.mark.parametrize(
    ("written", "near"),
    [
        ("MI300", "mi300x"), ("DGX-2", "dgx-1-v100"), ("p3.16xlarge", "aws-p3dn"), ("L40", "pcie-8gpu"),
        ("dual DGX Spark", "dgx-spark with --count 2"), ("XE9680", "hgx-h100"), ("hgx-h100 nisc", "hgx-h100"),
        ("Tesla P100-SXM2-16GB", "p100-pcie-8gpu"), ("Tesla V100S-PCIE-32GB", "v100-pcie-8gpu"),
        ("V100 SXM3", "dgx-1-v100"), ("g5.12xlarge", "aws-g5 with gpus=4"), ("p6e", "aws-p6e-gb300"),
        ("Standard_NC96ads_A100_v4", "a100-pcie-80gb-8gpu with gpus=4"), ("Perlmutter", "hgx-a100-40gb-4gpu"),
    ],
)  # fmt: skip
def test_an_unknown_machine_is_answered_with_suggestions(written, near):
    with pytest.raises(UsageError) as caught:
        load(written)
    assert near in caught.value.hint
    assert caught.value.hint.endswith("?")


def test_every_offer_is_a_shape():
    table = CATALOGUE.names
    assert {name.split(" with ")[0] for names in table.suggestions.values() for name in names} <= set(SHAPES)
    assert {*table.spellings.values(), *(name for boards in table.boards.values() for name in boards.values())} <= set(
        SHAPES
    )
    assert set(table.boards) <= set(SHAPES)


def test_every_canonical_name_means_itself():
    assert all(canonical_name(name) == name for name in SHAPES)
    assert all(canonical_name(name.replace("-", "_").upper()) == name for name in SHAPES)


@pytest.mark.parametrize("written", ["", "8x", "nvidia", "x100", "hgx-h900", "H", "p", "-", "8"])
def test_text_that_is_not_a_name_finds_no_shape(written):
    assert canonical_name(written) is None


def test_an_unknown_name_offers_the_nearest():
    with pytest.raises(UsageError, match=r"did you mean .*hgx-h100"):
        load("HGX H900")


@pytest.mark.parametrize(
    ("changes", "same"),
    [
        ("nic_rate=400G", "nic-rate=400Gb/s"), ("NIC_RATE=400Gbps", "nic-rate=400Gb/s"), ("400G", "nic-rate=400G"),
        ("nic-protocol=IB", "nic-protocol=infiniband"), ("ib", "nic-protocol=infiniband"),
        ("nic_protocol=RoCEv2", "nic-protocol=ethernet"), ("roce", "nic-protocol=ethernet"),
        ("GPUs=4 Nics=2", "gpus=4 nics=2"), ("P2P=OFF", "p2p=off"),
    ],
)  # fmt: skip
def test_changes_accept_common_spellings(changes, same):
    assert load(f"hgx-h100 {changes}").links == load(f"hgx-h100 {same}").links


def test_a_change_given_in_two_spellings_is_refused():
    with pytest.raises(UsageError, match="nic-rate is given twice"):
        load("hgx-h100 nic-rate=400G nic_rate=200G")


def test_peers_can_be_kept_apart_and_gpudirect_taken_away():
    assert not [link for link in load("hgx-h100 p2p=off").links if "nvswitch0" in (link.a, link.b)]
    assert load("hgx-h100 gpudirect=off").device("host0").facts["gpudirect_rdma"] is False
    assert load("rtx-4090-8gpu").device("host0").facts["peer_to_peer"] is False
    assert "peer_to_peer" not in load("rtx-4090-8gpu p2p=on").device("host0").facts


def test_nics_can_be_beyond_the_gpus_switches():
    above = {link.b: link.a for link in load("hgx-h100 nics-at=cpu").links if link.b.startswith("nic")}
    assert all(upper.startswith("root_port") for upper in above.values())


def test_a_rack_can_be_taken_apart():
    assert "nvlink_domain_hosts" not in load("gb200-nvl72 mnnvl=off").device("host0").facts
    with pytest.raises(UsageError, match="NVLink joins no hosts"):
        load("hgx-h100 mnnvl=off")

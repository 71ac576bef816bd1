"""The named machines: sources, names, and their makers' figures for links."""

from collections import Counter
from pathlib import Path

import pytest

from railwright.errors import UsageError
from railwright.limits.limit import Limit
from railwright.limits.path import link_limit
from railwright.report.pictures.topology import render_topology_svg
from railwright.report.text.topology import render_topology
from railwright.topology.devices import (
    GT_PER_S,
    C2cLink,
    EfaLink,
    EthernetLink,
    InfinibandLink,
    NvlinkLink,
    PcieLink,
    XgmiLink,
)
from railwright.topology.expand import expand
from railwright.topology.paths import Affinity, Graph
from railwright.topology.shapes import ALIASES, SHAPES, canonical_name
from railwright.topology.sources.load import load

GB = 1e9
WITH_GPUS = [name for name, shape in SHAPES.items() if shape.layout.gpus]


def gpu_link_bytes_per_s(topology, gpu_id):
    """Return the sum of the limits of a GPU's NVLinks or Infinity Fabric links."""
    total = 0.0
    for link in topology.links:
        if gpu_id in (link.a, link.b) and isinstance(link.protocol, NvlinkLink | XgmiLink):
            limit = link_limit(link)
            assert isinstance(limit, Limit)
            total += limit.value
    return total


def nearest(name, gpu_id="gpu0"):
    """Return (kind, NICs) of the NICs that are nearest to a GPU."""
    affinity = Affinity(load(name))
    found = affinity.nearest(gpu_id)
    return affinity.kind(gpu_id, found[0]), found


@pytest.mark.parametrize("name", WITH_GPUS)
def test_every_gpu_reaches_a_nic_and_every_other_gpu(name):
    topology = expand(name, {})
    affinity = Affinity(topology)
    graph = Graph(topology)
    gpus = [gpu.id for gpu in affinity.gpus]
    assert len(gpus) == SHAPES[name].layout.gpus
    assert len(affinity.nics) == SHAPES[name].layout.nics
    assert all(graph.find(gpus[0], gpu) for gpu in gpus[1:])
    if name == "gaudi3-8gpu":
        return  # its ports are on the accelerators
    assert affinity.nics
    assert all(affinity.nearest(gpu) for gpu in gpus)
    assert all(graph.find(gpu, "fabric0") for gpu in gpus)


@pytest.mark.parametrize("name", SHAPES)
def test_every_device_of_a_machine_names_its_source(name):
    topology = expand(name, {})
    for device in topology.of_kind("cpu", "memory", "pcie_switch", "card", "gpu", "nvswitch", "nic", "drive"):
        assert len(str(device.facts["source"])) > 20, device.id
    for gpu in topology.of_kind("gpu"):
        assert gpu.facts["vendor"] in ("nvidia", "amd", "intel")
        assert gpu.facts["memory_bytes"] >= 11 * 2**30
        assert gpu.facts["hbm_bandwidth_bytes_per_s"] > 250 * GB
        announced = name == "vera-rubin-nvl72"
        assert ("compute_capability" in gpu.facts) == (gpu.facts["vendor"] == "nvidia" and not announced)


@pytest.mark.parametrize("name", SHAPES)
def test_every_machine_can_be_drawn(name):
    topology = expand(name, {})
    text = render_topology(topology)
    assert "connected to no known CPU" not in text
    for device in topology.of_kind("gpu", "nic", "drive"):
        assert f" {device.id}  " in text
    assert render_topology_svg(topology).startswith("<svg")


@pytest.mark.parametrize(
    ("name", "gigabytes"),
    [
        ("aws-p3dn", 150),
        ("hgx-a100", 300),
        ("aws-p4d", 300),
        ("oci-bm-gpu4-8", 300),
        ("hgx-h100", 450),
        ("aws-p5en", 450),
        ("gh200-nvl32", 450),
        ("h100-pcie-8gpu-nvlink", 300),
        ("hgx-b200", 900),
        ("gb200-nvl72", 900),
        ("mi300x", 448),
        ("mi355x", 537.6),
        ("mi300a", 384),
        ("quad-gh200", 450),
        ("hgx-a800", 200),
        ("hgx-h100-4gpu", 450),
        ("hgx-a100-4gpu", 300),
        ("v100-sxm2-4gpu", 150),
        ("gh200-nvl2", 450),
        ("gb200-nvl4", 900),
        ("h200-nvl-8gpu", 450),
        ("vera-rubin-nvl72", 1800),
        ("pcie-8gpu", 0),
        ("gh200", 0),
    ],
)
def test_links_between_gpus_add_up_to_the_makers_figure(name, gigabytes):
    topology = expand(name, {})
    for gpu in topology.of_kind("gpu"):
        assert gpu_link_bytes_per_s(topology, gpu.id) / GB == pytest.approx(gigabytes)


def test_dies_of_mi250x_are_joined_as_those_of_frontier():
    topology = expand("mi250x", {})
    links = {(link.a, link.b): link.protocol.links for link in topology.links if isinstance(link.protocol, XgmiLink)}
    assert Counter(links.values()) == {4: 4, 2: 2, 1: 6}
    assert [links[(f"gpu{die}", f"gpu{die + 1}")] for die in (0, 2, 4, 6)] == [4] * 4
    assert set(Counter(end for pair in links for end in pair).values()) == {3}
    half = expand("mi250x", {"gpus": "4"})
    assert len([link for link in half.links if isinstance(link.protocol, XgmiLink)]) == 4  # those among dies 0 to 3


# nvidia-smi topo -m of such machines and the vendors' own NCCL topology files
@pytest.mark.parametrize(
    ("name", "kind", "count"),
    [
        ("hgx-h100", "PIX", 1),
        ("hgx-b200", "PIX", 1),
        ("dgx-a100", "PIX", 2),
        ("aws-p3dn", "PHB", 1),
        ("aws-p4d", "PIX", 1),
        ("aws-p5", "PIX", 4),
        ("aws-p5en", "PIX", 2),
        ("azure-nd-a100-v4", "PIX", 2),
        ("azure-nd-h100-v5", "PIX", 1),
        ("oci-bm-gpu4-8", "PIX", 4),
        ("oci-bm-gpu-h100-8", "PIX", 2),
        ("gh200", "P2C", 1),
        ("gb200-nvl72", "P2C", 2),
        ("mi300x", "PIX", 1),
        ("rtx-pro-6000-8gpu", "PIX", 2),
    ],
)
def test_the_nearest_nics_are_as_near_as_documented(name, kind, count):
    found, nics = nearest(name)
    assert (found, len(nics)) == (kind, count)


def test_four_efas_belong_to_each_gpu_of_a_p5():
    affinity = Affinity(expand("aws-p5", {}))
    owned = [nic for gpu in affinity.gpus for nic in affinity.nearest(gpu.id)]
    assert Counter(owned) == Counter({nic.id: 1 for nic in affinity.nics})


def test_two_ports_of_a_card_share_one_pcie_link():
    topology = expand("oci-bm-gpu4-8", {})
    cards = topology.of_kind("card")
    assert len(cards) == 8
    for card in cards:
        below = [link for link in topology.links if link.a == card.id]
        above = [link.protocol for link in topology.links if link.b == card.id]
        assert len(below) == 2
        assert [(link.gt_per_s, link.width) for link in above] == [(16.0, 16)]
        assert not any(isinstance(link.protocol, PcieLink) for link in below)


def test_an_odd_port_has_a_card_of_its_own():
    topology = expand("oci-bm-gpu4-8", {"nics": "3"})
    assert [len([link for link in topology.links if link.a == card.id]) for card in topology.of_kind("card")] == [2, 1]


def test_the_cpu_of_a_p5_is_older_than_its_gpus():
    topology = expand("aws-p5", {})
    uplinks = {link.protocol.gt_per_s for link in topology.links if link.b.startswith("switch")}
    gpus = {link.protocol.gt_per_s for link in topology.links if link.b.startswith("gpu") and link.a[:2] == "sw"}
    assert (uplinks, gpus) == ({GT_PER_S[4]}, {GT_PER_S[5]})
    changed = expand("aws-p5", {"pcie": "5"})
    assert {link.protocol.gt_per_s for link in changed.links if link.b.startswith("switch")} == {GT_PER_S[5]}


def test_grace_reaches_its_gpus_over_c2c_and_not_over_pcie():
    topology = expand("gb200-nvl72", {})
    above = {link.b: link for link in topology.links if link.b.startswith("gpu") and link.a.startswith("cpu")}
    assert {gpu: link.a for gpu, link in above.items()} == {
        "gpu0": "cpu0",
        "gpu1": "cpu0",
        "gpu2": "cpu1",
        "gpu3": "cpu1",
    }
    assert all(isinstance(link.protocol, C2cLink) for link in above.values())
    assert Graph(topology).find("gpu0", "memory0").kind == "C2C"
    assert Graph(topology).find("gpu0", "nic0").kind == Graph(topology).find("nic0", "gpu0").kind == "P2C"


@pytest.mark.parametrize(("name", "hosts"), [("gb200-nvl72", 18), ("gh200-nvl32", 16), ("hgx-h100", None)])
def test_an_nvlink_domain_of_several_hosts_is_a_fact(name, hosts):
    assert expand(name, {}).of_kind("host")[0].facts.get("nvlink_domain_hosts") == hosts
    assert expand(name, {"nvlink": "0"}).of_kind("host")[0].facts.get("nvlink_domain_hosts") is None


def test_one_gpu_of_a_rack_still_has_its_nvlinks_and_one_alone_has_none():
    assert expand("gb200-nvl72", {"gpus": "1"}).of_kind("nvswitch")
    assert not expand("hgx-h100", {"gpus": "1"}).of_kind("nvswitch")


def test_the_cube_mesh_needs_a_hop_over_another_gpu_to_three_of_seven():
    graph = Graph(expand("aws-p3dn", {}))
    for gpu in range(8):
        kinds = Counter(graph.find(f"gpu{gpu}", f"gpu{other}").kind for other in range(8) if other != gpu)
        assert kinds == {"NVL": 4, "NVB": 3}


def test_fewer_gpus_of_a_mesh_keep_the_links_between_them():
    topology = expand("aws-p3dn", {"gpus": "4"})
    pairs = {(link.a, link.b): link.protocol.links for link in topology.links if isinstance(link.protocol, NvlinkLink)}
    assert pairs == {("gpu0", "gpu1"): 1, ("gpu0", "gpu2"): 1, ("gpu0", "gpu3"): 2, ("gpu1", "gpu2"): 2,
                     ("gpu1", "gpu3"): 1, ("gpu2", "gpu3"): 2}  # fmt: skip
    bare = expand("aws-p3dn", {"nvlink": "0"})
    assert not any(isinstance(link.protocol, NvlinkLink) for link in bare.links)


def test_infinity_fabric_joins_every_gpu_to_every_other():
    graph = Graph(expand("mi300x", {}))
    path = graph.find("gpu0", "gpu7")
    assert (path.kind, path.devices) == ("NVL", ("gpu0", "gpu7"))
    assert sum(isinstance(link.protocol, XgmiLink) for link in graph.topology.links) == 28


@pytest.mark.parametrize(
    ("name", "protocol", "kind"),
    [
        ("hgx-h100", "efa", EfaLink),
        ("aws-p5", "infiniband", InfinibandLink),
        ("aws-p5", "ethernet", EthernetLink),
        ("oci-bm-gpu4-8", "efa", EfaLink),
    ],
)
def test_every_machine_accepts_every_protocol(name, protocol, kind):
    links = [link.protocol for link in expand(name, {"nic-protocol": protocol}).links if link.b == "fabric0"]
    assert links
    assert all(isinstance(link, kind) and link.mtu_bytes for link in links)


def test_names_are_in_lower_case_and_aliases_lead_to_them():
    assert all(name == name.lower() for name in SHAPES)
    assert set(ALIASES.values()) <= set(SHAPES)
    assert not {alias.lower() for alias in ALIASES} & set(SHAPES)


@pytest.mark.parametrize(
    ("vendors", "name"),
    [
        ("p5.48xlarge", "aws-p5"),
        ("P4D.24XLARGE", "aws-p4d"),
        ("p3dn.24xlarge", "aws-p3dn"),
        ("Standard_ND96isr_H100_v5", "azure-nd-h100-v5"),
        ("standard_nd96isr_h100_v5", "azure-nd-h100-v5"),
        ("ND96amsr_A100_v4", "azure-ndm-a100-v4"),
        ("BM.GPU4.8", "oci-bm-gpu4-8"),
        ("bm.gpu.h100.8", "oci-bm-gpu-h100-8"),
        ("gb200-nvl", "gb200-nvl72"),
        ("a3-ultragpu-8g", "gcp-a3-ultra"),
        ("HGX-H100", "hgx-h100"),
    ],
)
def test_vendors_names_find_their_machine(vendors, name):
    assert canonical_name(vendors) == name
    topology = load(f"{vendors} drives=0")
    assert topology.name == f"{name} drives=0"
    assert topology.of_kind("host")[0].facts["shape"] == name


@pytest.mark.parametrize(
    ("wrong", "near"),
    [
        ("p5.24xlarge", "p5.48xlarge"),
        ("Standard_ND96isr_H100_v6", "Standard_ND96isr_H100_v5"),
        ("bm.gpu5.8", "BM.GPU4.8"),
        ("gb200-nvl36", "gb200-nvl72"),
    ],
)
def test_near_names_of_vendors_are_offered(wrong, near):
    for answer in (load, lambda name: expand(name, {})):
        with pytest.raises(UsageError) as caught:
            answer(wrong)
        assert wrong in caught.value.message
        assert near in caught.value.hint


def test_the_page_of_shapes_names_every_one_and_every_alias():
    page = (Path(__file__).resolve().parents[2] / "docs" / "shapes.md").read_text(encoding="utf-8")
    assert [name for name in (*SHAPES, *ALIASES) if f"`{name}`" not in page] == []


@pytest.mark.parametrize("hostile", ["x" * 100_000, "\x1b[2J", "İ" * 50, "p5.48xlarge\0", "🦆"])
def test_hostile_names_are_refused_in_short_and_without_control_characters(hostile):
    with pytest.raises(UsageError) as caught:
        expand(hostile, {})
    assert len(str(caught.value)) < 2000
    assert caught.value.message.isprintable()

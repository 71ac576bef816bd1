"""Named shapes, their changes, and saved files."""

import json

import msgspec
import pytest

from railwright.errors import UsageError
from railwright.topology.expand import expand
from railwright.topology.paths import Affinity, Graph
from railwright.topology.plan import CHANGES
from railwright.topology.shapes import SHAPES
from railwright.topology.sources.load import load
from railwright.topology.sources.saved import decode_topology, encode_topology, load_topology

from .machines import NAMES, archive


def affinity_rows(text):
    affinity = Affinity(load(text))
    return {gpu.id: affinity.nearest(gpu.id) for gpu in affinity.gpus}


@pytest.mark.parametrize("name", SHAPES)
def test_every_shape_expands_to_a_connected_machine(name):
    topology = expand(name, {})
    graph = Graph(topology)
    for device in topology.of_kind("gpu", "nic", "drive", "memory"):
        assert graph.find("cpu0", device.id) is not None
    assert topology.unknown == ()


def test_two_nics_go_one_to_each_socket():
    rows = affinity_rows("hgx-h100 nics=2")
    assert [rows[f"gpu{number}"] for number in range(8)] == [("nic0",)] * 4 + [("nic1",)] * 4
    affinity = Affinity(load("hgx-h100 nics=2"))
    assert [affinity.kind(gpu.id, "nic0") for gpu in affinity.gpus] == ["PIX", "PHB", "PHB", "PHB", *["SYS"] * 4]


def test_four_nics_go_one_to_each_switch_of_two_gpus():
    affinity = Affinity(load("hgx-a100 nics=4"))
    near = {
        gpu.id: [nic.id for nic in affinity.nics if affinity.kind(gpu.id, nic.id) == "PIX"] for gpu in affinity.gpus
    }
    assert near == {f"gpu{number}": [f"nic{number // 2}"] for number in range(8)}


def test_other_pcie_layout_puts_a_nic_under_every_gpus_switch():
    affinity = Affinity(load("hgx-h100 nics=4 gpus-per-switch=2"))
    assert all("PIX" in [affinity.kind(gpu.id, nic.id) for nic in affinity.nics] for gpu in affinity.gpus)


def test_changes_are_made():
    topology = expand("dgx-h100", {"nics": "1", "nic-rate": "800Gb/s", "nic-protocol": "ethernet", "mtu": "4200",
                                   "pcie": "4", "nvlink": "12", "drives": "0", "gpus": "4"})  # fmt: skip
    links = {link.b if link.a != "nic0" else "port": link.protocol for link in topology.links}
    assert (links["port"].line_rate_bits_per_s, links["port"].mtu_bytes, links["port"].rdma) == (800e9, 4200, True)
    nvlinks = [link.protocol for link in topology.links if link.a == "nvswitch0"]
    assert len(topology.of_kind("gpu")) == 4
    assert {(link.links, link.max_links) for link in nvlinks} == {(12, 18)}
    assert topology.of_kind("drive") == ()
    assert {link.protocol.gt_per_s for link in topology.links if link.b == "nic0"} == {16.0}


def test_machines_without_gpus_or_nics_work():
    assert expand("hgx-h100", {"gpus": "0", "nics": "0", "drives": "0"}).of_kind("gpu", "nic", "drive", "fabric") == ()
    assert len(expand("hgx-h100", {"gpus": "0"}).of_kind("nic")) == 8
    assert len(expand("laptop", {"nics": "3"}).of_kind("nic")) == 3


@pytest.mark.parametrize(
    ("name", "changes", "message"),
    [
        ("hgx-h100", {"nics": "-1"}, "got -1"),
        ("hgx-h100", {"nics": "9999"}, "got 9999"),
        ("hgx-h100", {"nics": "²"}, "nics must be"),
        ("hgx-h100", {"gpus": "many"}, "got many"),
        ("hgx-h100", {"sockets": "3"}, "got 3"),
        ("hgx-h100", {"pcie": "9"}, "got 9"),
        ("hgx-h100", {"nvlink": "19"}, "got 19"),
        ("pcie-8gpu", {"nvlink": "4"}, "nvlink=4"),
        ("hgx-h100", {"nic-rate": "fast"}, "fast"),
        ("hgx-h100", {"nic-rate": "0Gb/s"}, "got 0Gb/s"),
        ("hgx-h100", {"nic-rate": "999999Tb/s"}, "nic-rate"),
        ("hgx-h100", {"nic-protocol": "token-ring"}, "token-ring"),
        ("hgx-h100", {"mtu": "9000"}, "got 9000"),
        ("hgx-h100", {"mtu": "5", "nic-protocol": "ethernet"}, "got 5"),
        ("hgx-h100", {"nick": "2"}, "nick"),
        ("laptop", {"gpus": "1"}, "gpus=1"),
        ("hgx-h10", {}, "hgx-h10"),
        ("azure-nd-a100-v4", {"drives": "2"}, "drives=2"),
        ("gb200-nvl72", {"gpus-per-switch": "2"}, "gpus-per-switch=2"),
        ("gb200-nvl72", {"gpus": "3"}, "gpus=3"),
        ("aws-p3dn", {"nvlink": "3"}, "nvlink=3"),
        ("aws-p3dn", {"gpus": "9"}, "gpus=9"),
        ("mi300x", {"nvlink": "1"}, "nvlink=1"),
        ("mi300x", {"gpus": "9"}, "gpus=9"),
        ("aws-p5", {"mtu": "9002"}, "got 9002"),
        ("aws-p5", {"mtu": "64"}, "got 64"),
        ("aws-p5", {"nic-protocol": "srd"}, "got srd"),
        ("P5.48XLARGE", {"nick": "2"}, "nick"),
    ],
)
def test_invalid_changes_are_refused_with_a_hint(name, changes, message):
    with pytest.raises(UsageError) as caught:
        expand(name, changes)
    assert message in caught.value.message
    assert caught.value.hint


@pytest.mark.parametrize("text", ["", "  ", "hgx-h100 nics", "hgx-h100 =2", "hgx-h100 nics=", "hgx-h100 nics=1 nics=2",
                                  "no/such/dir", "nothing.jsonl", "hgx-h101", "a\0b"])  # fmt: skip
def test_invalid_machines_are_refused(text):
    with pytest.raises(UsageError):
        load(text)


@pytest.mark.parametrize("word", ["nics", "nics=", "=2", "="])
def test_a_change_without_its_name_its_value_or_its_sign_is_refused_as_such(word):
    with pytest.raises(UsageError, match=f"^not a change: '{word}'"):
        load(f"hgx-h100 {word}")


@pytest.mark.parametrize(
    ("text", "message", "hint"),
    [
        ("hgx b300 cx8", "not a change: 'cx8'", "nic-rate=800Gb/s"),
        ("hgx-h100 BlueField-3", "not a change: 'BlueField-3'", "nic-rate=400Gb/s"),
        ("hgx-h100 rail_optimized", "not a change: 'rail_optimized'", "rail_optimised is a key of a cluster file"),
        ("hgx-h100 nic foo", "not a change: 'nic', 'foo'", "did you mean nics=VALUE?"),
        ("hgx-h100 all_reduce", "not a change: 'all_reduce'", "--collective all_reduce"),
        ("hgx-h100 qwerty", "not a change: 'qwerty'", "changes are gpus, "),
        ("Dell XE9680", "named 'Dell XE9680'", "hgx-h100, hgx-h200"),
        ("Dell XE9680 nics=4 rail", "named 'Dell XE9680 rail'", "hgx-h100, hgx-h200"),
        ("MI400", "'MI400' is newer than all", "railwright topo capture"),
        ("AMD MI450X", "'AMD MI450X' is newer than all", "railwright topo capture"),
        ("XE9712", "named 'XE9712'", "gb200-nvl72, gb300-nvl72"),
        ("qwertyuiop", "named 'qwertyuiop'", "railwright shapes"),
    ],
)
def test_unknown_words_are_named_with_the_nearest_known(text: str, message: str, hint: str) -> None:
    with pytest.raises(UsageError) as caught:
        load(text)
    assert message in caught.value.message
    assert hint in caught.value.hint
    assert len(caught.value.hint) < 300


def test_near_names_are_offered():
    with pytest.raises(UsageError, match="hgx-h100"):
        load("hgx-h10O")
    with pytest.raises(UsageError, match="nics"):
        load("hgx-h100 nic=2")
    assert set(CHANGES) >= {"gpus", "nics", "nic-rate", "nic-protocol", "mtu", "pcie", "nvlink", "sockets", "drives"}


@pytest.mark.parametrize("text", [*(str(archive(name)) for name in NAMES), *SHAPES])
def test_saved_topologies_come_back(tmp_path, text):
    topology = load(text)
    (tmp_path / "saved.json").write_bytes(encode_topology(topology))
    again = load(str(tmp_path / "saved.json"))
    assert again.source == "saved"
    assert msgspec.structs.replace(again, source=topology.source) == topology


def changed(**fields):
    record = json.loads(encode_topology(expand("laptop", {})))
    record.update(fields)
    return json.dumps(record).encode()


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        (b"", "not a saved topology"),
        (b"[]", "not a saved topology"),
        (b"\xff\xfe", "not a saved topology"),
        (b"[" * 100_000, "not a saved topology"),
        (changed(schema_version=99), "version 99"),
        (changed(surprise=1), "surprise"),
        (changed(devices=[{"id": "x", "kind": "toaster"}], links=[]), "toaster"),
        (changed(devices=[{"id": "\x1b[31m", "kind": "gpu"}], links=[]), "not a device id"),
        (changed(devices=[{"id": "gpu0", "kind": "gpu"}] * 2, links=[]), "two devices"),
        (changed(links=[{"a": "cpu0", "b": "nowhere", "protocol": {"type": "pcie"}}]), "nowhere"),
        (changed(links=[{"a": "cpu0", "b": "cpu0", "protocol": {"type": "pcie"}}]), "itself"),
        (changed(links=[{"a": "cpu0", "b": "nic0", "protocol": {"type": "pcie", "width": -1}}]), "width"),
        (changed(links=[{"a": "cpu0", "b": "nic0", "protocol": {"type": "pcie", "width": 0}}]), "width"),
    ],
)
def test_broken_files_are_refused(raw, message):
    with pytest.raises(UsageError) as caught:
        decode_topology(raw, "file.json")
    assert message in str(caught.value)
    assert "file.json" in str(caught.value)


def test_oversized_files_are_refused_unread(tmp_path):
    with (tmp_path / "big.json").open("wb") as stream:
        stream.truncate(65 * 2**20)
    with pytest.raises(UsageError, match="larger than"):
        load_topology(tmp_path / "big.json")

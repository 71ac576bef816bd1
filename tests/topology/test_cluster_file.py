"""The cluster file: its content, and errors with the file, the value seen and the next step."""

from __future__ import annotations

import json
import os
from pathlib import Path

import msgspec
import pytest
from tests.schemas import fits

from railwright.errors import UsageError
from railwright.topology.cluster import build_cluster, split_id
from railwright.topology.sources.cluster_file import load_cluster
from railwright.topology.sources.cluster_text import MAX_CLUSTER_FILE_BYTES
from railwright.topology.sources.load import load
from railwright.topology.sources.saved import encode_topology

PLAIN = 'hosts = 4\nhost = "hgx-h100"\n'


@pytest.fixture
def written(tmp_path: Path):
    """Return a function that writes a cluster file in its own folder."""

    def write(text: str | bytes, name: str = "cluster.toml") -> Path:
        folder = tmp_path / "clusters"
        folder.mkdir(exist_ok=True)
        file = folder / name
        file.write_bytes(text.encode() if isinstance(text, str) else text)
        return file

    return write


def refused(file: Path) -> str:
    """Return the error for a file, after a check that every character of it prints."""
    with pytest.raises(UsageError) as caught:
        load_cluster(file)
    assert caught.value.hint
    assert all(char.isprintable() for char in caught.value.message + caught.value.hint)
    return caught.value.message


FULL = """
name = "three tiers"
hosts = 64
host = "hgx-h100 nics=4"

[fabric]
rail_optimised = true
in_network_reduction = true

[[fabric.tiers]]
name = "leaf"
hosts = 16
oversubscription = 2.0

[[fabric.tiers]]
name = "spine"
hosts = 64
switches = 8

[storage]
servers = 4
host = "laptop drives=12"
"""


def test_every_key_is_read(written) -> None:
    found = load_cluster(written(FULL))
    assert (found.name, found.hosts, found.gpus_per_host, found.ranks) == ("three tiers", 64, 8, 512)
    assert len(found.host.of_kind("nic")) == 4
    assert found.fabric.rail_optimised
    assert found.fabric.in_network_reduction
    assert [(tier.name, tier.hosts, tier.oversubscription, tier.switches) for tier in found.fabric.tiers] == [
        ("leaf", 16, 2.0, None),
        ("spine", 64, 1.0, 8),
    ]
    assert found.storage is not None
    servers, server = found.storage
    assert (servers, len(server.of_kind("drive"))) == (4, 12)


def test_toml_and_json_give_equal_clusters_that_fit_the_schema(written) -> None:
    as_toml = msgspec.toml.decode(FULL.encode())
    fits(as_toml, "cluster")
    text = json.dumps(as_toml)
    for name in ("c.json", "C.JSON", "c", "c.txt"):
        assert load_cluster(written(text, name)) == load_cluster(written(FULL))


def test_a_cluster_without_a_name_is_named_after_its_hosts(written) -> None:
    assert load_cluster(written(PLAIN)).name == "hgx-h100"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "missing required field `hosts`"),
        ("hosts = 4", "missing required field `host`"),
        (PLAIN + "hostz = 3", "unknown field `hostz`"),
        (PLAIN + "[fabric]\ntier = 3", "unknown field `tier` - at `$.fabric`"),
        (PLAIN + "[[fabric.tiers]]\nhosts = 4\noversubscripton = 2.0", "unknown field `oversubscripton`"),
        ('hosts = "4"\nhost = "hgx-h100"', "Expected `int`, got `str` - at `$.hosts`"),
        ('hosts = 4.5\nhost = "hgx-h100"', "Expected `int`, got `float`"),
        ('hosts = true\nhost = "hgx-h100"', "Expected `int`, got `bool`"),
        ("hosts = 4\nhost = 8", "Expected `str`, got `int` - at `$.host`"),
        (PLAIN + "fabric = []", "Expected `object`, got `array`"),
        (PLAIN + "hosts = 5", "Cannot overwrite a value"),
        ("hosts = ", "Invalid value"),
        ("[" * 400_000, "is not a cluster file"),
        ("a=" + "[" * 400_000, "is not a cluster file"),
        (b'hosts = 2\nhost = "\xff\xfe"', "byte 19 is not UTF-8"),
    ],
)
def test_invalid_cluster_files_are_refused_with_the_position(written, text, message) -> None:
    file = written(text)
    error = refused(file)
    assert error.startswith(f"{file} is not a cluster file: ")
    assert message in error


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"hosts": 4, "host": "hgx-h100",}', "trailing comma"),
        ('{"hosts": 4, "host": "hgx-h100"', "truncated"),
        ('{"hosts": 1e400, "host": "hgx-h100"}', "out of range"),
        ('{"a":' * 200_000, "is not a cluster file"),
    ],
)
def test_broken_json_is_refused(written, text, message) -> None:
    assert message in refused(written(text, "c.json"))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('hosts = 0\nhost = "hgx-h100"', "hosts must be 1 to 1000000, got 0"),
        ('hosts = -4\nhost = "hgx-h100"', "hosts must be 1 to 1000000, got -4"),
        ('hosts = 1000000000\nhost = "hgx-h100"', "hosts must be 1 to 1000000, got 1000000000"),
        ('hosts = 4\nhost = "hgx-h100 nics=0"', "has no NIC port, so its 4 hosts cannot be connected"),
        (PLAIN + "[[fabric.tiers]]\nhosts = 2", "joins 2 of 4 hosts: the rest are disconnected"),
        (PLAIN + "[[fabric.tiers]]\nhosts = 0", "tier 0 (leaf) joins 0 hosts"),
        (PLAIN + "[[fabric.tiers]]\nhosts = -4", "tier 0 (leaf) joins -4 hosts"),
        (PLAIN + "[[fabric.tiers]]\nhosts = 4\n[[fabric.tiers]]\nhosts = 2", "tier 1 (leaf) joins 2 hosts"),
        (PLAIN + "[[fabric.tiers]]\nhosts = 3\n[[fabric.tiers]]\nhosts = 4", "tier 1 (leaf) joins 4 hosts"),
        (PLAIN + "[[fabric.tiers]]\nhosts = 4\n" * 5, "at most 4 tiers, got 5"),
        (PLAIN + "[[fabric.tiers]]\nhosts = 4\noversubscription = -1.0", "an oversubscription of -1.0"),
        (PLAIN + "[[fabric.tiers]]\nhosts = 4\noversubscription = 0.0", "an oversubscription of 0.0"),
        (PLAIN + "[[fabric.tiers]]\nhosts = 4\noversubscription = nan", "an oversubscription of nan"),
        (PLAIN + "[[fabric.tiers]]\nhosts = 4\noversubscription = inf", "an oversubscription of inf"),
        (PLAIN + "[[fabric.tiers]]\nhosts = 4\nswitches = 0", "has 0 switches"),
        (PLAIN + '[storage]\nservers = 0\nhost = "laptop"', "storage servers must be 1 to 100000, got 0"),
        (PLAIN + '[storage]\nservers = 100001\nhost = "laptop"', "storage servers must be 1 to 100000, got 100001"),
    ],
)
def test_invalid_numbers_are_refused_with_the_file(written, text, message) -> None:
    file = written(text)
    error = refused(file)
    assert error.startswith(f"{file}: ")
    assert message in error


@pytest.mark.parametrize(
    ("host", "message"),
    [
        ("hgx-h100 nic-rate=-400Gb/s", "not a rate: '-400Gb/s'"),
        ("hgx-h100 nics=-1", "got -1"),
        ("hgx-h100 speed=9", "no change named 'speed'"),
        ("hgx-h101", "named 'hgx-h101'"),
        ("\x1b[31mhgx", "named '?[31mhgx'"),
    ],
)
def test_an_unknown_shape_as_host_is_refused(written, host, message) -> None:
    assert message in refused(written(json.dumps({"hosts": 2, "host": host}), "c.json"))
    stored = {"hosts": 2, "host": "hgx-h100", "storage": {"servers": 1, "host": host}}
    assert message in refused(written(json.dumps(stored), "c.json"))


def test_a_saved_topology_next_to_the_file_can_be_the_host(written, tmp_path: Path, monkeypatch) -> None:
    file = written('hosts = 2\nhost = "saved.json"')
    (file.parent / "saved.json").write_bytes(encode_topology(load("hgx-h100 nics=2")))
    monkeypatch.chdir(tmp_path)
    assert len(load_cluster(file).host.of_kind("nic")) == 2
    monkeypatch.chdir(file.parent)
    assert len(load_cluster(Path("cluster.toml")).host.of_kind("nic")) == 2
    below = file.parent / "below"
    below.mkdir()
    (below / "saved.json").write_bytes(encode_topology(load("hgx-h100 nics=4")))
    deeper = written('hosts = 2\nhost = "below/saved.json"', "deeper.toml")
    assert len(load_cluster(deeper).host.of_kind("nic")) == 4


def test_nothing_outside_the_file_s_folder_is_read(written, tmp_path: Path, monkeypatch) -> None:
    """The host may not be above the folder, absolute, behind a link, or this machine, whatever the working
    directory.
    """
    (tmp_path / "saved.json").write_bytes(encode_topology(load("hgx-h100")))
    file = written(PLAIN)
    (file.parent / "link.json").symlink_to(tmp_path / "saved.json")
    (file.parent / "loop.json").symlink_to("loop.json")
    below = file.parent / "below"
    below.mkdir()
    hosts = ["../saved.json", str(tmp_path / "saved.json"), "link.json", "loop.json", "below/../../saved.json", "/",
             ".", "..", "", "  ", "below/..", "/proc/self/root", "x" * 9000, "a\0b"]  # fmt: skip
    for place in (tmp_path, file.parent, below, Path("/")):
        monkeypatch.chdir(place)
        for host in hosts:
            refused(written(json.dumps({"hosts": 2, "host": host}), "c.json"))


def test_a_file_that_is_its_own_host_ends(written) -> None:
    assert "is not a saved topology" in refused(written('{"hosts": 2, "host": "c.json"}', "c.json"))


@pytest.mark.parametrize("key", ["name", "tier"])
@pytest.mark.parametrize("name", ["a\x1b[31mred", "a\nb", "\u202ereversed", "x" * 81])
def test_unprintable_names_are_never_printed(written, key, name) -> None:
    text = {"hosts": 2, "host": "hgx-h100"}
    where = {"name": name} if key == "name" else {"fabric": {"tiers": [{"name": name, "hosts": 2}]}}
    assert "is too long or has characters that do not print" in refused(written(json.dumps(text | where), "c.json"))
    assert "unknown field" in refused(written(json.dumps({name: 1} | text), "c.json"))


def test_a_file_that_is_too_large_is_refused(written) -> None:
    assert "larger than 1 MiB" in refused(written(PLAIN + "#" * MAX_CLUSTER_FILE_BYTES))
    load_cluster(written(PLAIN + "#" * (MAX_CLUSTER_FILE_BYTES - len(PLAIN))))


def test_special_files_are_refused_at_once(written, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo.toml")
    assert "is not a regular file" in refused(tmp_path / "fifo.toml")
    assert "is a folder" in refused(tmp_path)
    assert "does not exist" in refused(tmp_path / "nowhere.toml")
    assert "is not a regular file" in refused(Path("/dev/zero"))


def test_a_device_id_may_end_in_a_host_number() -> None:
    cluster = build_cluster(load("hgx-h100"), 100)
    assert split_id("gpu3@17", cluster) == ("gpu3", 17)
    assert split_id("gpu3", cluster) == ("gpu3", 0)
    for text in ("gpu3@100", "gpu3@-1", "gpu3@", "gpu3@1x", "gpu3@99999999", "gpu3@٣"):
        with pytest.raises(UsageError, match="there is no host"):
            split_id(text, cluster)

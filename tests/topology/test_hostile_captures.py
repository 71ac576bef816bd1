"""A capture is somebody else's file: it must not reach outside itself, hang, or cause a traceback."""

import json
import os
import random
import stat
from pathlib import Path

import pytest

from railwright.errors import UsageError
from railwright.report.pictures.topology import render_topology_svg
from railwright.report.text.topology import render_topology
from railwright.topology.devices import Topology
from railwright.topology.sources.load import load
from railwright.topology.sources.look import open_capture
from railwright.topology.sources.machine import discover
from railwright.topology.sources.root import (
    MAX_COMPONENTS,
    ArchiveRoot,
    DirectoryRoot,
    Unreadable,
    printable,
)

from .machines import NAMES, archive, files_of, write_archive, write_tree

CONFIG = "sys/devices/pci0000:00/0000:00:03.0/config"


@pytest.fixture
def captured(tmp_path):
    return write_tree(tmp_path / "capture", files_of("2cpu-firecracker-vm"))


def bytes_read():
    """Return the bytes that this process has read so far, from files and caches alike."""
    (line,) = (line for line in Path("/proc/self/io").read_text().splitlines() if line.startswith("rchar: "))
    return int(line.split()[1])


def directory(path):
    return DirectoryRoot(path, "test")


@pytest.mark.parametrize("target", ["/etc/passwd", "../../../../../etc/passwd", "/proc/self/environ"])
def test_symbolic_links_are_not_followed(captured, target):
    (captured / CONFIG).unlink()
    (captured / CONFIG).symlink_to(target)
    answer = directory(captured).read_bytes(CONFIG)
    assert answer == Unreadable(CONFIG, "is a symbolic link")
    assert "root:" not in render_topology(load(str(captured)))


def test_a_linked_directory_is_not_entered(captured, tmp_path):
    secret = tmp_path / "secret" / "0000:00:09.0"
    secret.mkdir(parents=True)
    (secret / "vendor").write_text("0x10de")
    (captured / "sys/devices/pci0000:09").symlink_to(secret.parent)
    root = directory(captured)
    assert isinstance(root.list("sys/devices/pci0000:09"), Unreadable)
    assert isinstance(root.read("sys/devices/pci0000:09/0000:00:09.0/vendor"), Unreadable)


def test_fifos_sockets_and_devices_are_not_opened(captured):
    for name in ("vendor", "class", "numa_node"):
        (captured / CONFIG).with_name(name).unlink()
        os.mkfifo((captured / CONFIG).with_name(name))
    assert directory(captured).read(CONFIG.replace("config", "vendor")) == Unreadable(
        CONFIG.replace("config", "vendor"), "is not a regular file"
    )
    assert isinstance(load(str(captured)), Topology)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root makes device nodes")
def test_a_device_node_is_not_read(captured):
    (captured / CONFIG).unlink()
    try:
        os.mknod(captured / CONFIG, stat.S_IFCHR | 0o666, os.makedev(1, 5))  # /dev/zero
    except PermissionError:
        pytest.skip("this container makes no device nodes")
    assert directory(captured).read_bytes(CONFIG) == Unreadable(CONFIG, "is not a regular file")


@pytest.mark.parametrize(
    "path", ["../etc/passwd", "/etc/passwd", "sys/../../etc/passwd", "", ".", "sys//devices", "a\0b", "x" * 300]
)
def test_absolute_and_unclean_paths_are_refused(captured, path):
    root = directory(captured)
    assert isinstance(root.read(path), Unreadable)
    assert isinstance(root.list(path), Unreadable)


def test_archive_paths_cannot_leave_the_archive(tmp_path):
    file = tmp_path / "bad.jsonl"
    paths = ["../../etc/cron.d/x", "/etc/passwd", "sys/../../x", "a\u0000b", "a" * 300, "/".join("d" * 100)]
    lines = [json.dumps({"path": path, "text": "x"}) for path in paths]
    file.write_text("\n".join([*lines, '{"path": "sys/devices/x", "text": "1"}']))
    root = ArchiveRoot(file, "bad")
    assert len(root.refused) == len(paths)
    assert root.read("sys/devices/x") == "1"
    assert [entry for entry in tmp_path.iterdir() if entry != file] == []


def test_a_huge_sparse_file_is_refused_unread(captured):
    with (captured / CONFIG).open("wb") as stream:
        stream.truncate(10 * 2**30)
    before = bytes_read()
    assert directory(captured).read_bytes(CONFIG) == Unreadable(CONFIG, "is larger than 1 MiB")
    load(str(captured))
    assert 0 < bytes_read() - before < 2**30


def test_a_directory_with_very_many_entries_is_refused(tmp_path):
    bus = tmp_path / "sys/devices/pci0000:00"
    bus.mkdir(parents=True)
    (bus / "file").write_text("")
    for number in range(21_000):
        os.link(bus / "file", bus / f"entry{number}")
    root = directory(tmp_path)
    answer = root.list("sys/devices/pci0000:00")
    assert isinstance(answer, Unreadable)
    assert "entries" in answer.reason
    assert any("pci0000:00" in item.what for item in discover(root, "capture").unknown)


def test_a_million_lines_are_cut_short(tmp_path):
    file = tmp_path / "many.jsonl"
    file.write_text("\n".join(f'{{"path":"sys/{number}","text":""}}' for number in range(1_000_000)))
    topology = load(str(file))
    assert any("more than" in item.why for item in topology.unknown)


def test_deep_nesting_ends(tmp_path):
    files = {}
    path = "sys/devices/pci0000:00"
    for number in range(60):
        path += f"/0000:{number:02x}:00.0"
        files.update({f"{path}/vendor": b"0x8086", f"{path}/device": b"1", f"{path}/class": b"0x060400"})
        if number > MAX_COMPONENTS - 8:
            break
    topology = load(str(write_archive(tmp_path / "deep.jsonl", files)))
    assert any("bridges above" in item.why for item in topology.unknown)
    nested = tmp_path / "json.jsonl"
    nested.write_text('{"path":' + "[" * 200_000 + "\n")
    with pytest.raises(UsageError, match="has neither sys nor proc"):
        load(str(nested))


@pytest.mark.parametrize("garbage", [b"\0" * 100, b"\xff\xfe\x00garbage", bytes(range(256)), b"", b"9" * 5000, b"-1"])
@pytest.mark.parametrize("name", ["2cpu-firecracker-vm", "8gpu-pcie"])
def test_garbage_in_every_file_is_survived(tmp_path, name, garbage):
    files = dict.fromkeys(files_of(name), garbage)
    topology = load(str(write_archive(tmp_path / "garbage.jsonl", files)))
    assert topology.unknown
    text = render_topology(topology)
    assert "\x00" not in text
    assert "\x1b" not in text
    render_topology_svg(topology)


def test_every_kind_of_file_can_be_garbage_alone(tmp_path):
    whole = files_of("8gpu-pcie")
    rng = random.Random(2)
    names = sorted({path.rpartition("/")[2] for path in whole})
    for name in names:
        noise = rng.randbytes(300)
        files = {path: noise if path.rpartition("/")[2] == name else raw for path, raw in whole.items()}
        topology = load(str(write_archive(tmp_path / "noise.jsonl", files)))
        render_topology(topology)


@pytest.mark.parametrize("seed", range(200))
def test_any_files_may_be_missing(tmp_path, seed):
    rng = random.Random(seed)
    name = NAMES[seed % len(NAMES)]
    share = rng.choice([0.01, 0.1, 0.5, 0.9])
    files = {path: raw for path, raw in files_of(name).items() if rng.random() > share}
    files["sys/devices/left"] = b""
    topology = load(str(write_archive(tmp_path / f"{name}.jsonl", files)))
    assert topology.of_kind("cpu")
    assert topology.unknown
    assert render_topology(topology)
    render_topology_svg(topology)


def test_terminal_escapes_in_names_are_shown_as_text(tmp_path):
    files = files_of("8gpu-pcie")
    model = next(path for path in files if path.endswith("/model"))
    files[model] = b"\x1b]0;owned\x07<script>alert(1)</script>"
    topology = load(str(write_archive(tmp_path / "escape.jsonl", files)))
    assert "\x1b" not in render_topology(topology)
    assert "\x07" not in render_topology(topology)
    assert "<script" not in render_topology_svg(topology)


def test_printable_keeps_lines():
    assert printable(b"a\nb\tc\x1b[1m\n") == "a\nb\tc?[1m"


@pytest.mark.parametrize("content", [b"", b"\n\n", b"{}", b"\x00\x01", b'{"path": 1}', b'{"path": "x", "base64": "!"}'])
def test_an_archive_of_nothing_is_refused(tmp_path, content):
    file = tmp_path / "nothing.jsonl"
    file.write_bytes(content)
    with pytest.raises(UsageError):
        load(str(file))


@pytest.mark.parametrize("manifest", [b"[]", b'{"note": "\xff"}', b"[" * 100_000])
def test_an_invalid_manifest_is_reported(tmp_path, manifest):
    files = {**files_of("2cpu-firecracker-vm"), "capture.json": manifest}
    topology = load(str(write_archive(tmp_path / "machine.jsonl", files)))
    assert any((item.what, item.why) == ("capture.json", "is not a manifest") for item in topology.unknown)


def test_a_fifo_as_archive_is_refused(tmp_path):
    os.mkfifo(tmp_path / "pipe.jsonl")
    with pytest.raises(UsageError, match="not a regular file"):
        open_capture(tmp_path / "pipe.jsonl")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_permission_denied_is_reported(captured):
    (captured / CONFIG).chmod(0)
    assert directory(captured).read(CONFIG) == Unreadable(CONFIG, "permission denied")


def test_the_archive_of_every_machine_has_no_refused_line():
    for name in NAMES:
        assert open_capture(archive(name)).refused == []

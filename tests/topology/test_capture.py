"""A capture shows the same machine again, and a redacted one does not identify it."""

import base64
import json
import re

import msgspec
import pytest

from railwright.errors import UsageError
from railwright.topology.sources import smbios
from railwright.topology.sources.capture import PATTERNS, capture
from railwright.topology.sources.counters import find_counters, read_counters, subtract_counters
from railwright.topology.sources.load import damage, load
from railwright.topology.sources.look import open_capture
from railwright.topology.sources.machine import discover
from railwright.topology.sources.memory import TABLE
from railwright.topology.sources.pci_config import EXTENDED_SERIAL_NUMBER, extended_capabilities
from railwright.topology.sources.redact import Redactor
from railwright.topology.sources.root import live_root

from .machines import NAMES, archive, files_of, write_archive

SECRET_MAC, SECRET_GUID = "b8:ce:f6:aa:bb:cc", "b8ce:f603:00aa:bbcc"
SECRET_UUID, SECRET_HOST, SECRET_IP = "7a1b2c3d-1111-2222-3333-9f8e7d6c5b4a", "gpu-node-0815", "10.20.30.40"
SECRETS = (SECRET_MAC, SECRET_GUID, SECRET_UUID, SECRET_HOST, SECRET_IP, "8C001100", "Asset-1100", "SN-EXAMPLE-0001",
           "fe80::1234:5678", "b8cef6aabbcc", "hunter2", "tok-secret", "buildd@example")  # fmt: skip


def without_origin(topology):
    return msgspec.structs.replace(topology, name="", source="live")


@pytest.mark.parametrize("redact", [False, True])
@pytest.mark.parametrize("suffix", ["", ".jsonl"])
def test_capture_of_this_machine_shows_this_machine(tmp_path, suffix, redact):
    destination = tmp_path / f"here{suffix}"
    done = capture(live_root(), destination, redact=redact)
    again = load(str(destination))
    assert again.source == "capture"
    assert without_origin(again) == without_origin(done.topology)


@pytest.mark.parametrize("name", NAMES)
def test_capture_of_a_capture_is_the_same_machine(tmp_path, name):
    root = open_capture(archive(name))
    capture(root, tmp_path / "again", redact=True)
    assert without_origin(load(str(tmp_path / "again"))) == without_origin(discover(root, "live"))


def secret_machine(tmp_path):
    files = files_of("8gpu-pcie")
    device = next(path.rpartition("/")[0] for path in files if path.endswith("eth2/mtu"))
    files[device.rpartition("/")[0] + "/enxb8cef6aabbcc/mtu"] = b"1500\n"
    files[device.rpartition("/")[0] + "/enxb8cef6aabbcc/dev_port"] = b"1\n"
    files["proc/cmdline"] = (
        f"root=UUID={SECRET_UUID} ip={SECRET_IP}::10.0.0.1 iommu=pt password=hunter2 token=tok-secret"
        f" host={SECRET_HOST}\n"
    ).encode()
    files["proc/1/cgroup"] = f"0::/kubepods/pod{SECRET_UUID}\n".encode()
    model = next(path for path in files if path.endswith("nvme0/model"))
    files[model] = f"Drive {SECRET_MAC} {SECRET_GUID} {SECRET_HOST} {SECRET_IP} fe80::1234:5678\n".encode()
    files["sys/devices/virtual/dmi/id/chassis_asset_tag"] = b"Asset-1100\n"
    return write_archive(tmp_path / f"{SECRET_HOST}.jsonl", files)


def test_redaction_leaves_no_secret(tmp_path):
    root = open_capture(secret_machine(tmp_path))
    assert root.name == SECRET_HOST
    plain, redacted = tmp_path / "plain.jsonl", tmp_path / "redacted.jsonl"
    capture(root, plain, redact=False)
    capture(root, redacted, redact=True)
    before, after = everything(plain), everything(redacted)
    assert all(secret.encode() in before for secret in SECRETS if "SN-" not in secret)
    found = [secret for secret in SECRETS if secret.encode().lower() in after.lower()]
    assert found == []


def everything(file):
    """Return all paths and all contents, including those of binary files."""
    parts = []
    for line in file.read_text().splitlines():
        entry = json.loads(line)
        content = base64.b64decode(entry["base64"]) if "base64" in entry else entry["text"].encode()
        parts += [entry["path"].encode(), content]
    return b"\n".join(parts)


def test_redaction_is_consistent_and_keeps_what_is_needed(tmp_path):
    root = open_capture(secret_machine(tmp_path))
    capture(root, tmp_path / "out", redact=True)
    model = next((tmp_path / "out").rglob("nvme0/model")).read_text()
    netdev = next(path for path in (tmp_path / "out").rglob("enx*") if path.is_dir()).name
    mac = re.search(r"02:00:00:[0-9a-f:]{8}", model).group()
    assert netdev == "enx" + mac.replace(":", "")
    assert (tmp_path / "out/proc/cmdline").read_text() == "iommu=pt\n"
    assert load(str(tmp_path / "out")).of_kind("gpu")


def test_serial_numbers_in_binary_data_are_replaced(tmp_path):
    root = open_capture(archive("8gpu-pcie"))
    capture(root, tmp_path / "out", redact=True)
    serials = set()
    for config in (tmp_path / "out").rglob("config"):
        raw = config.read_bytes()
        for identifier, offset in extended_capabilities(raw):
            if identifier == EXTENDED_SERIAL_NUMBER:
                serials.add(int.from_bytes(raw[offset + 4 : offset + 12], "little"))
    assert len(serials) > 10
    assert max(serials) < 1000
    table = (tmp_path / "out" / TABLE).read_bytes()
    kinds = [structure.kind for structure in smbios.structures(table)]
    assert 1 not in kinds  # system information holds the serial number and the UUID
    assert kinds.count(smbios.MEMORY_DEVICE) == 16
    assert b"SERIAL-" in table


def test_only_declared_files_are_captured(tmp_path):
    for name in NAMES:
        capture(open_capture(archive(name)), tmp_path / f"{name}.jsonl", redact=False)
        for line in (tmp_path / f"{name}.jsonl").read_text().splitlines():
            path = json.loads(line)["path"]
            assert path == "capture.json" or PATTERNS.fullmatch(path)
            assert not path.endswith(("serial", "address", "node_guid"))


def test_existing_destinations_are_refused(tmp_path):
    (tmp_path / "full").mkdir()
    (tmp_path / "full/file").write_text("x")
    (tmp_path / "file.jsonl").write_text("x")
    for destination in ("full", "file.jsonl", "full/file"):
        with pytest.raises(UsageError):
            capture(open_capture(archive("8gpu-pcie")), tmp_path / destination, redact=False)
    assert (tmp_path / "file.jsonl").read_text() == "x"


def test_a_capture_keeps_the_reasons_of_unreadable_files(tmp_path):
    files = files_of("8gpu-pcie")
    del files[TABLE]
    files["capture.json"] = json.dumps({"unreadable": {TABLE: "permission denied"}}).encode()
    topology = load(str(write_archive(tmp_path / "denied.jsonl", files)))
    why = {item.what: item.why for item in topology.unknown}
    assert "permission denied" in why["memory channels and speed"]


def test_counters_of_a_captured_machine():
    root = open_capture(archive("8xh100-8nic"))
    counters = read_counters(root)
    assert counters["rdma.mlx5_0.1.symbol_error"] == 0
    assert counters["rdma.mlx5_7.1.out_of_sequence"] == 0
    assert counters["net.ib3.rx_bytes"] == 0


def test_counters_of_this_machine():
    root = live_root()
    counters = read_counters(root, find_counters(root))
    assert counters["net.lo.rx_bytes"] >= 0
    assert counters["tcp.RetransSegs"] >= 0


def test_moved_counters():
    before = {"a": 5, "b": 7, "reset": 100, "gone": 1}
    after = {"a": 5, "b": 10, "reset": 3, "new": 2}
    assert subtract_counters(before, after) == {"b": 3, "reset": 3, "new": 2}
    assert subtract_counters(before, before) == {}


@pytest.mark.parametrize("cut", ["within a line", "between two lines"])
def test_a_capture_that_was_cut_off_is_named(tmp_path, cut):
    whole = tmp_path / "whole.jsonl"
    capture(open_capture(archive(NAMES[0])), whole, redact=False)
    assert damage(load(str(whole))) == ""
    raw = whole.read_bytes()
    middle = raw.index(b"\n", len(raw) // 2) + 1
    part = tmp_path / "part.jsonl"
    part.write_bytes(raw[: middle + 9 if cut == "within a line" else middle])
    assert re.fullmatch(r"part is not a whole capture: the archive has \d+ of its \d+ files: it was cut off",
                        damage(load(str(part))))  # fmt: skip


def test_the_names_of_control_groups_are_taken_out_and_their_quotas_stay():
    files = {
        "proc/self/cgroup": b"4:cpu,cpuacct:/kubepods/pod-of-alice\n3:memory:/kubepods/pod-of-alice\n0::/kubepods/x\n",
        "sys/fs/cgroup/cpu,cpuacct/kubepods/pod-of-alice/cpu.cfs_quota_us": b"50000\n",
        "sys/fs/cgroup/kubepods/x/cpu.max": b"max 100000\n",
    }
    assert all(PATTERNS.fullmatch(path) for path in files)
    redactor = Redactor(())
    redacted = {redactor.redact_path(path): redactor.redact(path, content).decode() for path, content in files.items()}
    groups = redacted.pop("proc/self/cgroup")
    assert not re.search("alice|kubepods|memory", groups + " ".join(redacted))
    first, second = (line.split(":", 2) for line in groups.splitlines())
    assert redacted == {
        f"sys/fs/cgroup/{first[1]}{first[2]}/cpu.cfs_quota_us": "50000\n",
        f"sys/fs/cgroup{second[2]}/cpu.max": "max 100000\n",
    }

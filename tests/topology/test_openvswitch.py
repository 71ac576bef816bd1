"""Open vSwitch's database as ovsdb-server 3.1.0 wrote it: only one setting is read and kept."""

import json

import pytest

from railwright.topology.sources.capture import capture
from railwright.topology.sources.load import load
from railwright.topology.sources.look import open_capture
from railwright.topology.sources.openvswitch import DATABASES, reduce_database

from .machines import files_of, write_archive

ROW = "e620305b-e0eb-4c7b-b7ab-47fbfe7eb930"
FORMAT = {"capture.json": json.dumps({"format": 2}).encode()}


def log(*columns, diff=True):
    """Return a record for each column set, as the server appends them after the schema."""
    text = 'OVSDB JSON 12345 97d2\n{"name":"Open_vSwitch","tables":{"Open_vSwitch":{"columns":{}}}}\n'
    for column in columns:
        record = {"_date": 1795535162141, "Open_vSwitch": {ROW: column}, "_comment": "ovs-vsctl"}
        text += f"OVSDB JSON 338 1511\n{json.dumps({**record, '_is_diff': True} if diff else record)}\n"
    return text.encode()


def config(**pairs):
    return {"other_config": ["map", [[key.replace("_", "-"), value] for key, value in pairs.items()]]}


def setting(tmp_path, raw, where=DATABASES[0]):
    path = write_archive(tmp_path / "machine.jsonl", {**files_of("8gpu-pcie"), **FORMAT, where: raw})
    return load(str(path)).of_kind("host")[0].facts.get("ovs_hw_offload"), path


@pytest.mark.parametrize(
    ("raw", "value"),
    [
        (log({}), "false"),
        (log(config(hw_offload="true", tc_policy="none"), {"external_ids": ["map", [["a", "b"]]]}), "true"),
        (log(config(hw_offload="true"), config(max_idle="1000")), "true"),
        (log(config(hw_offload="true"), config(hw_offload="false")), "false"),
        (log(config(hw_offload="true"), config(hw_offload="true")), "false"),  # the same pair again takes it away
        (log(config(hw_offload="true"), config(max_idle="1"), diff=False), "false"),
        (log(config(hw_offload="true"), config(hw_offload="true"), diff=False), "true"),
        (b"OVSDB CLUSTER 12 34\n{}\n", None),
        (b"OVSDB JSON 12 34\n{broken\n", None),
        (b"", None),
    ],
)
def test_the_last_record_decides_the_setting(tmp_path, raw, value):
    assert setting(tmp_path, raw)[0] == value
    assert setting(tmp_path, raw, DATABASES[1])[0] == value


def test_a_machine_without_open_vswitch_has_no_setting(tmp_path):
    machine = load(str(write_archive(tmp_path / "machine.jsonl", {**files_of("8gpu-pcie"), **FORMAT})))
    assert machine.of_kind("host")[0].facts["ovs_hw_offload"] == "none"


def test_a_capture_keeps_nothing_else_of_the_database(tmp_path):
    value, path = setting(tmp_path, log(config(hw_offload="true", psk="swordfish")))
    capture(open_capture(path), tmp_path / "again.jsonl", redact=False)
    assert load(str(tmp_path / "again.jsonl")).of_kind("host")[0].facts["ovs_hw_offload"] == value == "true"
    held = (tmp_path / "again.jsonl").read_text()
    assert "swordfish" not in held
    assert ROW not in held
    assert reduce_database(b"anything else") == b""

"""The machines of testdata/hosts, and small topologies for the path rules."""

import base64
import json
from pathlib import Path

from railwright.topology.devices import Device, Link, Topology

HOSTS = Path(__file__).resolve().parents[2] / "testdata" / "hosts"
NAMES = sorted(folder.name for folder in HOSTS.iterdir() if folder.is_dir())


def archive(name):
    return HOSTS / name / "machine.jsonl"


def files_of(name):
    """Return path to bytes of a machine's capture."""
    files = {}
    for line in archive(name).read_text().splitlines():
        entry = json.loads(line)
        files[entry["path"]] = base64.b64decode(entry["base64"]) if "base64" in entry else entry["text"].encode()
    return files


def write_archive(file, files):
    lines = [json.dumps({"path": path, "base64": base64.b64encode(raw).decode()}) for path, raw in files.items()]
    file.write_text("\n".join(lines) + "\n")
    return file


def write_tree(base, files):
    for path, raw in files.items():
        (base / path).parent.mkdir(parents=True, exist_ok=True)
        (base / path).write_bytes(raw)
    return base


def topology(kinds, links):
    """Build a topology: `kinds` maps ids to device kinds; `links` are (a, b, protocol) or (a, b, protocol, one_way)."""
    devices = tuple(Device(id=name, kind=kind) for name, kind in kinds.items())
    made = tuple(Link(a=link[0], b=link[1], protocol=link[2], one_way=len(link) > 3) for link in links)
    return Topology(name="test", source="shape", devices=devices, links=made)

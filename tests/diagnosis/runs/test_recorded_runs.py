"""The archived runs of real machines, judged again: healthy machines are never slow, slowed ones always are."""

from __future__ import annotations

import functools
import tarfile
from collections import Counter

import pytest

from railwright.benchmarks.registry import DECLARATIONS
from railwright.diagnosis.runs.diagnose import diagnose
from railwright.results.readers.ucx.protocols import EMULATION
from railwright.results.store import load

MOST_UNKNOWN = 12


@functools.cache
def archived(subject, part, folder):
    """Return the judged runs of an archive whose names contain the part."""
    found = {}
    file = subject if subject.endswith(".xz") else f"docs/measured/{subject}/records.tar.xz"
    with tarfile.open(file) as archive:
        for member in archive:
            if part in member.name and member.name.endswith(".jsonl"):
                path = folder / member.name.replace("/", "-")
                path.write_bytes(archive.extractfile(member).read())
                found[member.name] = diagnose(load(path), DECLARATIONS)
    return found


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("archived")


def is_emulated(path):
    return path.headline is not None and any(one.value.startswith(EMULATION) for one in path.headline.evidence)


def test_a_whole_run_on_two_gpus_leaves_little_unknown_and_calls_nothing_slow_but_what_is_emulated(folder):
    runs = archived("2xh200", "/prove-0/", folder) | archived(
        "testdata/measured/proofs-2xh200.tar.xz", "/prove-0/", folder
    )
    assert len(runs) == 3
    for name, diagnosis in runs.items():
        states = Counter(path.verdict.state for path in diagnosis.paths)
        assert states["unknown"] <= MOST_UNKNOWN, name
        assert states["reference"] == 15, name
        assert not states["suspicious"] + states["failed"], name
        slow = [path for path in diagnosis.paths if path.verdict.state == "slow"]
        assert all(map(is_emulated, slow)), name
        assert slow == [path for path in diagnosis.paths if is_emulated(path)], name
        assert all(path.verdict.needs for path in diagnosis.paths if path.verdict.state == "unknown"), name


def test_a_whole_run_of_three_launches_on_four_healthy_gpus_is_ok(folder):
    ((_, diagnosis),) = archived("testdata/measured/proofs-4xh200.tar.xz", "/prove-0/", folder).items()
    states = Counter(path.verdict.state for path in diagnosis.paths)
    assert states == {"ok": 165, "reference": 22, "waived": 6}


@pytest.mark.parametrize(
    ("subject", "parts"),
    [
        ("1xh100", ("/lat/", "/copy/")),
        ("4xh200", ("/gpu_latency", "/gpu_copy-")),
        ("8xh200", ("/gpu_latency", "/gpu_copy")),
    ],
)
def test_copies_and_loads_of_healthy_gpus_are_never_slow(folder, subject, parts):
    for part in parts:
        found = archived(subject, part, folder)
        states = Counter(path.verdict.state for diagnosis in found.values() for path in diagnosis.paths)
        assert states["ok"] > states["unknown"] + states["reference"]
        assert not states["slow"] + states["suspicious"] + states["failed"]


def test_key_value_caches_between_processes_are_judged(folder):
    found = archived("host-paths", "kv-cache/", folder)
    states = Counter(path.verdict.state for diagnosis in found.values() for path in diagnosis.paths)
    assert (len(found), set(states)) == (5, {"ok", "reference"})

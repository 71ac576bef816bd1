"""The cause of a launcher's failure: from any line of its output, and from the limits of this machine."""

from __future__ import annotations

import os
import resource
from pathlib import Path
from types import SimpleNamespace

import pytest

from railwright.launch import causes
from railwright.launch.blame import summarize_end
from railwright.process import ChildResult

OUTPUTS = {
    "a process exceeded the memory limit": "slurmstepd: error: Detected 1 oom_kill event in StepId=7.0",
    "a file system is full": "It appears as if there is not enough space for /dev/shm/sm_segment (the shared-memory",
    "too many files are open": "[proxy:0@host] HYDU_create_process: pipe error (Too many open files)",
    "too many processes or threads run": "RuntimeError: can't start new thread",
    "the time limit of the job is over": "slurmstepd: error: *** STEP 7.0 ON n1 CANCELLED DUE TO TIME LIMIT ***",
    "memory cannot be allocated": "mmap: Cannot allocate memory",
}


@pytest.mark.parametrize("cause", OUTPUTS)
def test_the_cause_is_found_in_any_line(cause):
    output = ["-----", OUTPUTS[cause], "prterun: some consequence", "the last line"]
    said = summarize_end(ChildResult(returncode=1, output=output))
    assert f"probably because {cause}" in said


def test_without_a_known_cause_the_first_errors_are_shown():
    output = ["a banner", "open of /x failed: first", "then this could not start", "error: third", "goodbye"]
    said = summarize_end(ChildResult(returncode=1, output=output))
    assert said == "exit status 1, its output: 'open of /x failed: first; then this could not start'"


def test_a_program_that_cannot_be_started_is_named():
    words = ["prterun was unable to launch the specified application as it could not", "access an executable:"]
    output = ["-----", *words, "", "Executable: /root/python", "Node: a", "-----"]
    said = summarize_end(ChildResult(returncode=183, output=output))
    assert said.endswith("could not access an executable: Executable: /root/python'")


def observed(monkeypatch, tmp_path: Path, *, up=True, free=2**30, limit=1024, kills=0) -> str:
    monkeypatch.setattr(causes, "_is_loopback_up", lambda: up)
    monkeypatch.setattr(causes, "_SHARED_MEMORY", tmp_path)
    monkeypatch.setattr(causes.tempfile, "gettempdir", lambda: str(tmp_path))
    found = SimpleNamespace(f_bavail=free // 4096, f_frsize=4096, f_flag=0)
    monkeypatch.setattr(os, "statvfs", lambda _path: found)
    monkeypatch.setattr(resource, "getrlimit", lambda _limit: (limit, limit))
    monkeypatch.setattr(causes, "count_memory_kills", lambda: kills)
    monkeypatch.setattr(causes, "_read_cgroup", lambda *_names: "")
    return " and ".join(causes.observe())


def test_the_limits_of_either_version_of_cgroups_are_read(monkeypatch, tmp_path):
    mine = tmp_path / "cgroup"
    real = Path.read_text
    monkeypatch.setattr(causes, "_CGROUPS", tmp_path)
    monkeypatch.setattr(
        Path, "read_text", lambda path, *words: real(mine if str(path) == "/proc/self/cgroup" else path, *words)
    )
    for folder, name, text in (
        ("job", "memory.events", "low 0\noom_kill 3\n"),
        ("memory/old", "memory.oom_control", "oom_kill_disable 0\nunder_oom 0\noom_kill 5\n"),
        ("job", "pids.max", "6\n"),
        ("pids/old", "pids.max", "max\n"),
    ):
        (tmp_path / folder).mkdir(parents=True, exist_ok=True)
        (tmp_path / folder / name).write_text(text)
    for text, kills, is_limited in (
        ("0::/job\n", 3, True),
        ("4:cpu,memory:/old\n8:pids:/old\n0::/\n", 5, False),  # cpu,memory is mounted as memory alone
        ("4:memory:/gone\n0::/job\n", 3, True),
        ("", 0, False),
    ):
        mine.write_text(text)
        assert causes.count_memory_kills() == kills, text
        assert ("the limit of its cgroup is 6 processes (pids.max)" in list(causes.observe())) == is_limited, text


def test_what_this_machine_lacks_is_observed(monkeypatch, tmp_path):
    assert not observed(monkeypatch, tmp_path)
    assert "lo is down" in observed(monkeypatch, tmp_path, up=False)
    assert "has only 64 KiB free" in observed(monkeypatch, tmp_path, free=65536)
    assert "20 open files (ulimit -n) and the limit is 20 processes" in observed(monkeypatch, tmp_path, limit=20)
    assert "the memory limit of its cgroup ended 2 of its processes" in observed(monkeypatch, tmp_path, kills=2)

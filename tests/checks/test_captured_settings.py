"""Checks of captures: a setting that the capture does not hold is never fine."""

import json
import os
import random

import pytest
from tests.topology.machines import files_of, write_archive
from tests.topology.test_settings import SETTINGS, with_settings

from railwright.checks.check import Facts
from railwright.checks.outcome import look_for
from railwright.faults.every_check import EVERY_CHECK
from railwright.topology.sources.load import load

PARTS = 20
SEEDS = (10_000 if os.environ.get("RAILWRIGHT_TEST_LONG") else 300) // PARTS
CHECKS = {check.name: check for check in EVERY_CHECK if not check.needs_results}
FILES = {
    "numa_balancing_on": "proc/sys/kernel/numa_balancing",
    "governor_saves_power": "sys/devices/system/cpu/cpufreq/policy1/scaling_governor",
    "idle_states_deep": "sys/devices/system/cpu/cpu0/cpuidle",
    "huge_pages_off": "sys/kernel/mm/transparent_hugepage/enabled",
    "memlock_low": "proc/self/limits",
    "shared_memory_small": "proc/self/mounts",
    "iommu_translates": "sys/kernel/iommu_groups",
}
FINE = {
    **SETTINGS,
    "proc/sys/kernel/numa_balancing": b"0\n",
    "sys/devices/system/cpu/cpufreq/policy0/scaling_governor": b"performance\n",
    "sys/devices/system/cpu/cpufreq/policy2/scaling_governor": b"performance\n",
    **{f"sys/devices/system/cpu/cpufreq/policy{cpu}/scaling_driver": b"acpi-cpufreq\n" for cpu in range(3)},
    "sys/kernel/mm/transparent_hugepage/enabled": b"always [madvise] never\n",
    "proc/self/limits": b"Max locked memory         unlimited            unlimited            bytes     \n",
    "proc/self/mounts": b"shm /dev/shm tmpfs rw,size=1073741824k 0 0\n",
}


def audited(tmp_path, files):
    machine = load(str(write_archive(tmp_path / "machine.jsonl", files)))
    return {name: look_for(check, Facts(topology=machine)) for name, check in CHECKS.items()}


def test_a_capture_with_all_settings_is_fine(tmp_path):
    told = audited(tmp_path, with_settings(FINE))
    assert {told[name].state for name in FILES} == {"fine"}


@pytest.mark.parametrize("name", FILES)
def test_a_file_that_was_refused_is_not_fine_and_says_why(tmp_path, name):
    path = FILES[name]
    kept = {other: raw for other, raw in FINE.items() if not other.startswith(path)}
    refused = {"format": 2, "unreadable": {path: "permission denied"}}
    told = audited(tmp_path, with_settings(kept, **{"capture.json": json.dumps(refused).encode()}))
    assert told[name].state == "could not look"
    assert "permission denied" in told[name].because
    assert {told[other].state for other in FILES if other != name} == {"fine"}


@pytest.mark.parametrize("name", FILES)
def test_an_older_capture_is_fine_in_none(tmp_path, name):
    told = audited(tmp_path, files_of("8gpu-pcie"))
    assert (told[name].state, "does not hold it" in told[name].because) == ("could not look", True)


@pytest.mark.parametrize("garbage", [b"", b"\xff\xfe\x00", b"maybe\n", b"-\n" * 50, b"\xd9\xa3\n"])
def test_no_check_is_fine_where_its_file_is_garbage(tmp_path, garbage):
    for name, path in FILES.items():
        paths = [one for one in with_settings(FINE) if one.startswith(path) and not one.endswith(("status", "name"))]
        if name == "iommu_translates":
            continue  # only the group's folder is listed here; test_settings covers its contents
        told = audited(tmp_path, with_settings(FINE, **dict.fromkeys(paths, garbage)))
        assert told[name].state in ("could not look", "found"), (name, garbage)


@pytest.mark.parametrize("part", range(PARTS))
def test_broken_captures_break_no_check(tmp_path, part):
    """No check is fine if all files that it reads are broken."""
    for seed in range(part * SEEDS, (part + 1) * SEEDS):
        rng = random.Random(seed)
        files = with_settings(FINE)
        for path in rng.sample([path for path in files if _matters(path)], 12):
            files[path] = _broken(files[path], rng)
        told = audited(tmp_path, files)
        assert {one.state for one in told.values()} <= {"found", "fine", "does not apply", "could not look"}
        assert all(one.findings or one.because for one in told.values() if one.state != "fine"), seed
        for name, path in FILES.items():
            of_it = [one for one in files if one == path]
            unread = of_it and not any(char.isalnum() for char in files[path].decode(errors="replace"))
            assert told[name].state != "fine" or not unread, (seed, name)


def _matters(path):
    return path in FINE or path.endswith(("/config", "/vendor", "fw_ver", "capture.json"))


def _broken(content, rng):
    """Change, remove or insert bytes; sometimes remove all."""
    raw = bytearray(content)
    for _ in range(rng.randint(1, 4)):
        raw[rng.randrange(len(raw) or 1) : rng.randrange(len(raw) + 1)] = rng.randbytes(rng.randint(0, 5))
    return b"" if rng.random() < 0.1 else bytes(raw)

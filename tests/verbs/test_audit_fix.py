"""`audit --fix`: shows one setting first, changes all of its files or none, and restores them."""

import io
import os
import signal
import subprocess
import sys

import pytest
from msgspec.structs import replace
from tests.checks.machines import tuned, with_facts, with_links
from tests.conftest import PATIENCE_S, ROOT, running

from railwright import process
from railwright.checks.check import Facts
from railwright.checks.outcome import look_for
from railwright.faults.every_check import EVERY_CHECK
from railwright.launch import kernel_setting
from railwright.launch.kernel_setting import Write
from railwright.main import run_command
from railwright.process import ChildResult
from railwright.report.text.findings import audit_lines
from railwright.verbs.audit import fix as audit_fix

BALANCING = "proc/sys/kernel/numa_balancing"
GOVERNORS = [f"sys/devices/system/cpu/cpufreq/policy{number}/scaling_governor" for number in range(12)]
BALANCED = with_facts(tuned(), "host", numa_balancing=1)
SLEEPY = with_facts(tuned(), "host", cpu_governor="schedutil", cpu_frequency_driver="acpi-cpufreq")
HOLDER = """
import sys
from pathlib import Path
from railwright.launch.kernel_setting import Write, hold
hold("numa_balancing_on", (Write(sys.argv[2], "1", "0"),), Path(sys.argv[1]), lambda: print("changed", flush=True))
print("given back", flush=True)
"""


@pytest.fixture
def kernel(tmp_path, monkeypatch):
    """A folder that replaces `/`, with the files that the test writes."""
    for file, content in {BALANCING: "1\n", **dict.fromkeys(GOVERNORS, "schedutil\n")}.items():
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / file).write_text(content)
    monkeypatch.setattr(audit_fix, "ROOT", tmp_path)
    monkeypatch.setattr(audit_fix, "load_machine", lambda _: BALANCED)
    return tmp_path


def fixed(capsys, *words):
    status = run_command(["audit", "--fix", *words])
    said = capsys.readouterr()
    return status, said.out, said.err


def test_by_default_it_is_shown_and_nothing_is_changed(kernel, capsys):
    status, text, _ = fixed(capsys, "numa_balancing_on")
    assert status == 1
    assert f"  /{BALANCING}: 1 -> 0\n" in text
    assert "Nothing was changed." in text
    assert (kernel / BALANCING).read_text() == "1\n"
    assert not (kernel / kernel_setting.RECORDS).exists()


def test_it_is_changed_and_given_back(kernel, capsys):
    status, text, _ = fixed(capsys, "numa_balancing_on", "--apply", "--yes")
    assert (status, (kernel / BALANCING).read_text()) == (0, "0\n")
    assert text.index(f"/{BALANCING}: 1 -> 0") < text.index("Changed") < text.index("--undo")
    (kernel / BALANCING).write_text("1\n")
    status, _, error = fixed(capsys, "numa_balancing_on", "--apply", "--yes")
    (kernel / BALANCING).write_text("0\n")
    assert status == 2
    assert "already changed" in error
    status, text, _ = fixed(capsys, "numa_balancing_on", "--undo")
    assert (status, (kernel / BALANCING).read_text()) == (0, "1\n")
    assert f"/{BALANCING}: 0 -> 1" in text
    status, _, error = fixed(capsys, "numa_balancing_on", "--undo")
    assert status == 2
    assert "is not changed" in error


def test_what_somebody_else_changed_since_stays(kernel, capsys):
    fixed(capsys, "numa_balancing_on", "--apply", "--yes")
    (kernel / BALANCING).write_text("2\n")
    status, text, _ = fixed(capsys, "numa_balancing_on", "--undo")
    assert (status, (kernel / BALANCING).read_text()) == (0, "2\n")
    assert "was changed by others since" in text


def test_files_of_all_cpus_are_one_change(kernel, capsys, monkeypatch):
    monkeypatch.setattr(audit_fix, "load_machine", lambda _: SLEEPY)
    status, text, _ = fixed(capsys, "governor_saves_power", "--apply", "--yes")
    assert status == 0
    assert "and 4 more files of the same kind" in text
    assert {(kernel / file).read_text() for file in GOVERNORS} == {"performance\n"}
    fixed(capsys, "governor_saves_power", "--undo")
    assert {(kernel / file).read_text() for file in GOVERNORS} == {"schedutil\n"}


def test_a_file_that_does_not_take_it_leaves_all_as_it_was(kernel):
    writes = (*(Write(file, "schedutil", "performance") for file in GOVERNORS), Write("sys/none", "1", "0"))
    with pytest.raises(Exception, match=r"/sys/none (rejects '0'|cannot be read)"):
        kernel_setting.apply("governor_saves_power", writes, kernel)
    assert {(kernel / file).read_text() for file in GOVERNORS} == {"schedutil\n"}
    assert not list((kernel / kernel_setting.RECORDS).iterdir())


def test_a_link_is_not_followed(kernel):
    (kernel / "sys/elsewhere").write_text("1\n")
    (kernel / "sys/link").symlink_to("elsewhere")
    with pytest.raises(Exception, match="/sys/link rejects '0'"):
        kernel_setting.apply("numa_balancing_on", (Write("sys/link", "1", "0"),), kernel)
    assert (kernel / "sys/elsewhere").read_text() == "1\n"


def test_what_is_fine_or_has_no_one_setting_is_said(kernel, capsys, monkeypatch):
    status, _, error = fixed(capsys, "mtu_small", "--apply", "--yes")
    assert status == 2
    assert "mtu_small is not fixed by a single kernel setting or a command" in error
    status, _, error = fixed(capsys, "numa_balancing_onn")
    assert status == 2
    assert "did you mean numa_balancing_on" in error
    status, _, error = fixed(capsys, "numa_balancing_on", "--from", "hgx-h100")
    assert status == 2
    assert "a single fault of this machine" in error
    monkeypatch.setattr(audit_fix, "load_machine", lambda _: tuned())
    assert fixed(capsys, "numa_balancing_on", "--apply", "--yes")[0] == 0
    monkeypatch.setattr(audit_fix, "load_machine", lambda _: with_facts(tuned(), "host", numa_balancing=None))
    assert fixed(capsys, "numa_balancing_on", "--apply", "--yes")[0] == 3
    assert (kernel / BALANCING).read_text() == "1\n"


IDLE = [f"sys/devices/system/cpu/cpu{cpu}/cpuidle/state{state}" for cpu in (0, 1) for state in (1, 2)]
STAND_IN = """#!/bin/sh
echo "${{0##*/}} $*" >> {log}
case "$*" in *{failing}*) echo refused; exit 3;; esac
"""
NIC = "0000:9d:00.0"


def addressed(machine):
    """Give nic2 its address."""
    devices = (replace(one, address=NIC) if one.id == "nic2" else one for one in machine.devices)
    return replace(machine, devices=tuple(devices))


BROKEN = {
    "numa_balancing_on": BALANCED,
    "governor_saves_power": SLEEPY,
    "huge_pages_off": with_facts(tuned(), "host", thp="never", hugepages_bytes=0),
    "io_uring_off": with_facts(tuned(), "host", io_uring_disabled=2),
    "ptrace_refused": with_facts(tuned(), "host", ptrace_scope=2),
    "idle_states_deep": with_facts(tuned(), "host", idle_state="C6", idle_exit_s=133e-6),
    "shared_memory_small": with_facts(tuned(), "host", dev_shm_bytes=2**26),
    "persistence_off": with_facts(tuned(), "gpu", 3, persistence=False),
    "power_limited": with_facts(tuned(), "gpu", 3, power_limit_w=500.0, power_default_w=700.0),
    "compute_mode_prohibited": with_facts(tuned(), "gpu", 3, compute_mode="prohibited"),
    "relaxed_ordering_off": addressed(with_facts(tuned(), "nic", 2, relaxed_ordering=False)),
    "read_request_small": addressed(with_links(tuned(), "nic2", max_read_request_bytes=512)),
}
GPU = next(one.address for one in tuned().of_kind("gpu") if one.id == "gpu3")
FILES = {
    "numa_balancing_on": ([BALANCING], "1", "0"),
    "governor_saves_power": (GOVERNORS, "schedutil", "performance"),
    "huge_pages_off": (["sys/kernel/mm/transparent_hugepage/enabled"], "never", "madvise"),
    "io_uring_off": (["proc/sys/kernel/io_uring_disabled"], "2", "0"),
    "ptrace_refused": (["proc/sys/kernel/yama/ptrace_scope"], "2", "1"),
    "idle_states_deep": ([f"{state}/disable" for state in IDLE[1::2]], "0", "1"),
}
COMMANDS = {
    "shared_memory_small": ("mount -o remount,size=1073741824 /dev/shm", "mount -o remount,size=67108864 /dev/shm"),
    "persistence_off": (f"nvidia-smi -i {GPU} -pm 1", f"nvidia-smi -i {GPU} -pm 0"),
    "power_limited": (f"nvidia-smi -i {GPU} -pl 700", f"nvidia-smi -i {GPU} -pl 500"),
    "compute_mode_prohibited": (f"nvidia-smi -i {GPU} -c DEFAULT", f"nvidia-smi -i {GPU} -c PROHIBITED"),
    "relaxed_ordering_off": (f"setpci -s {NIC} CAP_EXP+8.w=0010:0010", f"setpci -s {NIC} CAP_EXP+8.w=0000:0010"),
    "read_request_small": (f"setpci -s {NIC} CAP_EXP+8.w=5000:7000", f"setpci -s {NIC} CAP_EXP+8.w=2000:7000"),
}


@pytest.fixture
def broken(kernel, monkeypatch):
    """The same folder with all files, and stand-ins for all commands that write their words to `log`."""
    for files, before, _ in FILES.values():
        for file in files:
            (kernel / file).parent.mkdir(parents=True, exist_ok=True)
            (kernel / file).write_text(f"{before}\n")
    for state in IDLE:
        (kernel / state).mkdir(parents=True, exist_ok=True)
        (kernel / state / "disable").write_text("0\n")
        (kernel / state / "latency").write_text("133\n" if state.endswith("2") else "2\n")
    for name in ("mount", "nvidia-smi", "setpci"):
        program = kernel / "bin" / name
        program.parent.mkdir(exist_ok=True)
        program.write_text(STAND_IN.format(log=kernel / "log", failing="no_such"))
        program.chmod(0o755)
    monkeypatch.setenv("PATH", str(kernel / "bin"))  # the real commands cannot be found
    return kernel


def test_ten_and_more_checks_can_be_fixed_and_each_has_its_test():
    fixable = {check.name for check in EVERY_CHECK if check.change is not None}
    assert fixable == {*BROKEN} == {*FILES, *COMMANDS}
    assert len(fixable) >= 10


@pytest.mark.parametrize("name", FILES)
def test_files_are_changed_and_restored(broken, capsys, monkeypatch, name):
    files, before, after = FILES[name]
    others = [broken / f"{state}/disable" for state in IDLE[::2]]
    monkeypatch.setattr(audit_fix, "load_machine", lambda _: BROKEN[name])
    assert fixed(capsys, name, "--apply", "--yes")[0] == 0
    assert {(broken / file).read_text() for file in files} == {f"{after}\n"}
    assert fixed(capsys, name, "--undo")[0] == 0
    assert {(broken / file).read_text() for file in files} == {f"{before}\n"}
    assert {other.read_text() for other in others} == {"0\n"}
    assert not (broken / "log").exists()


@pytest.mark.parametrize("name", COMMANDS)
def test_commands_are_run_and_undone(broken, capsys, monkeypatch, name):
    ran = []

    def run(words, *, timeout_s):
        assert timeout_s > 0
        ran.append(" ".join(words))
        return ChildResult(returncode=0, output=[])

    command, undo = COMMANDS[name]
    monkeypatch.setattr(process, "run", run)
    monkeypatch.setattr(audit_fix, "load_machine", lambda _: BROKEN[name])
    status, text, _ = fixed(capsys, name)
    assert (status, f"  {command}\n" in text, ran) == (1, True, [])
    assert fixed(capsys, name, "--apply", "--yes")[0] == 0
    assert ran == [command]
    assert fixed(capsys, name, "--undo")[0] == 0
    assert ran == [command, undo]


@pytest.mark.machine
def test_a_command_that_fails_leaves_all_as_it_was(broken, capsys, monkeypatch):
    two = with_facts(BROKEN["persistence_off"], "gpu", 4, persistence=False)
    second = next(one.address for one in two.of_kind("gpu") if one.id == "gpu4")
    (broken / "bin/nvidia-smi").write_text(STAND_IN.format(log=broken / "log", failing=f"{second}*1"))
    monkeypatch.setattr(audit_fix, "load_machine", lambda _: two)
    status, _, error = fixed(capsys, "persistence_off", "--apply", "--yes")
    assert (status, "failed with exit status 3: 'refused'" in error) == (2, True)
    assert (broken / "log").read_text().splitlines()[-1] == f"nvidia-smi -i {GPU} -pm 0"
    assert not list((broken / kernel_setting.RECORDS).iterdir())


@pytest.mark.parametrize(("answer", "status", "value"), [("y\n", 0, "0"), ("n\n", 1, "1"), ("", 2, "1")])
def test_apply_asks_unless_it_is_told_yes(kernel, capsys, monkeypatch, answer, status, value):
    monkeypatch.setattr(sys, "stdin", io.StringIO(answer))
    found, text, error = fixed(capsys, "numa_balancing_on", "--apply")
    assert (found, (kernel / BALANCING).read_text()) == (status, f"{value}\n")
    assert f"/{BALANCING}: 1 -> 0" in text
    assert ("--apply --yes" in error) == (answer == "")
    assert fixed(capsys, "numa_balancing_on", "--yes")[0] == 2


@pytest.mark.parametrize("name", BROKEN)
def test_the_audit_says_whether_each_check_can_be_fixed_and_by_which_command(name):
    check = next(check for check in EVERY_CHECK if check.name == name)
    outcome = look_for(check, Facts(topology=BROKEN[name]))
    assert outcome.state == "found"
    assert outcome.fix == f"railwright audit --fix {name} --apply"
    assert f"      fix     {outcome.fix}" in audit_lines("a", [outcome])


@pytest.mark.parametrize(
    ("name", "facts"),
    [("io_uring_off", {"seccomp": "filter"}), ("ptrace_refused", {"ptrace_scope": 3}),
     ("shared_memory_small", {"dev_shm_bytes": "none"})],
)  # fmt: skip
def test_a_finding_that_cannot_be_changed_from_here_says_so(kernel, capsys, monkeypatch, name, facts):
    machine = with_facts(tuned(), "host", **facts)
    monkeypatch.setattr(audit_fix, "load_machine", lambda _: machine)
    status, text, _ = fixed(capsys, name, "--apply", "--yes")
    assert status == 3
    assert "cannot be changed from here. Remedy: " in text
    outcome = look_for(next(check for check in EVERY_CHECK if check.name == name), Facts(topology=machine))
    assert "      fix     not by railwright: follow the remedy" in audit_lines("a", [outcome])


@pytest.mark.machine
@pytest.mark.parametrize("end", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGKILL], ids=str)
def test_what_is_held_is_given_back_at_every_end(kernel, end):
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    words = [sys.executable, "-c", HOLDER, str(kernel), BALANCING]
    with running(words, stdout=subprocess.PIPE, text=True, env=environment) as holder:
        assert holder.stdout.readline() == "changed\n"
        assert (kernel / BALANCING).read_text() == "0\n"
        holder.send_signal(end)
        holder.wait(PATIENCE_S)
        if end == signal.SIGKILL:
            assert kernel_setting.undo("numa_balancing_on", kernel)[0]
        else:
            assert holder.stdout.read() == "given back\n"
    assert (kernel / BALANCING).read_text() == "1\n"
    assert not list((kernel / kernel_setting.RECORDS).iterdir())

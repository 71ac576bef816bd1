"""`audit --fix`: shows one setting first, changes all of its files or none, and restores them."""

import os
import signal
import subprocess
import sys

import pytest
from tests.checks.machines import tuned, with_facts
from tests.conftest import ROOT, wait_until

from railwright.checks.check import Facts
from railwright.checks.outcome import look_for
from railwright.faults.every_check import EVERY_CHECK
from railwright.launch import kernel_setting
from railwright.launch.kernel_setting import Write
from railwright.main import run_command
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
    status, text, _ = fixed(capsys, "numa_balancing_on", "--apply")
    assert (status, (kernel / BALANCING).read_text()) == (0, "0\n")
    assert text.index(f"/{BALANCING}: 1 -> 0") < text.index("Changed") < text.index("--undo")
    (kernel / BALANCING).write_text("1\n")
    status, _, error = fixed(capsys, "numa_balancing_on", "--apply")
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
    fixed(capsys, "numa_balancing_on", "--apply")
    (kernel / BALANCING).write_text("2\n")
    status, text, _ = fixed(capsys, "numa_balancing_on", "--undo")
    assert (status, (kernel / BALANCING).read_text()) == (0, "2\n")
    assert "was changed by others since" in text


def test_files_of_all_cpus_are_one_change(kernel, capsys, monkeypatch):
    monkeypatch.setattr(audit_fix, "load_machine", lambda _: SLEEPY)
    status, text, _ = fixed(capsys, "governor_saves_power", "--apply")
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
    status, _, error = fixed(capsys, "mtu_small", "--apply")
    assert status == 2
    assert "mtu_small is not fixed by a single kernel setting" in error
    status, _, error = fixed(capsys, "numa_balancing_onn")
    assert status == 2
    assert "did you mean numa_balancing_on" in error
    status, _, error = fixed(capsys, "numa_balancing_on", "--from", "hgx-h100")
    assert status == 2
    assert "a single fault of this machine" in error
    monkeypatch.setattr(audit_fix, "load_machine", lambda _: tuned())
    assert fixed(capsys, "numa_balancing_on", "--apply")[0] == 0
    monkeypatch.setattr(audit_fix, "load_machine", lambda _: with_facts(tuned(), "host", numa_balancing=None))
    assert fixed(capsys, "numa_balancing_on", "--apply")[0] == 3
    assert (kernel / BALANCING).read_text() == "1\n"


def test_every_change_mends_what_its_check_finds():
    for check in EVERY_CHECK:
        if check.change is not None:
            machine = {"numa_balancing_on": BALANCED, "governor_saves_power": SLEEPY}.get(
                check.name, with_facts(tuned(), "host", thp="never", hugepages_bytes=0)
            )
            assert look_for(check, Facts(topology=machine)).state == "found", check.name
            assert not check.change(machine).files.startswith("/"), check.name


@pytest.mark.machine
@pytest.mark.parametrize("end", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGKILL], ids=str)
def test_what_is_held_is_given_back_at_every_end(kernel, end):
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    words = [sys.executable, "-c", HOLDER, str(kernel), BALANCING]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True, env=environment) as holder:
        assert holder.stdout.readline() == "changed\n"
        assert (kernel / BALANCING).read_text() == "0\n"
        holder.send_signal(end)
        assert wait_until(lambda: holder.poll() is not None, "the holder's end")
        if end == signal.SIGKILL:
            assert kernel_setting.undo("numa_balancing_on", kernel)[0]
        else:
            assert holder.stdout.read() == "given back\n"
    assert (kernel / BALANCING).read_text() == "1\n"
    assert not list((kernel / kernel_setting.RECORDS).iterdir())

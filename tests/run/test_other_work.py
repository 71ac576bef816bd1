"""CPU time of other processes during a launch is separated from our own, and makes nothing slow."""

from __future__ import annotations

import os
import subprocess
import sys
import time

import pytest

from railwright.results.records import Disturbed
from railwright.run import other_work
from railwright.run.other_work import IdleCpus, OtherWork

TICKS_A_S = os.sysconf("SC_CLK_TCK")


@pytest.fixture
def clock(monkeypatch):
    """The next readings: fields of /proc/stat, our own CPU seconds, and the time."""
    readings = iter(())

    def set_to(*each):
        nonlocal readings
        readings = iter(each)

    now = {}

    def ticks():
        now["ticks"], now["ours"], now["time"] = next(readings)
        return now["ticks"]

    monkeypatch.setattr(other_work, "cpu_ticks", ticks)
    monkeypatch.setattr(other_work, "_ours_s", lambda: now["ours"])
    monkeypatch.setattr(time, "monotonic", lambda: now.get("time", 0.0))
    return set_to


def ticks(user, system, idle, waiting=0, interrupts=0, steal=0):
    return tuple(TICKS_A_S * field for field in (user, 0, system, idle, waiting, interrupts, 0, steal))


@pytest.mark.parametrize(
    ("after", "ours", "share"),
    [
        (ticks(10, 0, 10), 10.0, 0.0),
        (ticks(10, 0, 10), 4.0, 0.3),
        (ticks(0, 0, 12, steal=8), 0.0, 0.4),
        (ticks(0, 0, 0, waiting=20), 0.0, 0.0),
        (ticks(5, 5, 0, interrupts=10), 10.0, 0.0),
        (ticks(4, 0, 16), 9.0, 0.0),
    ],
)
def test_the_share_of_others_is_what_was_busy_and_not_ours(clock, after, ours, share):
    clock((ticks(0, 0, 0), 0.0, 100.0), (after, ours, 110.0))
    assert OtherWork().share() == pytest.approx(share)


def test_what_cannot_be_told_is_not_told(clock):
    clock(((), 0.0, 100.0), (ticks(9, 0, 1), 0.0, 110.0))
    assert OtherWork().share() is None
    clock((ticks(0, 0, 0), 0.0, 100.0), ((), 0.0, 110.0))
    assert OtherWork().share() is None
    clock((ticks(0, 0, 0), 0.0, 100.0), (ticks(1, 0, 0), 0.0, 100.1))
    assert OtherWork().share() is None, "a tenth of a second is ten ticks"


def test_idle_cpus_are_those_of_this_process_without_a_quota(monkeypatch):
    lines = iter(([0, 0, 0], [60, 90, 100]))
    monkeypatch.setattr(other_work.os, "sched_getaffinity", lambda _: {0, 2})
    monkeypatch.setattr(time, "monotonic", iter((0.0, 10.0)).__next__)
    monkeypatch.setattr(other_work, "_has_quota", lambda: False)

    def stat(*_):
        text = "".join(
            f"cpu{number} 1 0 1 {TICKS_A_S * idle // 10} 0 0 0 0\n" for number, idle in enumerate(next(lines))
        )
        return f"cpu 9 9 9 9 9 9 9 9\n{text}intr 3\n"

    monkeypatch.setattr(other_work.Path, "read_text", stat)
    assert IdleCpus().count() == pytest.approx(1.6)
    lines, times = iter(([0], [100])), iter((0.0, 10.0))
    monkeypatch.setattr(time, "monotonic", times.__next__)
    monkeypatch.setattr(other_work, "_has_quota", lambda: True)
    assert IdleCpus().count() is None


@pytest.mark.machine
def test_a_launch_beside_other_work_says_so_and_is_not_slow(railwright):
    # 64 MiB take a second. Other work is not reported for launches below half a second.
    burning = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(os.cpu_count() or 1)]
    try:
        done = railwright("run", "memory_copy", "-o", "sizes=4M,64M", "-o", "threads=one", "--launches", "1", "--force")
    finally:
        for one in burning:
            one.kill()
            one.wait()
    assert done.status in (0, 3), done.out + done.err
    disturbed = [record for record in railwright.records() if isinstance(record, Disturbed)]
    assert [all(map(one.concerns, railwright.results())) for one in disturbed] == [True]
    assert 0.2 < disturbed[0].others_fraction <= 1

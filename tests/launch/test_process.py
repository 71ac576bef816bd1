"""Child processes: each is ended, and `stop` returns even if the kernel does not let the child exit."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import pytest
from tests.conftest import wait_until

from railwright import process
from railwright.errors import CannotJudge
from railwright.process import Child, run

# A tracer that is not the parent. The parent cannot reap a traced process before the tracer has waited for it.
TRACER = """
import ctypes, sys
SEIZE = 0x4206
libc = ctypes.CDLL(None, use_errno=True)
libc.ptrace.argtypes = (ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p)
print("seized" if libc.ptrace(SEIZE, int(sys.argv[1]), None, None) == 0 else ctypes.get_errno(), flush=True)
sys.stdin.read()
"""


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


@pytest.mark.machine
def test_a_child_that_ignores_sigterm_is_killed_with_its_group() -> None:
    with Child(["sh", "-c", "trap '' TERM; sleep 60 & echo $!; wait; wait"]) as child:
        while not child.output:
            time.sleep(0.01)
        grandchild = int(child.output[0])
        child.stop(grace_s=0.1)
        assert child.poll() == -signal.SIGKILL
    wait_until(lambda: not is_alive(grandchild), "its end: whoever adopted it reaps it")


@pytest.mark.machine
def test_a_child_that_tidies_up_when_it_is_stopped_is_given_the_time_for_it() -> None:
    with Child(["sh", "-c", "trap 'sleep 0.1; exit 7' TERM; echo ready; sleep 60 & wait"]) as child:
        wait_until(lambda: child.output, "its first word")
        child.stop()
        assert child.poll() == 7


@pytest.mark.machine
def test_a_killed_child_that_does_not_end_is_left_behind_by_name_and_nobody_hangs(monkeypatch) -> None:
    monkeypatch.setattr(process, "_KILLED_S", 0.3)
    child = Child(["sleep", "60"])
    with subprocess.Popen(
        [sys.executable, "-c", TRACER, str(child.__enter__().pid)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as tracer:
        assert tracer.stdout is not None
        seized = tracer.stdout.readline().strip()
        if seized != "seized":
            child.stop()
            tracer.kill()
            pytest.skip(f"this process may not trace: error {seized}")
        ended = child.wait(0.1)
        assert (ended.timed_out, ended.describe()) == (True, "killed by SIGKILL")
        assert ended.output[-1] == f"process {child.pid} was killed but still exists after 0.3 s"
        assert is_alive(child.pid)
        tracer.kill()
    monkeypatch.setattr(process, "_KILLED_S", 10.0)
    child.stop()
    assert child.poll() == -signal.SIGKILL


@pytest.mark.machine
def test_an_answer_is_without_complaints_unless_it_failed() -> None:
    # `ip -json` prints this on a machine with a stale name of a network namespace.
    says = "echo 'Error: Peer netns reference is invalid.' >&2; echo '[1]'; exit $0"
    assert process.query(["sh", "-c", says, "0"], timeout_s=60).output == ["[1]"]
    failed = process.query(["sh", "-c", says, "3"], timeout_s=60)
    assert (failed.returncode, failed.output) == (3, ["[1]", "Error: Peer netns reference is invalid."])


@pytest.mark.machine
def test_an_answer_is_whole_or_refused() -> None:
    lines = process.query(["seq", "20000"], timeout_s=60).output
    assert (len(lines), lines[0], lines[-1]) == (20000, "1", "20000")
    (line,) = process.query([sys.executable, "-c", "print('x' * 500_000)"], timeout_s=60).output
    assert len(line) == 500_000
    with pytest.raises(CannotJudge, match="seq printed more than 1 MiB"):
        process.query(["seq", "20000"], timeout_s=60, most_bytes=1 << 20)


# Signals were lost in forks that call Python hooks.
INTERRUPTED_FORK = """
import os, signal
from railwright.process import Child
os.register_at_fork(after_in_parent=lambda: signal.raise_signal(signal.SIGINT))
child = Child(["sleep", "60"])
try:
    with child:
        print("lost")
except KeyboardInterrupt:
    print("ended by", -child.poll())
"""


@pytest.mark.machine
def test_a_signal_while_a_child_is_started_ends_the_run_and_the_child() -> None:
    finished = run([sys.executable, "-c", INTERRUPTED_FORK], timeout_s=60)
    assert finished.output == [f"ended by {int(signal.SIGTERM)}"]

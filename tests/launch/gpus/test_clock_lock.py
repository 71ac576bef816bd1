"""GPU clocks are locked while a launch runs and reset however it ends. NVML is a stand-in."""
# ruff: noqa: F811 - a fixture of another module is imported, and is an argument

from __future__ import annotations

import os
import signal
import subprocess
import sys
from types import SimpleNamespace

import pytest
from tests.conftest import wait_until
from tests.stand_ins import environment, stand_ins  # noqa: F401 - a fixture

from railwright.errors import CannotJudge
from railwright.launch.gpus.clock_lock import ClockLock

pytestmark = pytest.mark.machine
ADDRESSES = ("0000:00:06.0", "0000:00:07.0")
LOCKED = ["lock 0 1275 1275", "lock 1 1275 1275"]
RESET = ["reset 0 0 0", "reset 1 0 0"]
JOB = SimpleNamespace(
    launch=SimpleNamespace(gpu_clock_hz=1275e6), gpus=tuple(SimpleNamespace(address=one) for one in ADDRESSES)
)


@pytest.fixture
def clocks(stand_ins, tmp_path):
    """The environment of a machine with two GPUs, and the requests to NVML for their clocks."""
    file = tmp_path / "clocks"
    variables = os.environ | environment(stand_ins, *ADDRESSES, STANDIN_NVML_CLOCK_FILE=str(file))
    return variables, lambda: file.read_text().splitlines() if file.exists() else []


def test_they_are_locked_during_the_launch_and_given_back_after_it(clocks):
    variables, asked = clocks
    with ClockLock(JOB, variables):
        assert asked() == LOCKED
    assert asked() == LOCKED + RESET


def test_they_are_given_back_when_the_launch_fails(clocks):
    variables, asked = clocks
    with pytest.raises(RuntimeError), ClockLock(JOB, variables):
        raise RuntimeError
    assert asked() == LOCKED + RESET


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_they_are_given_back_when_we_are_killed(clocks, number):
    variables, asked = clocks
    program = (
        "import os, time\nfrom types import SimpleNamespace as N\n"
        "from railwright.launch.gpus.clock_lock import ClockLock\n"
        f"gpus = tuple(N(address=one) for one in {ADDRESSES!r})\n"
        "with ClockLock(N(launch=N(gpu_clock_hz=1275e6), gpus=gpus), os.environ):\n    time.sleep(600)"
    )
    process = subprocess.Popen([sys.executable, "-c", program], env=variables, stderr=subprocess.DEVNULL)
    try:
        wait_until(lambda: asked() == LOCKED, "the lock")
        process.send_signal(number)
        wait_until(lambda: asked() == LOCKED + RESET, "the reset")
    finally:
        process.kill()
        process.wait()


def test_one_that_cannot_be_locked_gives_the_others_back_and_says_why(clocks):
    variables, asked = clocks
    with pytest.raises(CannotJudge, match="the GPU clocks cannot be locked") as caught:
        ClockLock(JOB, variables | {"STANDIN_NVML_CLOCK_DENIED": "1"}).__enter__()
    assert "needs root" in caught.value.hint
    assert asked() == [LOCKED[0], *RESET]
    absent = SimpleNamespace(launch=JOB.launch, gpus=(SimpleNamespace(address="0000:00:99.0"),))
    with pytest.raises(CannotJudge, match="NVML does not list a GPU at 0000:00:99"):
        ClockLock(absent, variables).__enter__()


def test_without_a_clock_nothing_is_touched(clocks):
    variables, asked = clocks
    with ClockLock(SimpleNamespace(launch=SimpleNamespace(gpu_clock_hz=0.0), gpus=JOB.gpus), variables):
        assert asked() == []

"""GPU clocks that are locked while a launch runs and reset however it ends.

    python -m railwright.launch.gpus.clock_lock HZ ADDRESS...

This child locks the clocks, prints a line, and waits. It resets the clocks on SIGTERM and when its parent dies: the
kernel then sends SIGTERM, which a process can handle, rather than SIGKILL.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import time
from collections.abc import Mapping, Sequence

import pynvml

from railwright.benchmarks.benchmark import AnyJob
from railwright.errors import CannotJudge
from railwright.installation import PYTHON
from railwright.launch.ending import ended_by_signal, hold
from railwright.process import Child
from railwright.topology.sources.nvidia_nvml import handles

_PROGRAM = (*PYTHON, "-m", "railwright.launch.gpus.clock_lock")
_LOCKED = "locked"
_PR_SET_PDEATHSIG = 1
_LOCKING_S = 30.0
"""The time to lock the clocks. Without persistence mode, the first program to open a GPU waits 1 to 3 s for it."""
_RESET_WITHIN_S = 20.0
_TICK_S = 0.05
_HINT = "locking clocks needs root; leave out -o clock="


class ClockLock:
    """A context manager around one launch. Does nothing if no clock was requested.

    Raises CannotJudge if a clock cannot be locked, after all clocks have been reset.
    """

    def __init__(self, job: AnyJob, environment: Mapping[str, str]) -> None:
        self._child: Child | None = None
        if job.launch.gpu_clock_hz and job.gpus:
            addresses = [gpu.address for gpu in job.gpus]
            self._child = Child([*_PROGRAM, f"{job.launch.gpu_clock_hz:.0f}", *addresses], dict(environment))

    def __enter__(self) -> None:
        if self._child is None:
            return
        child = self._child.__enter__()
        end = time.monotonic() + _LOCKING_S
        while _LOCKED not in child.output:
            if child.poll() is not None or time.monotonic() > end:
                self.__exit__()
                message = next(
                    (line for line in reversed(child.output) if line.strip()), f"no answer within {_LOCKING_S:g} s"
                )
                raise CannotJudge(f"the GPU clocks cannot be locked: {message[:200]}", hint=_HINT)
            time.sleep(_TICK_S)

    def __exit__(self, *_: object) -> None:
        if self._child is not None:
            self._child.stop(grace_s=_RESET_WITHIN_S)


def lock(clock_hz: float, addresses: Sequence[str]) -> None:
    """Lock the clocks, print a line, wait for a signal, and reset the clocks.

    Raises CannotJudge for a GPU that NVML does not list, and NVMLError if a clock cannot be locked or reset.
    """
    known = dict(handles())
    missing = [address for address in addresses if address not in known]
    if missing:
        raise CannotJudge(f"NVML does not list a GPU at {missing[0]}")
    mhz = round(clock_hz / 1e6)

    def change() -> None:
        for address in addresses:
            pynvml.nvmlDeviceSetGpuLockedClocks(known[address], mhz, mhz)
        os.write(1, f"{_LOCKED}\n".encode())

    def give_back() -> None:
        for address in addresses:  # all of them, since resetting an unlocked clock has no effect
            pynvml.nvmlDeviceResetGpuLockedClocks(known[address])

    hold(change, give_back)


def main(arguments: Sequence[str]) -> int:
    """Hold the lock until a signal.

    Returns 0, or 1 if the parent has exited already or after printing the error if the clocks cannot be locked.
    """
    with ended_by_signal():
        parent = os.getppid()
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)  # replaces the SIGKILL that every child gets
        if os.getppid() != parent:
            return 1
        try:
            pynvml.nvmlInit()
            lock(float(arguments[0]), arguments[1:])
        except (pynvml.NVMLError, CannotJudge) as error:
            sys.stdout.write(f"{error}\n")
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

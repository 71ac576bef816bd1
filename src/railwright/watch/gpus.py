"""The GPU counters of a watched job: a child reads NVML and publishes the numbers in shared memory."""

from __future__ import annotations

import ctypes
import mmap
import os
import time
from pathlib import Path

import msgspec

from railwright.installation import PYTHON
from railwright.native.gpu_counters import RING
from railwright.native.sampler import NO_VALUE
from railwright.process import ANSWER_LINE_BYTES, Child
from railwright.sampling.gpu_found import MAX_NUMBERS, GpusFound
from railwright.sampling.sources import Found

_PROGRAM = (*PYTHON, "-W", "ignore", "-m", "railwright.watch.gpu_program")
CPU_SHARE = 0.005
"""The share of a core for NVML's calls, which take up to 1.5 ms each; more CPU gives finer readings."""
_WITHIN_S, _EACH_S = 30.0, 20.0
"""Seconds that NVML has to answer, and more for each GPU, because a driver without persistence starts them in turn."""
_DRIVER = Path("/proc/driver/nvidia/gpus")
_POLL_S = 0.02


class Gpus:
    """A context manager that must enclose the sampling session. Without GPUs it does nothing."""

    def __init__(self, interval_s: float, cpu_share: float = CPU_SHARE) -> None:
        """`cpu_share` is the fraction of a core for reading NVML."""
        self._arguments = (f"{interval_s}", f"{cpu_share}")
        self.found = GpusFound()
        self._taken: dict[str, int] = {}

    def __enter__(self) -> Gpus:
        file = os.memfd_create("railwright-gpus")
        os.ftruncate(file, 8 * MAX_NUMBERS)
        self._memory = mmap.mmap(file, 8 * MAX_NUMBERS)
        self._numbers = (ctypes.c_uint64 * MAX_NUMBERS).from_buffer(self._memory)
        words = [*_PROGRAM, f"/proc/{os.getpid()}/fd/{file}", *self._arguments]
        self._child = Child(words, line_bytes=ANSWER_LINE_BYTES)  # each GPU adds some 2.5 KB to its answer
        try:
            with_child = self._child.__enter__()
            self.found = _read_answer(with_child)
        except BaseException:
            self.__exit__()
            raise
        finally:
            os.close(file)
        return self

    def __exit__(self, *_: object) -> None:
        self._child.stop(grace_s=0.2)
        del self._numbers
        self._memory.close()

    def add_to(self, found: Found) -> Found:
        """Add the GPUs' sources to `found` and return it."""
        found.sources += self.found.sources
        found.missing |= self.found.missing
        if self.found.problem:
            found.missing["GPUs"] = self.found.problem
        return found

    @property
    def address(self) -> int:
        """The address of the shared numbers."""
        return ctypes.addressof(self._numbers)

    def samples(self) -> dict[str, list[tuple[float, int]]]:
        """Return each late source's samples since the last call: times of the monotonic clock, and numbers."""
        since_1970_s = time.time() - time.monotonic()
        found = {}
        for source in self.found.sources:
            if source.late:
                there, before = self._numbers[source.field], self._taken.get(source.name, 0)
                found[source.name] = [
                    (self._numbers[slot] * 1e-6 - since_1970_s, self._numbers[slot + 1])
                    for slot in (source.field + 1 + 2 * (at % RING) for at in range(max(before, there - RING), there))
                ]
                self._taken[source.name] = there
        return found

    @property
    def cpu_s(self) -> float:
        """CPU seconds that reading NVML took so far."""
        taken = self._numbers[1]
        return 0.0 if taken == NO_VALUE else taken * 1e-9

    def trouble(self) -> str:
        """Return why the numbers are no longer updated; empty while they are."""
        if not self.found.sources or self._child.poll() is None:
            return ""
        return f"the program that reads NVML ended ({self._child.wait(1.0).describe()}): later values are unknown"


def _read_answer(child: Child) -> GpusFound:
    """Read the child's first line, or report the reason if it does not answer."""
    within_s = _WITHIN_S + _EACH_S * (len(list(_DRIVER.iterdir())) if _DRIVER.is_dir() else 0)
    until_s = time.monotonic() + within_s
    while time.monotonic() < until_s:
        ended = child.poll() is not None
        while child.output:
            try:
                return msgspec.json.decode(child.output.popleft(), type=GpusFound)
            except msgspec.DecodeError:
                continue
        if ended:
            return GpusFound(problem=f"the program that reads NVML ended ({child.wait(1.0).describe()})")
        time.sleep(_POLL_S)
    return GpusFound(problem=f"NVML gave no answer within {within_s:.0f} s")

"""Measures the cost of sampling clocks and power: NCCL's time with the sampler running and stopped, alternating.

Both are measured in one process, because two processes differ in the speed of small operations by more than the cost.
As a program it measures on the first GPUs that CUDA shows and prints a line of JSON for each size:

    sampling.py GPUS
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from measure_gpu.gpus import addresses
from measure_gpu.session import Session, first_gpus

from railwright.launch.gpus.watch import INTERVAL_S
from railwright.units import MIB, format_duration, format_size

SIZES = {(8, "plain"): 200, (8, "graph"): 200, (256 * MIB, "plain"): 5}
"""(bytes of an all_reduce, kind of launch) -> measurements of 20 operations in a window.

With a graph the CPU launches once per 20 operations, whose time then varies less.
"""
PAIRS, WINDOW_S = 15, 1.0
_NAME = "sampling"
_START_S = 30.0


class Cost(NamedTuple):
    """The mean duration of an operation in each pair of windows, with the sampler and without."""

    size_bytes: int
    launched: str
    with_s: list[float]
    without_s: list[float]

    @property
    def ratios(self) -> list[float]:
        """The time with the sampler over the time without it, for each pair."""
        return [one / other for one, other in zip(self.with_s, self.without_s, strict=True)]


def sampling(session: Session) -> None:
    """Measure on the largest number of GPUs that collectives use, and keep the output below `raw/`."""
    if session.counts:
        count = session.counts[-1]
        name = f"{_NAME}-{count}gpus-{session.free_number(f'{_NAME}-{count}gpus')}"
        path = os.pathsep.join(filter(None, (str(Path(__file__).parents[1]), os.environ.get("PYTHONPATH"))))
        session.run(name, [sys.executable, __file__, str(count)], PYTHONPATH=path, **first_gpus(count))


def table(raw: Path) -> list[str]:
    """Return the table of the cost by size, or nothing if it was not measured."""
    head = "| all_reduce of | launched | GPUs | time | with / without | pairs |"
    lines = ["### The cost of sampling", "", head, "|" + "---|" * 6]
    for path in sorted(raw.rglob(f"{_NAME}-*gpus-*.txt")):
        for one in (json.loads(line) for line in path.read_text().splitlines() if line.startswith("{")):
            cost = Cost(one["size_bytes"], one.get("launched", "plain"), one["with_s"], one["without_s"])
            told = f"{statistics.median(cost.ratios):.4f} ({min(cost.ratios):.4f} to {max(cost.ratios):.4f})"
            seconds = format_duration(statistics.median(cost.without_s))
            size = format_size(cost.size_bytes)
            lines.append(f"| {size} | {cost.launched} | {one['gpus']} | {seconds} | {told} | {len(cost.ratios)} |")
    return [*lines, ""] if len(lines) > 4 else []


def main(gpus: int) -> None:
    """Measure on the first `gpus` GPUs and print the results."""
    from railwright.native import cuda, nccl
    from railwright.native.nccl_library import Library

    devices = [cuda.Device(address) for address in addresses()[:gpus]]
    library = Library()
    team = nccl.Team(library, devices, "all_reduce", library.unique_id())
    team.allocate(max(SIZES)[0], "plain")
    with _sampler() as sampler:
        for (size_bytes, launched), samples in SIZES.items():
            sizes = (size_bytes, size_bytes, size_bytes)
            what = team.describe_operation(
                size_bytes // 4, sizes, in_place=False, graph=launched == "graph", operations=20
            )
            team.time(what, samples)
            cost = Cost(size_bytes, launched, [], [])
            for pair in range(PAIRS):
                for is_running in (True, False) if pair % 2 else (False, True):
                    with sampler.window(is_running=is_running):
                        seconds = _mean(team, what, samples)
                    (cost.with_s if is_running else cost.without_s).append(seconds)
            print(json.dumps({**cost._asdict(), "gpus": gpus, "interval_s": INTERVAL_S}), flush=True)
    team.close()


def _mean(team: object, what: object, samples: int) -> float:
    """Return the mean over a window and all ranks, which includes every delay by a sample."""
    end, found = time.monotonic() + WINDOW_S, []
    while time.monotonic() < end:
        found += [second for rank in team.time(what, samples) for second in rank]  # type: ignore[attr-defined]
    return statistics.fmean(found)


class _Sampler:
    """The sampler that each of our runs starts next to its ranks, stopped by SIGSTOP outside its windows."""

    def __init__(self, output: Path) -> None:
        self._output = output
        argv = [sys.executable, "-P", "-m", "railwright.launch.gpus.sampler", "sample", f"{INTERVAL_S}"]
        with output.open("wb") as file:
            self.child = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=file)
        began = time.monotonic()
        while not self._lines():
            if self.child.poll() is not None or time.monotonic() > began + _START_S:
                self.child.kill()
                raise SystemExit("the cost cannot be measured: the sampler printed nothing")
            time.sleep(0.01)

    def _lines(self) -> int:
        return self._output.read_bytes().count(b"\n")

    @contextlib.contextmanager
    def window(self, *, is_running: bool) -> Iterator[None]:
        """Let the sampler run, or not, during the context. Raises SystemExit if it did otherwise."""
        os.kill(self.child.pid, signal.SIGCONT if is_running else signal.SIGSTOP)
        before = self._lines()
        yield
        seen = self._lines() - before
        if bool(seen) is not is_running:
            raise SystemExit(f"the sampler took {seen} samples in a window where is_running was {is_running}")


@contextlib.contextmanager
def _sampler() -> Iterator[_Sampler]:
    with tempfile.TemporaryDirectory() as folder:
        sampler = _Sampler(Path(folder) / "samples.jsonl")
        try:
            yield sampler
        finally:
            sampler.child.kill()
            sampler.child.wait()


if __name__ == "__main__":
    main(int(sys.argv[1]))

"""A user's program that replaces the ranks of a launch: the launcher starts it, and its output is parsed."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from msgspec.structs import replace

from railwright.benchmarks.benchmark import Program
from railwright.errors import RailwrightError
from railwright.launch import user_program
from railwright.launch.blame import summarize_end, summarize_output
from railwright.launch.causes import observe
from railwright.launch.gpus.watch import GpuWatch
from railwright.launch.local import RANK_PROGRAM, LocalLauncher
from railwright.launch.scratch import scratch_folder
from railwright.launch.session import PlannedLaunch
from railwright.process import Child
from railwright.results.records import Result
from railwright.units import format_duration

_TICK_S = 0.1
_KEPT_LINES = 20_000


def run_program(
    planned: PlannedLaunch,
    program: Program,
    launcher: LocalLauncher,
    environment: Mapping[str, str],
    silence_s: float,
    on_step: Callable[[str], None],
) -> Iterator[Result]:
    """Run the program on the launch's hosts, and yield its output as records with samples of its GPUs.

    A failure or unreadable output yields a `failed` record.
    """
    name = f"{planned.benchmark.name}: {Path(program.argv[0]).name}"
    on_step(name)
    started, trouble = time.time(), ""
    try:
        launcher.check()
        with scratch_folder() as scratch, GpuWatch(planned.job, environment) as watch:
            variables = {**environment, **launcher.environment(scratch), **planned.job.launch.environment}
            words = launcher.command(planned.job.ranks, scratch, variables)[: -len(RANK_PROGRAM)]
            if program.threads == 1:
                words = ["core" if word == "none" else word for word in words]
            start = user_program.Start(program.argv, dict(program.files), program.outputs)
            argv = [*words, *user_program.command(start)]
            with Child(argv, variables, folder=scratch, output=deque(maxlen=_KEPT_LINES)) as child:
                trouble = _wait(child, silence_s, lambda line: _report(on_step, name, program.progress(line)))
                finished = child.wait(_TICK_S)
            if finished.returncode != 0:
                trouble = trouble or f"{program.argv[0]}: {launcher.name} ended ({summarize_end(finished, observe())})"
            found, unread = _read(planned, program, "\n".join(finished.output))
            trouble = trouble or unread
            yield from map(watch.add_samples, found)
    except RailwrightError as error:
        trouble = f"{launcher.name}: {error.message}"
    finally:
        launcher.clean_up(started)
    if trouble:
        yield planned.make_unmeasured("failed", trouble)


def _report(on_step: Callable[[str], None], name: str, progress: str) -> None:
    if progress:
        on_step(f"{name}: {progress}")


def _wait(child: Child, silence_s: float, on_line: Callable[[str], None]) -> str:
    """Wait until the program exits. Returns why we ended it, or an empty string if it exited by itself."""
    heard, last = time.monotonic(), ("", 0)
    while child.poll() is None:
        now = (child.output[-1] if child.output else "", len(child.output))
        if now != last:
            heard, last = time.monotonic(), now
            on_line(now[0])
        silent_s = time.monotonic() - heard
        if silent_s > silence_s:
            child.stop()
            hung = f"hung: silent for {format_duration(silent_s)}, ended by us"
            return ", ".join(filter(None, (hung, summarize_output(list(child.output)))))
        time.sleep(_TICK_S)
    return ""


def _read(planned: PlannedLaunch, program: Program, text: str) -> tuple[list[Result], str]:
    """Return the records of the output, and the reason if there are none."""
    if not text.strip():
        return [], f"{program.argv[0]}: it printed nothing"
    try:
        found = [replace(result, launch=planned.job.round) for result in program.read(text)]
    except RailwrightError as error:
        return [], f"{program.argv[0]}: {error.message}"
    return found, "" if found else f"{program.argv[0]}: its output has no result"

"""A user's program that replaces the ranks of a launch: mpirun starts it, and its output is parsed."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from msgspec.structs import replace

from railwright.benchmarks.benchmark import Program
from railwright.errors import RailwrightError
from railwright.launch.blame import summarize_end
from railwright.launch.local import RANK_PROGRAM
from railwright.launch.mpi import MpiLauncher
from railwright.launch.scratch import scratch_folder
from railwright.launch.session import PlannedLaunch
from railwright.process import Child
from railwright.results.records import Result
from railwright.units import format_duration

_TICK_S = 0.1
_MAX_OUTPUT_BYTES = 16 * 2**20


def run_program(
    planned: PlannedLaunch,
    program: Program,
    launcher: MpiLauncher,
    environment: Mapping[str, str],
    silence_s: float,
    on_step: Callable[[str], None],
) -> Iterator[Result]:
    """Run the program and yield its output as records. A failure or unreadable output yields a `failed` record."""
    on_step(f"{planned.benchmark.name}: {Path(program.argv[0]).name}")
    with scratch_folder() as scratch:
        for name, text in program.files.items():
            (scratch / name).write_text(text, encoding="ascii")
        words = launcher.command(planned.job.ranks, scratch, environment)[: -len(RANK_PROGRAM)]
        if program.threads == 1:
            words = ["core" if word == "none" else word for word in words]
        variables = {**environment, **launcher.environment(scratch), **planned.job.launch.environment}
        started = time.time()
        try:
            with Child([*words, *program.argv], variables, folder=scratch) as child:
                trouble = _wait(child, silence_s)
                finished = child.wait(_TICK_S)
            if finished.returncode != 0:
                trouble = trouble or f"{program.argv[0]}: mpirun ended ({summarize_end(finished)})"
        finally:
            launcher.clean_up(started)
        texts = ["\n".join(finished.output), *(_read_output(scratch / name) for name in program.outputs)]
    yield from _parse_results(planned, program, texts, trouble)


def _wait(child: Child, silence_s: float) -> str:
    """Wait until the program exits. Returns why we ended it, or an empty string if it exited by itself."""
    heard, last = time.monotonic(), ("", 0)
    while child.poll() is None:
        now = (child.output[-1] if child.output else "", len(child.output))
        if now != last:
            heard, last = time.monotonic(), now
        silent_s = time.monotonic() - heard
        if silent_s > silence_s:
            child.stop()
            return f"hung: silent for {format_duration(silent_s)}, ended by us"
        time.sleep(_TICK_S)
    return ""


def _read_output(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return file.read(_MAX_OUTPUT_BYTES).decode("utf-8", "replace")
    except OSError:
        return ""


def _parse_results(planned: PlannedLaunch, program: Program, texts: list[str], trouble: str) -> Iterator[Result]:
    found: list[Result] = []
    reasons = []
    for text in texts:
        try:
            found += program.read(text) if text.strip() and not found else ()
        except RailwrightError as error:
            reasons.append(error.message)
    for result in found:
        yield replace(result, launch=planned.job.round)
    if trouble or not found:
        why = trouble or f"{program.argv[0]}: {reasons[0] if reasons else 'it printed nothing'}"
        yield planned.make_unmeasured("failed", why)

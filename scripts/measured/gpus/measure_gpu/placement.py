"""Measures how the time of a small operation depends on the CPUs of its two ranks, for nccl-tests and ours."""

from __future__ import annotations

import os
import re
import statistics
from pathlib import Path

from measure_gpu.session import Session, first_gpus

from railwright.results.readers.registry import read
from railwright.results.store import load

SIZES = "32:32K:x2"
_NAME = re.compile(r"placement-(\d+)-(\d+)")


def pairs() -> list[tuple[int, int]]:
    """Return pairs of CPUs that are siblings or on different sockets in both usual numberings.

    These are neighbours, distant CPUs, and CPUs half of the numbers apart.
    """
    cpus = sorted(os.sched_getaffinity(0))
    half = len(cpus) // 2
    wanted = [
        (0, 1),
        (0, 2),
        (2, 3),
        (0, half),
        (1, half),
        (1, half + 1),
        (4, half // 2 + 1),
        (half + 1, len(cpus) - 2),
    ]
    known = [(cpus[one], cpus[other]) for one, other in wanted if max(one, other) < len(cpus) and one != other]
    return list(dict.fromkeys(known))


def placement(session: Session) -> None:
    """Measure all_gather of 32 B to 32 KiB by two processes bound to two CPUs."""
    for one, other in pairs() if session.counts else ():
        bound = ["taskset", "-c", f"{one},{other}"]
        name = f"placement-{one}-{other}"
        _theirs(session, f"{name}-nccl-tests", bound)
        options = {"sizes": SIZES, "placements": "out of place", "gpus": "2", "evidence": "no"}
        chosen = [word for key, value in options.items() for word in ("-o", f"nccl_all_gather.{key}={value}")]
        run = [
            "railwright",
            "run",
            "nccl_all_gather",
            "--alone",
            *chosen,
            "--output",
            str(session.raw / name),
            "--force",
        ]
        session.run(name, [*bound, *run], **first_gpus(2))


def _theirs(session: Session, name: str, bound: list[str]) -> None:
    if session.nccl_tests is None:
        return
    first, last, step = SIZES.split(":")
    program = [str(session.nccl_tests / "m" / "all_gather_perf"), "-b", first, "-e", last, "-f", step.removeprefix("x")]
    mpirun = ["mpirun", "-n", "2", "--bind-to", "none", "--oversubscribe", "--allow-run-as-root"]
    run = [*bound, *mpirun, *program, "-g", "1", "-c", "0", "-w", "1", "-n", "20"]
    session.run(name, run, **first_gpus(2))


def table(raw: Path) -> list[str]:
    """Return the table of the medians over all sizes for each pair of CPUs, or nothing if none was measured."""
    lines = ["### Two processes on two CPUs", "", "| CPUs | nccl-tests | ours |", "|---|---|---|"]
    for folder in sorted(raw.rglob("placement-*")):
        match = _NAME.fullmatch(folder.name)
        if match is None or not (folder / "results.jsonl").exists():
            continue
        ours = [one.summary.median for one in load(folder).results if one.quantity == "latency_s" and one.summary]
        beside = folder.with_name(f"{folder.name}-nccl-tests.txt")
        results = [one for file in read(beside.read_text()) for one in file.results] if beside.exists() else []
        theirs = [float(one.settings["duration_s"]) for one in results if one.parameters["placement"] == "out_of_place"]
        lines.append(f"| {match[1]}, {match[2]} | {_format_times(theirs)} | {_format_times(ours)} |")
    return [*lines, ""] if len(lines) > 4 else []


def _format_times(seconds: list[float]) -> str:
    if not seconds:
        return "-"
    middle = statistics.median(seconds) * 1e6
    return f"{middle:.2f} us ({min(seconds) * 1e6:.2f} to {max(seconds) * 1e6:.2f})"

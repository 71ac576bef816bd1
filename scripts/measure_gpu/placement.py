"""Which CPUs two ranks sit on, and what a small operation then takes: nccl-tests and ours alike."""

from __future__ import annotations

import os
import statistics

from measure_gpu.session import Session

from railwright.results.readers.registry import read
from railwright.results.store import load

SIZES = "32:32K:x2"


def pairs() -> list[tuple[int, int]]:
    """Neighbours, CPUs far apart, and the two halves: what siblings and sockets are in both usual numberings."""
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


def placement(session: Session) -> list[str]:
    """all_gather of 32 B to 32 KiB by two processes that may use two CPUs alone; the median over all sizes."""
    lines = ["### Two processes on two CPUs", "", "| CPUs | nccl-tests | ours |", "|---|---|---|"]
    for one, other in pairs():
        bound = ["taskset", "-c", f"{one},{other}"]
        name = f"placement-{one}-{other}"
        theirs = _theirs(session, f"{name}-nccl-tests", bound)
        folder = session.raw / name
        options = {"sizes": SIZES, "placements": "out of place", "gpus": "2", "evidence": "no"}
        chosen = [word for key, value in options.items() for word in ("-o", f"nccl_all_gather.{key}={value}")]
        run = ["railwright", "run", "nccl_all_gather", *chosen, "--output", str(folder), "--force"]
        session.run(name, [*bound, *run])
        path = folder / "results.jsonl"
        found = load(path).results if path.exists() else ()
        ours = [result.summary.median for result in found if result.quantity == "latency_s" and result.summary]
        lines.append(f"| {one}, {other} | {_shown(theirs)} | {_shown(ours)} |")
    return [*lines, ""]


def _theirs(session: Session, name: str, bound: list[str]) -> list[float]:
    if session.nccl_tests is None:
        return []
    first, last, step = SIZES.split(":")
    program = [str(session.nccl_tests / "m" / "all_gather_perf"), "-b", first, "-e", last, "-f", step.removeprefix("x")]
    mpirun = ["mpirun", "-n", "2", "--bind-to", "none", "--oversubscribe", "--allow-run-as-root"]
    text = session.run(name, [*bound, *mpirun, *program, "-g", "1", "-c", "0", "-w", "1", "-n", "20"])
    if text is None:
        return []
    results = [result for file in read(text) for result in file.results]
    return [float(one.settings["duration_s"]) for one in results if one.parameters["placement"] == "out_of_place"]


def _shown(seconds: list[float]) -> str:
    if not seconds:
        return "-"
    middle = statistics.median(seconds) * 1e6
    return f"{middle:.2f} us ({min(seconds) * 1e6:.2f} to {max(seconds) * 1e6:.2f})"

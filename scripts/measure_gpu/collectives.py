"""NCCL collectives: nccl-tests, ours, nccl-tests, ours ... over the same sizes, on the same GPUs, in one go."""

from __future__ import annotations

import statistics
from collections import defaultdict
from typing import NamedTuple

from measure_gpu.session import Session

from railwright.results.model import Result
from railwright.results.readers.registry import read
from railwright.results.store import load
from railwright.units import MIB, format_size

PROGRAMS = {
    "all_reduce": "all_reduce_perf",
    "all_gather": "all_gather_perf",
    "reduce_scatter": "reduce_scatter_perf",
    "all_to_all": "alltoall_perf",
    "send_recv": "sendrecv_perf",
    "broadcast": "broadcast_perf",
}
LARGE_TOLERANCE, SMALL_TOLERANCE = 0.01, 0.03


class Way(NamedTuple):
    """How the ranks run, and how nccl-tests is told so."""

    ranks_in: str
    launched: str

    @property
    def name(self) -> str:
        """A part of a file's name."""
        return f"{self.ranks_in}-{self.launched}"


class Point(NamedTuple):
    """One size and placement, times in seconds of each round."""

    placement: str
    size: int
    theirs: list[float]
    ours: list[float]

    @property
    def ratio(self) -> float:
        """Our time / theirs."""
        return statistics.median(self.ours) / statistics.median(self.theirs)

    @property
    def itself(self) -> float:
        """How far nccl-tests is from itself between rounds."""
        return max(self.theirs) / min(self.theirs) - 1

    @property
    def tolerance(self) -> float:
        """1 % of the rate from 1 MiB up, 3 % of the time below."""
        return LARGE_TOLERANCE if self.size >= MIB else SMALL_TOLERANCE

    @property
    def verdict(self) -> str:
        """`void` where two runs of nccl-tests differ by more than the tolerance themselves."""
        is_met = self.ratio <= 1 / (1 - LARGE_TOLERANCE) if self.size >= MIB else self.ratio <= 1 + SMALL_TOLERANCE
        if is_met:
            return "within"
        return "void" if self.itself > self.tolerance else "above"


def measure(session: Session, operation: str, way: Way, gpus: int) -> list[Point]:
    """All points of one collective."""
    theirs: dict[tuple[str, int], list[float]] = defaultdict(list)
    ours: dict[tuple[str, int], list[float]] = defaultdict(list)
    for number in range(session.rounds):
        name = f"{operation}-{way.name}-{number}"
        for key, seconds in _theirs(session, f"{name}-nccl-tests", operation, way, gpus).items():
            theirs[key].append(seconds)
        for key, seconds in _ours(session, name, operation, way).items():
            ours[key].append(seconds)
    both = sorted(theirs.keys() & ours.keys(), key=lambda key: (key[0], key[1]))
    return [Point(placement, size, theirs[placement, size], ours[placement, size]) for placement, size in both]


def _theirs(session: Session, name: str, operation: str, way: Way, gpus: int) -> dict[tuple[str, int], float]:
    if session.nccl_tests is None:
        return {}
    program = session.nccl_tests / ("m" if way.ranks_in == "processes" else "t") / PROGRAMS[operation]
    first, last, step = session.sizes.split(":")
    sweep = ["-b", first, "-e", last, "-f", step.removeprefix("x"), "-g", "1", "-c", "0", "-w", "1", "-n", "20"]
    sweep += ["-G", "1"] if way.launched == "graph" else []
    if way.ranks_in == "threads":
        text = session.run(name, [str(program), *sweep, "-t", str(gpus)])
    else:
        mpirun = ["mpirun", "-n", str(gpus), "--bind-to", "none", "--allow-run-as-root"]
        text = session.run(name, [*mpirun, str(program), *sweep])
    if text is None:
        return {}
    files = read(text)
    return {_key(result): float(result.settings["duration_s"]) for file in files for result in file.results}


def _ours(session: Session, name: str, operation: str, way: Way) -> dict[tuple[str, int], float]:
    benchmark = f"nccl_{operation}"
    options = {"sizes": session.sizes, "placements": "out of place,in place", "ranks_in": way.ranks_in}
    options |= {"launched": way.launched, "evidence": "no"}
    path = session.railwright(name, [benchmark], [f"{benchmark}.{key}={value}" for key, value in options.items()])
    if path is None:
        return {}
    times = [result for result in load(path).results if result.quantity == "latency_s" and result.summary is not None]
    return {_key(result): result.summary.median for result in times}


def _key(result: Result) -> tuple[str, int]:
    return str(result.parameters["placement"]).replace("_", " "), int(result.parameters["size_bytes"])


def table(operation: str, way: Way, points: list[Point]) -> list[str]:
    """The rows of one collective, in Markdown."""
    lines = [
        f"### {operation}, {way.ranks_in}, {'CUDA graph' if way.launched == 'graph' else 'launches'}",
        "",
        "| placement | size | nccl-tests | ours | time, ours / nccl-tests | nccl-tests against itself | verdict |",
        "|---|---|---|---|---|---|---|",
    ]
    for point in points:
        theirs, ours = (statistics.median(one) * 1e6 for one in (point.theirs, point.ours))
        lines.append(
            f"| {point.placement} | {format_size(point.size)} | {theirs:,.2f} us | {ours:,.2f} us "
            f"| {point.ratio:.3f} | {point.itself:.1%} | {point.verdict} |"
        )
    return [*lines, ""]


def summary(operation: str, way: Way, points: list[Point]) -> str:
    """One line: how many points are within, and the worst of each kind."""
    if not points:
        return f"| {operation} | {way.name} | nothing measured | | | |"
    counts = {verdict: sum(point.verdict == verdict for point in points) for verdict in ("within", "void", "above")}
    small = [point.ratio for point in points if point.size < MIB]
    large = [point.ratio for point in points if point.size >= MIB]
    told = [_spread(one) for one in (small, large)]
    return (
        f"| {operation} | {way.name} | {told[0]} | {told[1]} "
        f"| {counts['within']} of {len(points)} | {counts['void']} void, {counts['above']} above |"
    )


def _spread(ratios: list[float]) -> str:
    if not ratios:
        return "-"
    return f"{statistics.median(ratios):.3f} ({min(ratios):.3f} to {max(ratios):.3f})"

"""Reads points of collectives from raw records: the times of nccl-tests and of ours by size and placement."""

from __future__ import annotations

import functools
import re
import statistics
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple, TypeVar

from railwright.benchmarks.registry import DECLARATIONS
from railwright.busbw import busbw_factor
from railwright.diagnosis.runs.own_runs import LimitFinder
from railwright.errors import RailwrightError
from railwright.limits.limit import Limit
from railwright.results.readers.registry import read
from railwright.results.records import Result, ResultFile
from railwright.results.store import load
from railwright.units import MIB

LARGE_TOLERANCE, SMALL_TOLERANCE = 0.01, 0.03
_NAME = re.compile(
    r"(?P<operation>[a-z_]+)-(?P<ranks_in>processes|threads)-(?P<launched>plain|graph)"
    r"(?:-(?P<buffers>registered|symmetric))?(?:-(?P<gpus>\d+)gpus)?(?:-(?:small|large))?-\d+"
)
_THEIRS = "-nccl-tests"
K = TypeVar("K")


class Way(NamedTuple):
    """A placement of ranks, with the options of nccl-tests for it."""

    ranks_in: str
    launched: str
    buffers: str = "plain"

    @property
    def name(self) -> str:
        """The name, as part of file names."""
        return f"{self.ranks_in}-{self.launched}" + ("" if self.buffers == "plain" else f"-{self.buffers}")


WAYS = {
    "processes": Way("processes", "plain"),
    "threads": Way("threads", "plain"),
    "graph": Way("processes", "graph"),
    "registered": Way("processes", "plain", "registered"),
    "symmetric": Way("processes", "plain", "symmetric"),
}


def itself(values: list[float]) -> float:
    """Return the spread of a program's times between rounds, as a fraction."""
    return max(values) / min(values) - 1


def medians(theirs: Mapping[K, list[float]], ours: Mapping[K, list[float]]) -> Iterator[tuple[K, float, float]]:
    """Return the medians of the reference program and of ours, for each key that both measured."""
    for key in (key for key in theirs if key in ours):
        yield key, statistics.median(theirs[key]), statistics.median(ours[key])


class Point(NamedTuple):
    """A size and placement, with the times of each round in seconds."""

    placement: str
    size: int
    theirs: list[float]
    ours: list[float]

    @property
    def ratio(self) -> float:
        """Our median time over theirs."""
        return statistics.median(self.ours) / statistics.median(self.theirs)

    @property
    def fastest(self) -> float:
        """Our shortest time over theirs, because a process runs at one of two speeds, and the faster is comparable."""
        return min(self.ours) / min(self.theirs)

    @property
    def itself(self) -> float:
        """The spread of nccl-tests between rounds."""
        return itself(self.theirs)

    @property
    def tolerance(self) -> float:
        """The tolerance of the ratio: 1 % from 1 MiB up, 3 % below."""
        return LARGE_TOLERANCE if self.size >= MIB else SMALL_TOLERANCE

    @property
    def verdict(self) -> str:
        """The verdict: `void` if two runs of nccl-tests differ by more than the tolerance."""
        is_met = self.ratio <= 1 / (1 - LARGE_TOLERANCE) if self.size >= MIB else self.ratio <= 1 + SMALL_TOLERANCE
        if is_met:
            return "within"
        return "void" if self.itself > self.tolerance else "above"


class Curve(NamedTuple):
    """A collective with a placement of ranks on a number of GPUs."""

    operation: str
    way: Way
    gpus: int
    points: tuple[Point, ...]
    """The points that both programs measured."""
    limits: dict[int, float]
    """The busbw limit in bytes/s by size, if known."""

    @property
    def name(self) -> str:
        """The name, as part of file names."""
        return f"{self.operation}-{self.way.name}"

    def bus(self, size: int, seconds: float) -> float:
        """Return busbw in bytes/s, by nccl-tests' formula."""
        return float(busbw_factor(self.operation, self.gpus)) * size / seconds

    def placed(self, placement: str = "out of place") -> list[Point]:
        """Return the points of a placement by size."""
        return sorted((point for point in self.points if point.placement == placement), key=lambda point: point.size)


class _Times(NamedTuple):
    """The results of a curve, by placement and size."""

    theirs: dict[tuple[str, int], list[float]]
    ours: dict[tuple[str, int], list[float]]
    limits: dict[int, float]


def curves(raw: Path) -> list[Curve]:
    """Return every curve with records below `raw`, by name and number of GPUs."""
    found: dict[tuple[str, Way, int], _Times] = defaultdict(lambda: _Times(defaultdict(list), defaultdict(list), {}))
    for path in sorted((*raw.rglob(f"*{_THEIRS}.txt"), *raw.rglob("results.jsonl"))):
        is_theirs = path.suffix == ".txt"
        match = _NAME.fullmatch(path.name.removesuffix(f"{_THEIRS}.txt") if is_theirs else path.parent.name)
        if match is None:
            continue
        results = _theirs(path) if is_theirs else _ours(path)
        if not results:
            continue
        way = Way(match["ranks_in"], match["launched"], match["buffers"] or "plain")
        times = found[match["operation"], way, int(match["gpus"] or results[0].ranks)]
        for key, seconds in times_of(path):
            (times.theirs if is_theirs else times.ours)[key].append(seconds)
        if not is_theirs and not times.limits.keys() >= {_key(result)[1] for result in results}:
            times.limits.update(_limits(load(path)))
    return [_curve(*key, times) for key, times in sorted(found.items())]


def _curve(operation: str, way: Way, gpus: int, times: _Times) -> Curve:
    both = sorted(times.theirs.keys() & times.ours.keys())
    points = tuple(Point(*key, times.theirs[key], times.ours[key]) for key in both)
    return Curve(operation, way, gpus, points, times.limits)


def times_of(path: Path) -> list[tuple[tuple[str, int], float]]:
    """Return the seconds of an operation by placement and size, from nccl-tests' text or from our records."""
    if path.suffix == ".txt":
        return [(_key(one), float(one.settings["duration_s"])) for one in _theirs(path)]
    return [(_key(one), one.summary.median) for one in _ours(path) if one.summary is not None]


@functools.cache
def _theirs(path: Path) -> list[Result]:
    try:
        return [result for file in read(path.read_text(errors="replace")) for result in file.results]
    except RailwrightError:
        return []  # cut off before its first row; a note reports it


def _ours(path: Path) -> list[Result]:
    results = (one for one in load(path).results if one.outcome == "measured" and one.summary is not None)
    return [one for one in results if one.quantity == "latency_s"]


def _limits(file: ResultFile) -> dict[int, float]:
    run, declarations = file.run, DECLARATIONS
    finder = LimitFinder(run.topology, file.results, declarations, run.context.environment)
    found = {}
    for one in file.results:
        if one.parameters.get("rate") == "busbw":
            limit, _ = finder.find(one)
            if isinstance(limit, Limit):
                found[int(one.parameters["size_bytes"])] = limit.value
    return found


def _key(result: Result) -> tuple[str, int]:
    return str(result.parameters["placement"]).replace("_", " "), int(result.parameters["size_bytes"])

"""The baselines of a run: its simplest measurements, with which others are compared.

A benchmark declares which of its results are a baseline (`results.declarations`).
"""

from __future__ import annotations

import math
import re
from collections.abc import Hashable, Iterable
from typing import NamedTuple, TypeVar

from msgspec.structs import replace

from railwright.expected.own_reads import OwnReads
from railwright.limits.limit import Constant
from railwright.limits.sources import SINGLE_HOST_COPIES
from railwright.results.declarations import Declarations, find_declaration
from railwright.results.records import PAGES_DECIDE_FROM_BYTES, Result
from railwright.results.workload import Baseline, Workload, describe

Key = TypeVar("Key")
HUGE = "huge"
"""The pages assumed for copies whose record does not name them."""
_NUMBER = re.compile(r"\d+")

NEXT_LAUNCH = Constant(
    0.5, "of the same memory copy in the previous launch, if the pages lie worse", SINGLE_HOST_COPIES
)


class Ceiling(NamedTuple):
    """A baseline measurement over all launches of a run, in the unit of its quantity."""

    slowest: float
    """The median of the slowest launch."""
    fastest: float
    """The median of the fastest launch."""
    best: float
    """The best single sample, which the machine has shown that it can reach."""
    launches: int

    @property
    def low(self) -> float:
        """The low end for a healthy launch: the slowest of several launches, or half of a single one."""
        return self.slowest if self.launches > 1 else NEXT_LAUNCH.value * self.slowest

    def varies_beyond(self, value: float) -> float:
        """Return the factor by which the next launch may be better than `value`, at least 1.

        The next launch may be as far ahead of the fastest as the slowest is behind it: a value that is compared with
        this ceiling was measured in another launch, which may have been faster.
        """
        if self.fastest >= self.slowest:  # a rate, or a single launch
            return max(1.0, self.fastest**2 / self.slowest / value)
        return max(1.0, value / (self.fastest**2 / self.slowest))


class Baselines:
    """The ceilings of a run, collected from measured and verified results.

    The same copy can be half as fast in the next process, because its pages lie elsewhere. So a band has two edges: a
    value is ok from the edge that follows from the fastest launch, and slow below the edge that follows from the
    slowest; between the two there is no verdict. A single launch does not show the speed of the next, so half of its
    speed is allowed.
    """

    def __init__(self, results: Iterable[Result], declarations: Declarations) -> None:
        self._copies: dict[tuple[str, str, int], Ceiling] = {}
        """Memory copies by a single thread, in bytes/s, by path, pages and size."""
        self._others: dict[tuple[Baseline, Hashable], Ceiling] = {}
        reads: list[Result] = []
        for result in results:
            declared = find_declaration(result, declarations)
            supply = declared.supplies if declared is not None else None
            if declared is None or supply is None or not _is_sound(result):
                continue
            workload = describe(declared.workload, result)
            if supply == "file read":
                reads.append(result)
            elif supply != "thread copy":
                _widen(self._others, (supply, _baseline_key(supply, workload)), result)
            elif workload.size_bytes is not None:
                _widen(self._copies, (workload.path, find_pages(workload), workload.size_bytes), result)
        self.reads = OwnReads(reads)

    def copies(self, path: str, size_bytes: int, pages: str = HUGE) -> tuple[int, Ceiling] | None:
        """Return (size in bytes, ceiling) of the copies of the nearest size by ratio, at most a factor of two away.

        A size below the smallest measured gets the copies of the smallest: a smaller copy takes no longer, and its rate
        is no higher.
        """
        known = self._find_copies_on(path, pages)
        if known and 0 < size_bytes < min(known):
            return min(known), known[min(known)]
        sizes = [size for size in known if size_bytes / 2 <= size <= size_bytes * 2]
        nearest = min(sizes, key=lambda size: abs(math.log(size / size_bytes)), default=None)
        return None if nearest is None else (nearest, known[nearest])

    def largest_copies(self, path: str, pages: str = HUGE) -> tuple[int, Ceiling] | None:
        """Return (size in bytes, ceiling) of the copies of the largest size."""
        return max(self._find_copies_on(path, pages).items(), default=None)

    def _find_copies_on(self, path: str, pages: str) -> dict[int, Ceiling]:
        """Return the copies on a path by size. Without copies on the given pages, those on huge pages are used; below
        64 KiB pages do not matter.
        """
        kinds: dict[str, dict[int, Ceiling]] = {}
        for (at, kind, size), copy in self._copies.items():
            if at == path:
                kinds.setdefault(kind, {})[size] = copy
        small = {size: copy for kind in kinds.values() for size, copy in kind.items() if size < PAGES_DECIDE_FROM_BYTES}
        return small | kinds.get(pages, kinds.get(HUGE, {}))

    def fastest_message(self, workload: Workload) -> float | None:
        """Return the shortest time of a plain socket's message on the workload's path at its size, in seconds.

        Both kinds of pages count: the kernel copies the message either way, and launches of a ping-pong differ by a
        factor of two whatever their pages.
        """
        kinds = (replace(workload, pages=pages) for pages in ("small", HUGE))
        return min(
            (found.best for kind in kinds if (found := self.find("plain socket", kind)) is not None), default=None
        )

    def has(self, supply: Baseline) -> bool:
        """Report whether anything of that kind was measured and verified."""
        if supply == "file read":
            return bool(self.reads)
        return bool(self._copies) if supply == "thread copy" else any(kind == supply for kind, _ in self._others)

    def smallest_message(self, path: str) -> Ceiling | None:
        """Return the latency of a plain socket's smallest message on a path."""
        found = [(key[2], other) for (kind, key), other in self._others.items()
                 if kind == "plain socket" and isinstance(key, tuple) and key[:2] == (path, "latency_s")]  # fmt: skip
        return min(found, key=lambda pair: pair[0], default=(0, None))[1]

    def find(self, supply: Baseline, workload: Workload) -> Ceiling | None:
        """Return the baseline with the workload's key, in the workload's unit.

        Sockets whose records do not name their pages count as on huge pages.
        """
        found = self._others.get((supply, _baseline_key(supply, workload)))
        if found is None and supply == "plain socket":
            return self._others.get((supply, _baseline_key(supply, replace(workload, pages=HUGE))))
        return found


def _baseline_key(supply: Baseline, workload: Workload) -> Hashable:
    """Return the key that a baseline shares with the workloads compared with it."""
    path, size, varied = workload.path, workload.size_bytes, workload.varied
    match supply:
        case "plain socket":
            is_large = size is not None and size >= PAGES_DECIDE_FROM_BYTES
            return path, workload.quantity, size, find_pages(workload) if is_large else ""
        case "raw device":
            return path, workload.quantity, tuple(sorted(varied.items()))
        case "gpu copy" | "awaited gpu copy":  # the same for all GPUs of a machine, apart from noise
            return _NUMBER.sub("", path)
        case "dgemm":  # the same processes with the same number of threads
            return path, workload.ranks, (varied.get("host"), varied.get("hosts")), varied.get("threads")
        case "fetch":
            return path, _varied_except(workload, "part", "bytes")
        case "decode":  # the bytes are in memory, whatever their source
            return _varied_except(workload, "part", "bytes", "cache")
        case "reader alone":
            return path, workload.ranks, _varied_except(workload, "part", "pace", "prefetch", "counted")
        case "gpu load":  # from the reader's own memory, whatever memory the workload reads
            return path.partition(">")[2], size or 0
        case _:
            return path


def _varied_except(workload: Workload, *names: str) -> Hashable:
    """Return the workload's varied parameters except `names`."""
    return tuple(sorted((name, value) for name, value in workload.varied.items() if name not in names))


def find_pages(workload: Workload) -> str:
    """Return the pages that a workload's memory lies on."""
    return workload.pages or HUGE


def _is_sound(result: Result) -> bool:
    check = result.verification
    is_checked = check is not None and check.bytes_checked and not check.bytes_wrong
    return result.outcome == "measured" and result.summary is not None and bool(is_checked)


def _widen(known: dict[Key, Ceiling], key: Key, result: Result) -> None:
    """Add a launch to a ceiling."""
    assert result.summary is not None
    is_latency, value = result.quantity == "latency_s", result.summary.median
    best = result.summary.minimum if is_latency else result.summary.maximum
    worse, better = (max, min) if is_latency else (min, max)
    before = known.get(key, Ceiling(value, value, best, 0))
    known[key] = Ceiling(
        worse(before.slowest, value), better(before.fastest, value), better(before.best, best), before.launches + 1
    )

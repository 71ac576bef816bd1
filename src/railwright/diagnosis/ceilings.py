"""The measured ceilings of a run: what its simplest measurements reached, for others to be held against.

Which results are ceilings of what their benchmarks declare (`results.bounds.Supply`).
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import NamedTuple, TypeVar

from railwright.limits.model import Constant, Quantity
from railwright.limits.sources import SINGLE_HOST_COPIES
from railwright.results.bounds import Declarations, declared_for
from railwright.results.model import Result
from railwright.topology.model import Scalar

Key = TypeVar("Key")

NEXT_LAUNCH = Constant(
    value=0.5, unit="of the same memory copy in the launch before, where the pages lie worse", source=SINGLE_HOST_COPIES
)


class Launches(NamedTuple):
    """One point of a ceiling over the launches of a run, by its medians in the unit of the quantity."""

    slowest: float
    fastest: float


class Copies(NamedTuple):
    """One thread's memory copies of one size, in bytes/s."""

    slowest: float
    """The median of the slowest launch."""
    fastest: float
    """The median of the fastest launch."""
    best: float
    """The best single sample: what the core has shown that it can do."""
    launches: int

    @property
    def low(self) -> float:
        """What a healthy launch may make: the slowest of several, and less than a single one."""
        return self.slowest if self.launches > 1 else NEXT_LAUNCH.value * self.slowest


class Ceilings:
    """The ceilings of one run, collected from results that were measured and verified.

    The same copy can be half as fast in the next process, because its pages lie elsewhere. So a band has two edges: a
    value is ok against the fastest launch and slow against the slowest, and between the two nothing can be said. A
    single launch does not show how slow the next one is, so half as fast is allowed for.
    """

    def __init__(self, results: Iterable[Result], declarations: Declarations) -> None:
        self._copies: dict[tuple[str, int], Copies] = {}
        self._lines: dict[str, Launches] = {}
        self._sockets: dict[tuple[str, Quantity, Scalar | None], Launches] = {}
        self._devices: dict[tuple[str, Quantity, tuple[tuple[str, Scalar], ...]], Launches] = {}
        self._loads: dict[tuple[str, Scalar], Launches] = {}
        for result in results:
            declared = declared_for(result, declarations)
            if declared is not None and declared.supplies is not None and _is_sound(result):
                self._add(declared.supplies, result)

    def _add(self, supply: str, result: Result) -> None:
        size = result.parameters.get("size_bytes")
        match supply:
            case "thread copy" if isinstance(size, int):
                self._add_copy(result, size)
            case "cache line":
                _widen(self._lines, result.path, result)
            case "plain socket":
                _widen(self._sockets, (result.path, result.quantity, size), result)
            case "raw device":
                _widen(self._devices, (result.path, result.quantity, _sorted(result)), result)
            case "gpu load":
                _widen(self._loads, (result.path.partition(">")[0], size or 0), result)

    def _add_copy(self, result: Result, size_bytes: int) -> None:
        assert result.summary is not None
        value, best = result.summary.median, result.summary.maximum
        known = self._copies.get((result.path, size_bytes), Copies(value, value, best, 0))
        self._copies[(result.path, size_bytes)] = Copies(
            min(known.slowest, value), max(known.fastest, value), max(known.best, best), known.launches + 1
        )

    def copies(self, path: str, size_bytes: int) -> tuple[int, Copies] | None:
        """The copies whose size is nearest by ratio, at most a factor of two away, with that size in bytes."""
        sizes = [known for at, known in self._copies if at == path and size_bytes / 2 <= known <= size_bytes * 2]
        nearest = min(sizes, key=lambda known: abs(math.log(known / size_bytes)), default=None)
        return None if nearest is None else (nearest, self._copies[path, nearest])

    def largest_copies(self, path: str) -> tuple[int, Copies] | None:
        """The copies of the largest size, with that size in bytes."""
        return max(((size, copies) for (at, size), copies in self._copies.items() if at == path), default=None)

    def cache_line(self, path: str) -> Launches | None:
        """One cache line from core to core, in seconds."""
        return self._lines.get(path)

    def plain_socket(self, result: Result) -> Launches | None:
        """A plain socket between the same ends at the same size, in the quantity of the result."""
        return self._sockets.get((result.path, result.quantity, result.parameters.get("size_bytes")))

    def raw_device(self, result: Result) -> Launches | None:
        """The raw device with the parameters of the result, in its quantity."""
        return self._devices.get((result.path, result.quantity, _sorted(result)))

    def gpu_load(self, gpu: str, region_bytes: Scalar) -> Launches | None:
        """One load of a GPU's own memory, in seconds."""
        return self._loads.get((gpu, region_bytes))


def _is_sound(result: Result) -> bool:
    check = result.verification
    is_checked = check is not None and check.bytes_checked and not check.bytes_wrong
    return result.outcome == "measured" and result.summary is not None and bool(is_checked)


def _sorted(result: Result) -> tuple[tuple[str, Scalar], ...]:
    return tuple(sorted(result.parameters.items()))


def _widen(known: dict[Key, Launches], key: Key, result: Result) -> None:
    """Take one more launch into a ceiling."""
    assert result.summary is not None
    value = result.summary.median
    slowest, fastest = known.get(key, Launches(value, value))
    worse, better = (max, min) if result.quantity == "latency_s" else (min, max)
    known[key] = Launches(worse(slowest, value), better(fastest, value))

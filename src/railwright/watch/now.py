"""The rates of each kind of counter during a recording, in bins of a tenth of a second.

The bins grow with the recording, so that an hour can be redrawn each second without rereading it.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from itertools import pairwise

from railwright.sampling.recording import Recorded
from railwright.sampling.sources import Source

BIN_S = 0.1
_ROUNDING = 1e-6
_LONGEST_STEP_S = 60.0
"""An increase since an older reading counts as if it had happened in the last minute."""

Kind = tuple[str, str]
"""A kind of counter and its unit: processor time in s, network traffic in bytes, power in J or W."""


class Bins:
    """The total increase of the counters of each kind by time; for gauges in W, the energy."""

    def __init__(self) -> None:
        self.kinds: dict[Kind, array[float]] = {}
        self.seconds = 0.0
        """The seconds from the first tick to the last."""
        self._rows = 0
        self._read_s: list[float] = []
        """The time of each source's last reading, from the first tick on."""

    def take(self, recorded: Recorded) -> None:
        """Add the rows since the last call."""
        sources, times = recorded.about.sources, recorded.times_s
        rows = len(times)
        if not rows:
            return
        if not self._read_s:
            self._read_s = [0.0] * len(sources)
            self.kinds = {(one.kind, one.unit): array("d") for one in sources if _is_shown(one)}
        new_s = [one - times[0] for one in times[self._rows : rows]]
        for number, source in enumerate(sources):
            if _is_shown(source):
                self._take_source(number, source, new_s, recorded)
        self._rows, self.seconds = rows, times[rows - 1] - times[0]

    def _take_source(self, number: int, source: Source, times_s: Sequence[float], recorded: Recorded) -> None:
        bins, before_s = self.kinds[source.kind, source.unit], self._read_s[number]
        steps = recorded.moved[number][self._rows : self._rows + len(times_s)]
        for at_s, step in zip(times_s, steps, strict=True):
            if step == step:
                _spread(bins, before_s, at_s, step * (at_s - before_s) if source.gauge else step)
                before_s = at_s
        self._read_s[number] = before_s

    def rates(self, kind: Kind, begin_s: float, end_s: float, columns: int) -> list[float]:
        """Return the mean rates, in units per second, of equal parts of a recorded period."""
        bins = self.kinds[kind]
        step_s = (end_s - begin_s) / columns
        edges = [int((begin_s + step_s * column) / BIN_S + _ROUNDING) for column in range(columns + 1)]
        whole = [(low, max(low + 1, high)) for low, high in pairwise(edges)]
        return [sum(bins[low:high]) / ((high - low) * BIN_S) for low, high in whole]


def longest_recording_s(watched: Iterable[tuple[str, Bins | str]]) -> float:
    """Return the duration of the longest recording in seconds; 0 if there are none."""
    return max((one.seconds for _, one in watched if isinstance(one, Bins)), default=0.0)


def _is_shown(source: Source) -> bool:
    return not source.seldom and (not source.gauge or source.unit == "W")


def _spread(bins: array[float], begin_s: float, end_s: float, amount: float) -> None:
    """Add an amount evenly to the bins of a period."""
    begin_s = max(begin_s, end_s - _LONGEST_STEP_S)
    first, last = int(begin_s / BIN_S), int(end_s / BIN_S)
    if last >= len(bins):
        bins.extend([0.0] * (last + 1 - len(bins)))
    if first == last:
        bins[last] += amount
        return
    per_s = amount / (end_s - begin_s)
    for number in range(first, last + 1):
        share_s = min(end_s, (number + 1) * BIN_S) - max(begin_s, number * BIN_S)
        bins[number] += per_s * max(0.0, share_s)

"""The time that a plan still needs, from its estimate and the pace of what was done so far."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

from railwright.units import format_duration

_TRUST = 0.1
"""The share of the plan that its own estimate weighs against the measured pace: one long launch says little."""


@dataclass
class TimeLeft:
    """The planned duration, the part that is done, and when that was."""

    planned_s: float
    clock: Callable[[], float] = time.monotonic
    _done_s: float = 0.0
    _begun: float = field(init=False)
    _last: float = field(init=False)

    def __post_init__(self) -> None:
        self._begun = self._last = self.clock()

    def advance(self, planned_s: float) -> None:
        """Count a finished part of the plan."""
        self._done_s += planned_s
        self._last = self.clock()

    def estimate(self) -> float:
        """Return the seconds left; 0 if the plan should be over."""
        trust = _TRUST * self.planned_s
        pace = (self._last - self._begun + trust) / (self._done_s + trust) if trust else 0.0
        return max(0.0, (self.planned_s - self._done_s) * pace - (self.clock() - self._last))

    def __str__(self) -> str:
        return f"about {format_duration(self.estimate())} left"

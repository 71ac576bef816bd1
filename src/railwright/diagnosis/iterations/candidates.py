"""Candidate periods from the autocorrelation of curves."""

from __future__ import annotations

import math
from typing import NamedTuple

from railwright.diagnosis.iterations.correlation import Correlation

MIN_UPDATES = 3
"""A period shorter than this many updates of its source may be an alias of another one."""
MIN_ITERATIONS = 5
"""Our choice: fewer iterations may be chance."""
_FINE_BELOW = 40
"""Lags below this are searched in eighths of a sample."""
_STEPS = 8
_NEAR_BEST_SHARE = 0.8
"""Our choice: the shortest lag nearly as good as the best is the period, the others are its multiples."""
_RIVAL_SHARE, _MAX_RIVALS = 0.3, 4
_FEW, _NEAR_BEST_SHARE_OF_FEW = 6.0, 0.5
_MAX_MULTIPLES = 12
_MIN_HEIGHT = 0.12
_CHANCE, _CHANCE_ALIKE = 5.0, 3.0
"""Deviations of the correlation of pure noise, and of slowly varying curves: our choice, by trial on curves without a
period.
"""


class Peak(NamedTuple):
    """A lag at which curves correlate with themselves."""

    lag: float
    """In samples."""
    height: float
    """The correlation; 1 means exact repetition."""


def find_peaks(correlation: Correlation) -> list[Peak]:
    """Return the local maxima up to the longest lag that MIN_ITERATIONS allows, by lag."""
    longest = correlation.count / MIN_ITERATIONS
    if correlation.is_still or longest < 2:
        return []
    fine = [step / _STEPS for step in range(_STEPS, int(min(longest, _FINE_BELOW) * _STEPS) + 1)]
    lags = fine + [float(lag) for lag in range(_FINE_BELOW + 1, int(longest) + 1)]
    heights = [correlation.value_at(lag) for lag in lags]
    found = []
    for number in range(1, len(lags) - 1):
        before, here, after = heights[number - 1 : number + 2]
        if here >= before and here > after:
            step = lags[number + 1] - lags[number]
            bend = before - 2 * here + after
            off = 0.5 * (before - after) / bend if bend < 0 else 0.0
            found.append(Peak(lags[number] + off * step, here - 0.25 * (before - after) * off))
    return found


def _is_likely(correlation: Correlation, peak: Peak) -> bool:
    """Report whether the peak repeats at its multiples and follows a valley."""
    return _repeats(correlation, peak) and _has_valley(correlation, peak)


def _chance_height(correlation: Correlation) -> float:
    """Return a height that a curve without a period hardly reaches; correlated neighbours count as fewer samples.

    The deviation of the correlation at long lags follows Bartlett (1946), from the lags before the first valley.
    """
    alike = 0.0
    for value in correlation.integer_lags()[1:]:
        if value <= 0:
            break
        alike += value * value
    count = max(1, correlation.count)
    return max(_CHANCE / math.sqrt(count), _CHANCE_ALIKE * math.sqrt((1 + 2 * alike) / count))


class Claim(NamedTuple):
    """The apparent period of curves."""

    peak: Peak
    shorter: list[Peak]
    """Weaker shorter lags, which may be the periods of two jobs that share the counters."""


def find_claim(correlation: Correlation) -> Claim | None:
    """Return the claim of the shortest lag that is nearly as good as the best and not by chance; None without one."""
    floor = max(_MIN_HEIGHT, _chance_height(correlation))
    high = [peak for peak in find_peaks(correlation) if peak.height > floor]
    found = [peak for peak in high if _is_likely(correlation, peak)]
    best = max((peak.height for peak in found), default=0.0)
    for peak in found:
        # With few samples per period the edges fall on different samples, and on the same ones only at a multiple.
        if peak.height >= (_NEAR_BEST_SHARE if peak.lag > _FEW else _NEAR_BEST_SHARE_OF_FEW) * best:
            rivals = [
                one for one in high if MIN_UPDATES <= one.lag < 0.6 * peak.lag and one.height >= _RIVAL_SHARE * best
            ]
            rivals = sorted(rivals, key=lambda one: one.height, reverse=True)[:_MAX_RIVALS]
            return Claim(_refine_lag(correlation, peak), [_refine_lag(correlation, one) for one in sorted(rivals)])
    return None


def _refine_lag(correlation: Correlation, peak: Peak) -> Peak:
    """Refine a lag from the places of its multiples, as long as they are similar."""
    lag = peak.lag
    for multiple in range(2, _MAX_MULTIPLES + 1):
        middle, reach = multiple * lag, min(0.4 * lag, max(1.0, 0.02 * multiple * lag))
        if middle + reach >= len(correlation) - 1:
            break
        steps = [middle + reach * step / 16 for step in range(-16, 17)]
        height, place = max((correlation.value_at(one), one) for one in steps)
        if height < 0.5 * peak.height:
            break
        lag = place / multiple
    return Peak(lag, peak.height)


def _repeats(correlation: Correlation, peak: Peak) -> bool:
    """Report whether the peak repeats at two and three times the lag, within a drift."""
    heights = []
    for multiple in (2, 3):
        middle = multiple * peak.lag
        reach = max(1.0, 0.03 * middle)
        steps = [middle + reach * step / 6 for step in range(-6, 7)]
        heights.append(max(correlation.value_at(lag) for lag in steps if 0 < lag < len(correlation) - 1))
    return sum(heights) / 2 > 0.5 * peak.height


def _has_valley(correlation: Correlation, peak: Peak) -> bool:
    """Report whether a valley precedes the peak; slow curves correlate at every short lag."""
    steps = [peak.lag * part / 16 for part in range(4, 14)]
    return peak.height - min(correlation.value_at(lag) for lag in steps) > 0.5 * peak.height

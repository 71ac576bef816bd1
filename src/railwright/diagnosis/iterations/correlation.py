"""The autocorrelation of curves by Fourier transforms, in plain Python because the base install has no numpy."""

from __future__ import annotations

import cmath
import functools
import math
import operator
from collections.abc import Sequence

_TAPS = 8
"""Taps on each side of the interpolation between two lags."""


@functools.cache
def _twiddle_factors(count: int) -> tuple[complex, ...]:
    return tuple(cmath.exp(-2j * math.pi * number / count) for number in range(count // 2))


def transform(values: list[complex]) -> list[complex]:
    """Return the discrete Fourier transform of 2^n values, at least 4 (Cooley and Tukey 1965)."""
    count = len(values)
    if count == 4:
        first, second, third, last = values
        left, right, apart = first + third, second + last, second - last
        turned_apart, rest = complex(apart.imag, -apart.real), first - third
        return [left + right, rest + turned_apart, left - right, rest - turned_apart]
    even, odd = transform(values[::2]), transform(values[1::2])
    turned = list(map(operator.mul, _twiddle_factors(count), odd))
    return [*map(operator.add, even, turned), *map(operator.sub, even, turned)]


@functools.lru_cache(maxsize=4096)
def _tap_weights(part: float) -> tuple[float, ...]:
    """Return the weights of the taps around a lag that lies `part` of a sample above an integer lag."""
    aways = [math.pi * (part - tap) for tap in range(1 - _TAPS, _TAPS + 1)]
    return tuple(math.sin(away) / away * math.cos(away / (2 * _TAPS)) ** 2 for away in aways)


def standardise(values: Sequence[float]) -> list[float]:
    """Scale values to mean 0 and deviation 1; constant values become zero."""
    mean = math.fsum(values) / len(values)
    deviation = math.sqrt(math.fsum((value - mean) ** 2 for value in values) / len(values))
    if deviation <= 1e-9 * max(abs(mean), 1e-300):
        return [0.0] * len(values)
    return [(value - mean) / deviation for value in values]


class Correlation:
    """The mean autocorrelation of one or two curves, 1 at lag 0, also at fractional lags."""

    def __init__(self, curves: Sequence[Sequence[float]]) -> None:
        first, second = ([*curves, []])[:2] if curves else ([], [])
        count = len(first)
        room = 1 << max(2, (2 * count - 1).bit_length())
        real = standardise(first) if count else []
        other = standardise(second) if second else [0.0] * count
        # The real part of the autocorrelation of x + iy is the sum of those of x and y.
        packed = [complex(x, y) for x, y in zip(real, other, strict=True)] + [0j] * (room - count)
        self.power = [abs(one) ** 2 for one in transform(packed)]
        lags = transform([complex(one) for one in self.power])
        whole = lags[0].real or 1.0
        self.count = count
        self.is_still = lags[0].real <= 0
        self._values = [lags[lag].real / whole * count / (count - lag) for lag in range(count * 3 // 4)]
        below_zero = self._values[_TAPS - 1 : 0 : -1]  # the correlation is symmetric
        self._both_sides, self._mirrored = below_zero + self._values, len(below_zero)

    def __len__(self) -> int:
        return len(self._values)

    def value_at(self, lag: float) -> float:
        """Return the correlation at a lag below three quarters of the samples, interpolated between integer lags."""
        below = math.floor(lag)
        part = lag - below
        if part < 1e-9:
            return self._values[below]
        first = self._mirrored + below + 1 - _TAPS
        lacking = max(0, -first)
        values = self._both_sides[first + lacking : first + 2 * _TAPS]
        weights = _tap_weights(part)[lacking : lacking + len(values)]
        total: float = sum(map(operator.mul, weights, values))
        return total / (sum(weights) or 1.0)

    def integer_lags(self) -> Sequence[float]:
        """Return the correlation at integer lags."""
        return self._values

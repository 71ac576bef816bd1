"""Numbers as a tool printed them, with the range of values that round to them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from decimal import Decimal
from typing import NamedTuple

from railwright.results.possible import LARGEST
from railwright.results.readers.pasted.log_lines import refusal

_NUMBER = re.compile(r"\d{1,24}(?:\.\d{1,24})?(?:[eE][+-]?\d{1,3})?|\.\d{1,24}")
_WHOLE = re.compile(r"\d{1,19}")

Range = tuple[float, float]


class Number(NamedTuple):
    """A printed number with half a unit of its last digit, the possible rounding."""

    value: float
    half: float
    text: str

    @property
    def low(self) -> float:
        """The minimum value that prints like this."""
        return max(0.0, self.value - self.half)

    @property
    def high(self) -> float:
        """The maximum value that prints like this."""
        return self.value + self.half

    def range(self, scale: float = 1.0) -> Range:
        """Return the minimum and the maximum value, each multiplied by `scale`."""
        return self.low * scale, self.high * scale


def number(token: str, what: str, line: int) -> Number:
    """Parse a finite number of zero or more.

    Raises UsageError with the value for nan, inf, a sign, or anything else.
    """
    if _NUMBER.fullmatch(token) is None:
        raise refusal(line, f"{what} must be a number of zero or more, got {token[:40]!r}")
    exponent = Decimal(token).as_tuple().exponent
    value = float(token)
    if value > LARGEST or not isinstance(exponent, int):
        raise refusal(line, f"{what} must be at most {LARGEST:g}, got {token[:40]!r}")
    return Number(value, 0.5 * 10.0**exponent * 1.001, token)  # 1.001: a tie may be rounded either way


def parse_integer(token: str, what: str, line: int) -> int:
    """Parse a non-negative integer. Raises UsageError with the value."""
    if _WHOLE.fullmatch(token) is None:
        raise refusal(line, f"{what} must be a whole number, got {token[:40]!r}")
    return int(token)


def overlap(one: Range, other: Range) -> bool:
    """Report whether two ranges have a common value, to the precision of a float."""
    (low, high), (other_low, other_high) = one, other
    slack = 1e-9 * max(abs(high), abs(other_high))
    return low <= other_high + slack and other_low <= high + slack


def disagree(printed: float, computed: float, part: float, slack: float = 0.0) -> bool:
    """Report whether a printed and a computed value differ by more than `part` of the larger, plus `slack`."""
    return abs(printed - computed) > part * max(printed, computed) + slack


def parse_mean(words: Sequence[str], what: str, line: int) -> Number:
    """Return the mean that follows the maximum and the minimum. Raises UsageError if it is not between them."""
    maximum, minimum, mean = (number(word, what, line) for word in words)
    refuse_outside("mean", mean, minimum, maximum, line)
    return mean


def refuse_outside(what: str, mean: Number, minimum: Number, maximum: Number, line: int, unit: str = "") -> None:
    """Check that a mean lies between the minimum and the maximum. Raises UsageError otherwise."""
    if not (minimum.low <= mean.high and mean.low <= maximum.high):
        between = f"{minimum.text} and {maximum.text}{unit}"
        raise refusal(line, f"the {what} must be between {between}, got {mean.text}{unit}")

"""Numbers as a tool printed them, with the range of values that is rounded to them."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from decimal import Decimal
from typing import NamedTuple

from railwright.results.readers.pasted.log_lines import refusal

_NUMBER = re.compile(r"\d{1,24}(?:\.\d{1,24})?(?:[eE][+-]?\d{1,3})?|\.\d{1,24}")
_WHOLE = re.compile(r"\d{1,19}")

Range = tuple[float, float]


class Number(NamedTuple):
    """A printed number with half a unit of its last digit, by which it may have been rounded."""

    value: float
    half: float
    text: str

    @property
    def low(self) -> float:
        """The least value that prints like this."""
        return max(0.0, self.value - self.half)

    @property
    def high(self) -> float:
        """The greatest value that prints like this."""
        return self.value + self.half

    def range(self, scale: float = 1.0) -> Range:
        """The least and the greatest value, in a unit `scale` times smaller."""
        return self.low * scale, self.high * scale


def number(token: str, what: str, line: int) -> Number:
    """A finite number of zero or more. Raises UsageError with the value for nan, inf, a sign, or anything else."""
    if _NUMBER.fullmatch(token) is None:
        raise refusal(line, f"{what} {token[:40]!r} is not a number of zero or more")
    exponent = Decimal(token).as_tuple().exponent
    value = float(token)
    if not math.isfinite(value) or not isinstance(exponent, int):
        raise refusal(line, f"{what} {token[:40]!r} is not a finite number")
    return Number(value, 0.5 * 10.0**exponent * 1.001, token)  # 1.001: a tie may be rounded either way


def whole(token: str, what: str, line: int) -> int:
    """A whole number of zero or more. Raises UsageError with the value."""
    if _WHOLE.fullmatch(token) is None:
        raise refusal(line, f"{what} {token[:40]!r} is not a whole number")
    return int(token)


def overlap(one: Range, other: Range) -> bool:
    """Whether two ranges have a value in common, to the precision of a float."""
    (low, high), (other_low, other_high) = one, other
    slack = 1e-9 * max(abs(high), abs(other_high))
    return low <= other_high + slack and other_low <= high + slack


def disagree(told: float, counted: float, part: float, slack: float = 0.0) -> bool:
    """Whether what a tool told and what its other numbers give differ by more than a part of the larger, and slack."""
    return abs(told - counted) > part * max(told, counted) + slack


def mean_of(words: Sequence[str], what: str, line: int) -> Number:
    """The mean behind the most and the least. Raises UsageError for one that is not between them."""
    most, least, mean = (number(word, what, line) for word in words)
    refuse_outside("mean", mean, least, most, line)
    return mean


def refuse_outside(what: str, mean: Number, least: Number, most: Number, line: int, unit: str = "") -> None:
    """Raises UsageError for a mean that is not between the least and the most."""
    if not (least.low <= mean.high and mean.low <= most.high):
        raise refusal(line, f"the {what} {mean.text}{unit} is not between {least.text} and {most.text}{unit}")

"""Environment variables that cause a fault, with the harmful values and the cost."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

_MAX_SHOWN = 80
_MAX_DIGITS = 18
"""The maximum number of digits: such a number fits 64 bits and exceeds every meaningful setting."""


class Cause(NamedTuple):
    """A predicate for harmful values, and their effect as a clause."""

    when: Callable[[str], bool]
    does: str


class Settings(NamedTuple):
    """The variables that cause a fault, with their common cost and remedy."""

    causes: Mapping[str, Cause]
    costs: str
    remedy: str


def is_one_of(*values: str) -> Callable[[str], bool]:
    """Return a predicate for these values, ignoring case."""
    upper = tuple(value.upper() for value in values)
    return lambda value: value.strip().upper() in upper


def is_below(limit: int) -> Callable[[str], bool]:
    """Return a predicate for non-negative integers below the limit."""
    return lambda value: (number := parse_integer(value)) is not None and number < limit


def parse_integer(value: str) -> int | None:
    """Parse a non-negative integer of at most 18 digits; None for other text."""
    text = value.strip()
    return int(text) if text.isascii() and text.isdigit() and len(text) <= _MAX_DIGITS else None


def short(value: str) -> str:
    """Truncate a value for display."""
    return value if len(value) <= _MAX_SHOWN else f"{value[:_MAX_SHOWN]} ..."

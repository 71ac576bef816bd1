"""Environment variables that make a fault: which, from which value on, and what that costs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

_LONGEST_SHOWN = 80
_LONGEST_NUMBER = 18
"""Digits: more than any of these settings can mean, and what an int of 64 bits holds."""


class Cause(NamedTuple):
    """When a value makes the fault, and what it then does, as a clause."""

    when: Callable[[str], bool]
    does: str


class Settings(NamedTuple):
    """The variables that make a fault, with what all of them cost and what to do about them."""

    causes: Mapping[str, Cause]
    costs: str
    remedy: str


def is_one_of(*values: str) -> Callable[[str], bool]:
    """Whether the value is one of these, in upper or lower case."""
    upper = tuple(value.upper() for value in values)
    return lambda value: value.strip().upper() in upper


def is_below(limit: int) -> Callable[[str], bool]:
    """Whether the value is a whole number from 0 to below the limit."""
    return lambda value: (number := whole_number(value)) is not None and number < limit


def whole_number(value: str) -> int | None:
    """A number that one of these settings can mean; None for other words."""
    text = value.strip()
    return int(text) if text.isascii() and text.isdigit() and len(text) <= _LONGEST_NUMBER else None


def short(value: str) -> str:
    """As much of a value as is shown."""
    return value if len(value) <= _LONGEST_SHOWN else f"{value[:_LONGEST_SHOWN]} ..."

"""Environment variables that make a fault, wherever they were recorded: with the run, or with a result."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

from railwright.faults.model import Facts, Finding
from railwright.results.model import Evidence

_PREFIXES = ("NCCL_", "UCX_")
_LONGEST_SHOWN = 80
_LONGEST_NUMBER = 18
"""Digits: more than any of these settings can mean, and what an int of 64 bits holds."""


class Cause(NamedTuple):
    """When a value makes the fault, and what it then does, as a clause."""

    when: Callable[[str], bool]
    does: str


def is_one_of(*values: str) -> Callable[[str], bool]:
    """Whether the value is one of these, in upper or lower case."""
    upper = tuple(value.upper() for value in values)
    return lambda value: value.strip().upper() in upper


def is_below(limit: int) -> Callable[[str], bool]:
    """Whether the value is a whole number from 0 to below the limit."""
    return lambda value: (number := _number(value)) is not None and number < limit


def _number(value: str) -> int | None:
    text = value.strip()
    return int(text) if text.isascii() and text.isdigit() and len(text) <= _LONGEST_NUMBER else None


def look_at_settings(
    facts: Facts, fault: str, causes: Mapping[str, Cause], *, costs: str, remedy: str
) -> tuple[Finding, ...]:
    """A finding for each recorded setting that makes the fault."""
    found: dict[tuple[str, str], list[tuple[str, str]]] = {}
    for name, value, where, seen in _recorded(facts):
        if name in causes and causes[name].when(value):
            found.setdefault((name, value), []).append((where, seen))
    return tuple(
        Finding(
            fault=fault,
            where=tuple(dict.fromkeys(where for where, _ in places)),
            certainty="seen",
            says=f"{name}={_short(value)} {causes[name].does}",
            costs=costs,
            remedy=remedy,
            evidence=(Evidence(claim="setting", value=f"{name}={_short(value)}", seen=places[0][1]),),
        )
        for (name, value), places in found.items()
    )


def _recorded(facts: Facts) -> Iterator[tuple[str, str, str, str]]:
    """(name, value, where, how it is known)."""
    for name, value in facts.environment.items():
        yield name, value, "environment", "environment of the run"
    for result in facts.results:
        for name, setting in result.settings.items():
            if name.startswith(_PREFIXES):
                yield name, str(setting), result.benchmark, f"settings of {result.benchmark}"


def _short(value: str) -> str:
    return value if len(value) <= _LONGEST_SHOWN else f"{value[:_LONGEST_SHOWN]} ..."

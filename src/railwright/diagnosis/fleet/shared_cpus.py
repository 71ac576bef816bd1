"""Suspects between hosts that share CPUs, which may be the cause of a low rate."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from railwright.diagnosis.fleet.between_hosts import SHARED
from railwright.diagnosis.localise.records import Suspect
from railwright.results.statistics import quantile

_CLEARLY_SLOW = 0.6
"""The share of its rate below which a suspect is slow even beside the noise of shared CPUs."""
_AGREEING = 0.8
_BY_RATE = ("slow", "slow or occupied", "occupied", "lossy", "stalls", "flapping")


def filter_suspects(
    suspects: Iterable[Suspect], *, compare: bool, cpus_suffice: bool = False
) -> tuple[tuple[Suspect, ...], tuple[str, ...]]:
    """Split suspects into valid ones and notes on those that shared CPUs may explain.

    On hosts that share CPUs a clearly slow suspect is valid if the CPUs did not limit the flows.
    """
    all_suspects = tuple(suspects)
    if compare:
        return all_suspects, ()
    doubted = [
        suspect
        for suspect in all_suspects
        if suspect.verdict in _BY_RATE and not (cpus_suffice and suspect.capacity < _CLEARLY_SLOW)
    ]
    notes = tuple(
        f"{suspect.kind} {suspect.id} was at {suspect.capacity:.0%} of its rate: {SHARED}" for suspect in doubted
    )
    return tuple(suspect for suspect in all_suspects if suspect not in doubted), notes


def are_limited_by_links(flows: Iterable[tuple[str, str, float]], suspects: Collection[Suspect]) -> bool:
    """Report whether flows, as (source, destination, ratio), agree so closely that links and not CPUs limited them.

    Flows that a suspect slows do not count.
    """
    sends = [one.id for one in suspects if one.direction != "down"]
    receives = [one.id for one in suspects if one.direction != "up"]

    def is_of(end: str, named: list[str]) -> bool:
        return any(end == name or end.startswith(f"{name}:") for name in named)

    ratios = sorted(
        ratio for source, destination, ratio in flows if not is_of(source, sends) and not is_of(destination, receives)
    )
    return len(ratios) > 1 and quantile(ratios, 0.1) >= _AGREEING * quantile(ratios, 0.9)

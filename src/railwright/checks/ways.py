"""What a way of doing something takes, thing by thing: for the checklists of faults."""

from __future__ import annotations

import re

from railwright.checks.check import Asked, Way
from railwright.checks.host_settings import setting
from railwright.limits.limit import Constant
from railwright.topology.devices import Scalar, Topology


def version_below(text: str, least: tuple[Constant, ...]) -> bool | None:
    """Whether `6.8.0-41-generic` is below a version; None where it is no version."""
    match = re.match(r"(\d{1,3})\.(\d{1,4})", text)
    return None if match is None else (int(match[1]), int(match[2])) < tuple(part.value for part in least)


def way(name: str, asked: tuple[Asked, ...], *, decided: bool | None = None, used: str = "") -> Way:
    """All that was asked for must be there, unless the last one decides, or it is used all the same."""
    if used:
        return Way(way=name, verdict="in use", because=used, asked=asked)
    missing = [one.what for one in asked if one.there is False]
    blind = [one.what for one in asked if one.there is None]
    if decided or not (missing or blind):
        return Way(way=name, verdict="possible", because="", asked=asked)
    if missing:
        return Way(way=name, verdict="missing", because=", ".join(missing), asked=asked)
    return Way(way=name, verdict="cannot be told", because=", ".join(blind), asked=asked)


def open_module(topology: Topology) -> Asked:
    """NVIDIA's open kernel modules, which are loaded or not."""
    module = setting(topology, "nvidia_module")
    there = module == "open" if module in ("open", "proprietary") else None
    return Asked(what="NVIDIA's open kernel modules", there=there, seen="/proc/driver/nvidia/version")


def at_least(what: str, least: tuple[Constant, ...], value: Scalar | None) -> Asked:
    """A version that is new enough; None is one that nobody could read."""
    below = None if value is None else version_below(str(value), least)
    wanted = ".".join(f"{part.value:g}" for part in least)
    there = None if below is None else not below
    return Asked(what=f"{what} {wanted} or later", there=there, seen=str(value or "")[:80])

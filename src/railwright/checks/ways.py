"""Prerequisites of ways, for the checklists of faults."""

from __future__ import annotations

import re

from railwright.checks.check import Prerequisite, Way
from railwright.checks.host_settings import setting
from railwright.limits.limit import Constant
from railwright.topology.devices import Scalar, Topology


def is_older_version(text: str, least: tuple[Constant, ...]) -> bool | None:
    """Report whether a version such as `6.8.0-41-generic` is below `least`; None if it is not a version."""
    match = re.match(r"(\d{1,3})\.(\d{1,4})", text)
    return None if match is None else (int(match[1]), int(match[2])) < tuple(part.value for part in least)


def way(name: str, asked: tuple[Prerequisite, ...], *, decided: bool | None = None, used: str = "") -> Way:
    """Judge a way by its prerequisites. A true `decided` and evidence of use override missing prerequisites."""
    if used:
        return Way(way=name, verdict="in use", because=used, asked=asked)
    missing = [item.what for item in asked if item.there is False]
    blind = [item.what for item in asked if item.there is None]
    if decided or not (missing or blind):
        return Way(way=name, verdict="possible", because="", asked=asked)
    if missing:
        return Way(way=name, verdict="missing", because=", ".join(missing), asked=asked)
    return Way(way=name, verdict="cannot be told", because=", ".join(blind), asked=asked)


def open_module(topology: Topology) -> Prerequisite:
    """Return the prerequisite that NVIDIA's open kernel modules are loaded."""
    module = setting(topology, "nvidia_module")
    there = module == "open" if module in ("open", "proprietary") else None
    return Prerequisite(what="NVIDIA's open kernel modules", there=there, seen="/proc/driver/nvidia/version")


def require_version(what: str, least: tuple[Constant, ...], value: Scalar | None) -> Prerequisite:
    """Return the prerequisite of a minimum version; a value of None means that the version could not be read."""
    below = None if value is None else is_older_version(str(value), least)
    wanted = ".".join(f"{part.value:g}" for part in least)
    there = None if below is None else not below
    return Prerequisite(what=f"{what} {wanted} or later", there=there, seen=str(value or "")[:80])

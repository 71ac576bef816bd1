"""What RDMA ports are set to, by programs that ask their driver: PFC, DSCP, pauses, and whether they take flows of tc.

`dcb -j pfc show` and `dcb -j app show` of iproute2, or `mlnx_qos` where dcb says nothing; `ethtool --json -a` and `-k`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from railwright.topology.devices import Scalar
from railwright.topology.settings import NONE
from railwright.topology.sources.network import REPRESENTOR
from railwright.topology.sources.tools_model import MOST, PortSettings

_PRIORITIES, _DSCPS = 8, 64
_TRUST = re.compile(r"(?m)^\s*Priority trust state:\s*(pcp|dscp)\s*$")
_ENABLED = re.compile(r"(?m)^\s*enabled((?:\s+[01]){8})\s*$")
_OF_PRIORITY = re.compile(r"(?m)^\s*prio:([0-7])\s+dscp:((?:\d{2},)+)\s*$")


def ask_ports(said: Callable[..., str | None]) -> tuple[PortSettings, ...]:
    """Of the netdevs of RDMA devices; not of representors, of which a port has as many as VFs.

    `said` gives what a program prints, by the program and its words; None where there is none, or it failed.
    """
    netdevs = [entry.parents[1] for entry in sorted(Path("/sys/class/net").glob("*/device/infiniband"))]
    found = [ask_port(said, one.name) for one in [netdev for netdev in netdevs if not is_representor(netdev)][:MOST]]
    return tuple(one for one in found if one != PortSettings(netdev=one.netdev))


def ask_port(said: Callable[..., str | None], netdev: str) -> PortSettings:
    """Of one netdev; `mlnx_qos` fills what `dcb` leaves open."""
    lossless = lossless_of_dcb(said("dcb", "-j", "pfc", "show", "dev", netdev) or "")
    dscp = dscp_of_dcb(said("dcb", "-j", "app", "show", "dev", netdev) or "")
    if lossless is None or dscp is None:
        told = said("mlnx_qos", "-i", netdev) or ""
        lossless = lossless_of_mlnx_qos(told) if lossless is None else lossless
        dscp = dscp_of_mlnx_qos(told) if dscp is None else dscp
    return PortSettings(
        netdev=netdev,
        lossless=lossless,
        dscp=dscp,
        pause=pause_of(said("ethtool", "--json", "-a", netdev) or ""),
        tc_offload=tc_offload_of(said("ethtool", "--json", "-k", netdev) or ""),
    )


def is_representor(netdev: Path) -> bool:
    """Whether a netdev of sysfs stands for a VF or an SF of its device."""
    try:
        return REPRESENTOR.fullmatch((netdev / "phys_port_name").read_text().strip()) is not None
    except (OSError, UnicodeDecodeError):  # most drivers have no such name
        return False


def lossless_of_dcb(said: str) -> tuple[int, ...] | None:
    """The lossless priorities in what `dcb -j pfc show` prints: `{"prio_pfc": [false, ... true ...]}`; None without."""
    every = (_object(said) or {}).get("prio_pfc")
    if not isinstance(every, list) or len(every) > _PRIORITIES or not all(one in (0, 1) for one in every):
        return None
    return tuple(number for number, lossless in enumerate(every) if lossless)


def dscp_of_dcb(said: str) -> tuple[tuple[int, int], ...] | None:
    """What `dcb -j app show` prints: `{"dscp_prio": [[26, 3]]}`, nothing where none is set; None for other words."""
    told = _object(said)
    try:
        pairs = msgspec.convert(None if told is None else told.get("dscp_prio", []), list[tuple[int, int]], strict=True)
    except msgspec.ValidationError:
        return None
    well = len(pairs) <= MOST and all(0 <= dscp < _DSCPS and 0 <= one < _PRIORITIES for dscp, one in pairs)
    return tuple(sorted(set(pairs))) if well else None


def lossless_of_mlnx_qos(said: str) -> tuple[int, ...] | None:
    """The lossless priorities in what `mlnx_qos -i` prints: `enabled 0 0 0 1 0 0 0 0`; None for other words."""
    told = _ENABLED.findall(said)
    return tuple(number for number, word in enumerate(told[0].split()) if word == "1") if len(told) == 1 else None


def dscp_of_mlnx_qos(said: str) -> tuple[tuple[int, int], ...] | None:
    """Its table `prio:3 dscp:26,`, which a port heeds that trusts DSCP, and else none; None for other words."""
    trust = _TRUST.findall(said)
    if trust == ["pcp"]:
        return ()
    pairs = {(int(dscp), int(one)) for one, all_of in _OF_PRIORITY.findall(said) for dscp in all_of.split(",")[:-1]}
    well = trust == ["dscp"] and all(dscp < _DSCPS for dscp, _ in pairs)
    return tuple(sorted(pairs)) if well else None


def pause_of(said: str) -> tuple[bool, bool] | None:
    """Whether the port heeds and sends pauses of all its traffic, by `ethtool --json -a`; None for other words."""
    told = _object(said) or {}
    heeds, sends = told.get("rx"), told.get("tx")
    return (heeds, sends) if isinstance(heeds, bool) and isinstance(sends, bool) else None


def tc_offload_of(said: str) -> bool | None:
    """Whether the NIC takes flows of tc, by `ethtool --json -k`; None where the driver has no such feature."""
    told = (_object(said) or {}).get("hw-tc-offload")
    if not isinstance(told, dict) or not isinstance(active := told.get("active"), bool):
        return None
    return None if not active and told.get("fixed") is True else active


def _object(said: str) -> dict[str, Any] | None:
    """The object that a program printed, which some print in a list; None for other words."""
    try:
        told = json.loads(said)
    except (ValueError, RecursionError):
        return None
    told = told[0] if isinstance(told, list) and told else told
    return told if isinstance(told, dict) else None


def port_settings(told: PortSettings) -> dict[str, Scalar]:
    """The facts of the NIC of a port; none for values that cannot be."""
    facts: dict[str, Scalar] = {}
    if told.lossless is not None and all(0 <= number < _PRIORITIES for number in told.lossless):
        facts["lossless_priorities"] = ",".join(map(str, told.lossless)) or NONE
    if told.dscp is not None and all(0 <= one < _DSCPS for pair in told.dscp for one in pair):
        facts["dscp_priorities"] = " ".join(f"{dscp}:{priority}" for dscp, priority in told.dscp[:_DSCPS]) or NONE
    if told.pause is not None:
        facts["pause"] = " ".join(name for name, on in zip(("rx", "tx"), told.pause, strict=True) if on) or NONE
    if told.tc_offload is not None:
        facts["tc_offload"] = told.tc_offload
    return facts

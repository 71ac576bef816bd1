"""Settings of RDMA ports, from programs that query the driver: PFC, DSCP, pause frames, and offload of tc flows.

`dcb -j pfc show` and `dcb -j app show` of iproute2, or `mlnx_qos` if dcb gives no answer; `ethtool --json -a` and `-k`.
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
_PRIORITY_DSCPS = re.compile(r"(?m)^\s*prio:([0-7])\s+dscp:((?:\d{2},)+)\s*$")


def ask_ports(run_tool: Callable[..., str | None]) -> tuple[PortSettings, ...]:
    """Return the settings of the netdevs of RDMA devices, without representors, of which a port has one per VF.

    `run_tool` returns the output of a program by its name and arguments; None if it is missing or failed.
    """
    netdevs = [entry.parents[1] for entry in sorted(Path("/sys/class/net").glob("*/device/infiniband"))]
    found = [
        ask_port(run_tool, port.name) for port in [netdev for netdev in netdevs if not is_representor(netdev)][:MOST]
    ]
    return tuple(port for port in found if port != PortSettings(netdev=port.netdev))


def ask_port(run_tool: Callable[..., str | None], netdev: str) -> PortSettings:
    """Return the settings of a netdev; `mlnx_qos` fills the gaps of `dcb`."""
    lossless = parse_dcb_lossless(run_tool("dcb", "-j", "pfc", "show", "dev", netdev) or "")
    dscp = parse_dcb_dscp(run_tool("dcb", "-j", "app", "show", "dev", netdev) or "")
    if lossless is None or dscp is None:
        qos = run_tool("mlnx_qos", "-i", netdev) or ""
        lossless = parse_mlnx_qos_lossless(qos) if lossless is None else lossless
        dscp = parse_mlnx_qos_dscp(qos) if dscp is None else dscp
    return PortSettings(
        netdev=netdev,
        lossless=lossless,
        dscp=dscp,
        pause=parse_pause(run_tool("ethtool", "--json", "-a", netdev) or ""),
        tc_offload=parse_tc_offload(run_tool("ethtool", "--json", "-k", netdev) or ""),
    )


def is_representor(netdev: Path) -> bool:
    """Report whether a netdev in sysfs stands for a VF or an SF of its device."""
    try:
        return REPRESENTOR.fullmatch((netdev / "phys_port_name").read_text().strip()) is not None
    except (OSError, UnicodeDecodeError):  # most drivers have no such file
        return False


def parse_dcb_lossless(output: str) -> tuple[int, ...] | None:
    """Parse the lossless priorities from `dcb -j pfc show`: `{"prio_pfc": [false, ... true ...]}`; None for other
    text.
    """
    flags = (_parse_object(output) or {}).get("prio_pfc")
    if not isinstance(flags, list) or len(flags) > _PRIORITIES or not all(flag in (0, 1) for flag in flags):
        return None
    return tuple(number for number, lossless in enumerate(flags) if lossless)


def parse_dcb_dscp(output: str) -> tuple[tuple[int, int], ...] | None:
    """Parse `dcb -j app show`: `{"dscp_prio": [[26, 3]]}`; empty if none is set, None for other text."""
    app = _parse_object(output)
    try:
        pairs = msgspec.convert(None if app is None else app.get("dscp_prio", []), list[tuple[int, int]], strict=True)
    except msgspec.ValidationError:
        return None
    is_valid = len(pairs) <= MOST and all(
        0 <= dscp < _DSCPS and 0 <= priority < _PRIORITIES for dscp, priority in pairs
    )
    return tuple(sorted(set(pairs))) if is_valid else None


def parse_mlnx_qos_lossless(output: str) -> tuple[int, ...] | None:
    """Parse the lossless priorities from `mlnx_qos -i`: `enabled 0 0 0 1 0 0 0 0`; None for other text."""
    rows = _ENABLED.findall(output)
    return tuple(number for number, word in enumerate(rows[0].split()) if word == "1") if len(rows) == 1 else None


def parse_mlnx_qos_dscp(output: str) -> tuple[tuple[int, int], ...] | None:
    """Parse the table `prio:3 dscp:26,` of a port that trusts DSCP; empty for a port that trusts PCP, None for other
    text.
    """
    trust = _TRUST.findall(output)
    if trust == ["pcp"]:
        return ()
    pairs = {
        (int(dscp), int(priority))
        for priority, values in _PRIORITY_DSCPS.findall(output)
        for dscp in values.split(",")[:-1]
    }
    is_valid = trust == ["dscp"] and all(dscp < _DSCPS for dscp, _ in pairs)
    return tuple(sorted(pairs)) if is_valid else None


def parse_pause(output: str) -> tuple[bool, bool] | None:
    """Return whether the port honours and sends pause frames, from `ethtool --json -a`; None for other text."""
    pause = _parse_object(output) or {}
    heeds, sends = pause.get("rx"), pause.get("tx")
    return (heeds, sends) if isinstance(heeds, bool) and isinstance(sends, bool) else None


def parse_tc_offload(output: str) -> bool | None:
    """Return whether the NIC offloads tc flows, from `ethtool --json -k`; None if the driver lacks the feature."""
    feature = (_parse_object(output) or {}).get("hw-tc-offload")
    if not isinstance(feature, dict) or not isinstance(active := feature.get("active"), bool):
        return None
    return None if not active and feature.get("fixed") is True else active


def _parse_object(output: str) -> dict[str, Any] | None:
    """Return the object that a program printed, possibly in a list; None for other text."""
    try:
        parsed = json.loads(output)
    except (ValueError, RecursionError):
        return None
    parsed = parsed[0] if isinstance(parsed, list) and parsed else parsed
    return parsed if isinstance(parsed, dict) else None


def port_settings(settings: PortSettings) -> dict[str, Scalar]:
    """Return the facts of a port's NIC, without impossible values."""
    facts: dict[str, Scalar] = {}
    if settings.lossless is not None and all(0 <= number < _PRIORITIES for number in settings.lossless):
        facts["lossless_priorities"] = ",".join(map(str, settings.lossless)) or NONE
    if settings.dscp is not None and all(0 <= value < _DSCPS for pair in settings.dscp for value in pair):
        facts["dscp_priorities"] = " ".join(f"{dscp}:{priority}" for dscp, priority in settings.dscp[:_DSCPS]) or NONE
    if settings.pause is not None:
        facts["pause"] = " ".join(name for name, on in zip(("rx", "tx"), settings.pause, strict=True) if on) or NONE
    if settings.tc_offload is not None:
        facts["tc_offload"] = settings.tc_offload
    return facts

"""Waits until BGP has settled: the kernel of every node has every route of the plan, with every next hop.

The kernel forwards by its own table, which is complete only if all sessions are up, so no daemon is asked.
"""

from __future__ import annotations

import time
from concurrent.futures import Executor
from typing import Any

import msgspec

from railwright.errors import CannotJudge
from railwright.lab.nodes import LabPlan
from railwright.lab.routes import Routes, expected_routes
from railwright.lab.state import Lab
from railwright.process import query

_BGP = "186"  # RTPROT_BGP of linux/rtnetlink.h
_SHOWN = 6


def wait_settled(lab: Lab, executor: Executor, within_s: float) -> None:
    """Return once all routes are in place. Raises CannotJudge, naming missing routes, after `within_s`."""
    expected = expected_routes(lab.plan)
    deadline = time.monotonic() + within_s
    while True:
        missing = missing_routes(lab, expected, executor)
        expected = {name: expected[name] for name in missing}
        if not missing:
            return
        if time.monotonic() > deadline:
            reason = f"after {within_s:.0f} s routes are missing: {describe_missing(lab.plan, missing)}"
            raise CannotJudge(reason, hint="try on an idle machine, or with fewer hosts or NICs")
        time.sleep(0.2)


def missing_routes(lab: Lab, expected: dict[str, Routes], executor: Executor) -> dict[str, Routes]:
    """Return the missing routes of each incomplete node: addresses, with the ports that they lack."""
    kernel_tables = executor.map(lambda name: kernel_routes(lab, name), expected)
    found = {}
    for (name, routes), actual in zip(expected.items(), kernel_tables, strict=True):
        lacking = {address: ports - actual.get(address, frozenset()) for address, ports in routes.items()}
        if lacking := {address: ports for address, ports in lacking.items() if ports}:
            found[name] = lacking
    return found


def kernel_routes(lab: Lab, node: str) -> Routes:
    """Return the BGP routes in the kernel of a node."""
    found: Routes = {}
    for family in ("-6",) if lab.plan.ipv6_only else ("-4", "-6"):
        argv = ["ip", family, "-n", lab.namespace(node), "-j", "route", "show", "proto", _BGP]
        # `ip` prints one long line, which arrives in pieces.
        for route in _decode_routes("".join(query(argv, timeout_s=30).output)):
            hops = route.get("nexthops") or [route]
            address = str(route.get("dst", "")).partition("/")[0]
            found[address] = frozenset(str(hop.get("dev", "")) for hop in hops)
    return found


def _decode_routes(text: str) -> list[dict[str, Any]]:
    try:
        return msgspec.json.decode(text or "[]", type=list[dict[str, Any]])
    except msgspec.DecodeError:
        return []


def describe_missing(plan: LabPlan, missing: dict[str, Routes]) -> str:
    """Describe missing routes: `leaf0: 3 addresses lack a route through spine1; ...`."""
    words = []
    for name, routes in list(missing.items())[:_SHOWN]:
        ports = sorted({port for lacking in routes.values() for port in lacking})
        words.append(f"{name}: {len(routes)} addresses lack a route through {', '.join(ports[:4])}")
    if len(missing) > _SHOWN:
        words.append(f"and {len(missing) - _SHOWN} more of {len(plan.nodes)} nodes")
    return "; ".join(words)

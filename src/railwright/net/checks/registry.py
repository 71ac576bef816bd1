"""The registry of checks, in the order of the report: from the pod outwards."""

from __future__ import annotations

from railwright.net.checks import (
    address,
    bgp,
    chain,
    drops,
    flows,
    gateway,
    interface,
    isolation,
    leaf,
    mtu,
    offload,
    port,
    rdma,
    reach,
    route,
)
from railwright.net.view import Check

CHECKS: tuple[Check, ...] = tuple(
    module.CHECK
    for module in (
        interface,
        chain,
        address,
        port,
        flows,
        route,
        gateway,
        rdma,
        bgp,
        leaf,
        reach,
        mtu,
        isolation,
        drops,
        offload,
    )
)

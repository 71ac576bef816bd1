"""RoCE ports of one host with different settings of link-level pause (IEEE 802.3x), according to `ethtool -a`.

A fabric may pause whole ports, single priorities or none, but the ports of a host must agree. A pause stops every
traffic class, including traffic other than RDMA: NVIDIA/daqiri#250 measured a fifth of 400 Gb/s lost to pauses while
no drop counter moved. IEEE 802.3 annex 31B; ethtool(8).
"""

from __future__ import annotations

from railwright.checks.roce_unlike import make_check
from railwright.topology.gpus import format_runs
from railwright.topology.settings import NONE

_STATES = {
    NONE: "pause off",
    "rx": "pause on receive only",
    "tx": "pause on transmit only",
    "rx tx": "pause on both ways",
}


def _format_difference(names: list[str], value: str, usual: str) -> str:
    return f"{format_runs(names)}: {_STATES.get(value, value)}; most other ports: {_STATES.get(usual, usual)}"


CHECK = make_check(
    "roce_pause_unlike",
    "RoCE ports of a host have different link-level pause settings",
    "RoCE ports have the same link-level pause settings",
    "pause",
    says=_format_difference,
    seen=("link-level pause", "ethtool -a"),
    unread="ethtool -a does not report the pause settings of {}",
    costs="under congestion one side loses packets or stops completely; no cost on an idle fabric",
    remedy="ethtool -A NETDEV rx off tx off, or on, to match the fabric; with PFC, pause is off",
)

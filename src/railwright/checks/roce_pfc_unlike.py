"""RoCE ports of one host with different lossless priorities, according to `dcb pfc show`.

The fabric's design determines the lossless priority, or none if it relies on ECN, but the ports of a host must agree.
IEEE 802.1Qbb; iproute2, dcb-pfc(8).
"""

from __future__ import annotations

from railwright.checks.roce_unlike import LOOK_WITH, make_check
from railwright.topology.gpus import format_runs
from railwright.topology.settings import NONE


def _format_difference(names: list[str], value: str, usual: str) -> str:
    verb = "has" if len(names) == 1 else "have"
    return f"{format_runs(names)} {verb} {_format_priorities(value)}, most others {_format_priorities(usual)}"


def _format_priorities(value: str) -> str:
    return "no lossless priority" if value == NONE else f"lossless priority {value}"


CHECK = make_check(
    "roce_pfc_unlike",
    "RoCE ports of a host have different lossless priorities",
    "RoCE ports have the same lossless priorities",
    "lossless_priorities",
    says=_format_difference,
    seen=("lossless priorities", "dcb pfc show"),
    unread=f"dcb does not report the priorities of {{}}{LOOK_WITH}",
    costs="under congestion one side loses packets, or pauses spread it; no cost on an idle fabric",
    remedy="dcb pfc set dev NETDEV prio-pfc 3:on, with the fabric's values; use mlnx_qos if it manages the port",
)

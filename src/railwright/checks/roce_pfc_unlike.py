"""RoCE ports of one host whose lossless priorities are not the same, by `dcb pfc show`.

Which priority is lossless, or none where ECN alone is to do, is the fabric's design; that the ports of a host differ is
not. IEEE 802.1Qbb; iproute2, dcb-pfc(8).
"""

from __future__ import annotations

from railwright.checks.roce_unlike import LOOK_WITH, unlike
from railwright.topology.gpus import runs
from railwright.topology.settings import NONE


def _says(names: list[str], value: str, usual: str) -> str:
    return f"{runs(names)} {'has' if len(names) == 1 else 'have'} {_words(value)}, most others {_words(usual)}"


def _words(value: str) -> str:
    return "no lossless priority" if value == NONE else f"lossless priority {value}"


CHECK = unlike(
    "roce_pfc_unlike",
    "RoCE ports of a host differ in their lossless priorities",
    "lossless_priorities",
    says=_says,
    seen=("lossless priorities", "dcb pfc show"),
    unread=f"dcb does not tell the priorities of {{}}{LOOK_WITH}",
    costs="packets are lost under congestion on one side, or pauses spread it; none on an idle fabric",
    remedy="dcb pfc set dev NETDEV prio-pfc 3:on, as the fabric is set up; mlnx_qos where that driver decides",
)

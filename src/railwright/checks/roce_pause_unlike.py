"""RoCE ports of one host that differ in pauses of all their traffic (IEEE 802.3x), by `ethtool -a`.

Whether a lossless fabric pauses whole ports, single priorities or none is its design; that the ports of a host differ
is not. A pause stops every class, also what is not RDMA: NVIDIA/daqiri#250 measured a fifth of 400 Gb/s lost to them
with no counter of drops moving. IEEE 802.3 annex 31B; ethtool(8).
"""

from __future__ import annotations

from railwright.checks.roce_unlike import unlike
from railwright.topology.gpus import runs
from railwright.topology.settings import NONE

_WORDS = {NONE: "neither heed nor send pauses", "rx": "heed pauses", "tx": "send pauses", "rx tx": "heed and send them"}


def _says(names: list[str], value: str, usual: str) -> str:
    return f"{runs(names)}: {_WORDS.get(value, value)}; most other ports: {_WORDS.get(usual, usual)}"


CHECK = unlike(
    "roce_pause_unlike",
    "RoCE ports of a host differ in pauses of all their traffic",
    "pause",
    says=_says,
    seen=("pauses of all traffic", "ethtool -a"),
    unread="ethtool -a does not tell the pauses of {}",
    costs="one side loses packets under congestion, or is stopped whole by it; none on an idle fabric",
    remedy="ethtool -A NETDEV rx off tx off, or on, as the fabric is set up; beside PFC they are off",
)

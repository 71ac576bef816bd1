"""What is set for each RoCE port and should be alike within a host; which value it is, the fabric decides."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from railwright.checks.roce_gids import roce_nics
from railwright.topology.devices import Topology
from railwright.topology.gpus import runs


def unlike(topology: Topology, fact: str) -> Iterator[tuple[list[str], str, str]]:
    """NICs whose value differs from that of most, with theirs and the usual one."""
    told = {nic.id: str(nic.facts[fact]) for nic in roce_nics(topology) if fact in nic.facts}
    usual = next(iter(Counter(told.values()).most_common(1)), ("", 0))[0]
    others = {name: value for name, value in told.items() if value != usual}
    for value in dict.fromkeys(others.values()):
        yield [name for name in others if others[name] == value], value, usual


def unread(
    topology: Topology, fact: str, what: str, told_by: str = "dcb", instead: str = "; look with mlnx_qos -i NETDEV"
) -> str:
    """Why it could not be looked at; empty where it is known of every port."""
    blind = [nic.id for nic in roce_nics(topology) if fact not in nic.facts]
    return f"{told_by} does not tell {what} of {runs(blind)}{instead}" if blind else ""

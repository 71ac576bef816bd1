"""The switch of each host, from any source: Slurm's topology.conf, LLDP, or a cluster file."""

from __future__ import annotations

from typing import NamedTuple


class SwitchTree(NamedTuple):
    """The leaf of each host, and the switches above the leaves."""

    leaf_of: dict[str, str]
    above: tuple[str, ...]
    """The switches with only switches below them, in the order of their source."""

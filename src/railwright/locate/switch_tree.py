"""Which switch each host hangs on, whoever says so: Slurm's topology.conf, or LLDP."""

from __future__ import annotations

from typing import NamedTuple


class SwitchTree(NamedTuple):
    """The leaf of each host, and the switches above leaves."""

    leaf_of: dict[str, str]
    above: tuple[str, ...]
    """The switches that have only switches below them, in the order of what names them."""

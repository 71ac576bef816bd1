"""Observed cables: from ibnetdiscover's output for a subnet, or lldpctl's for each node."""

from __future__ import annotations

from itertools import islice
from pathlib import Path

from railwright.errors import UsageError
from railwright.reading import read_bounded
from railwright.topology.cabling import Cabling
from railwright.topology.sources import lldp
from railwright.topology.sources.ibnetdiscover import MOST_BYTES, parse_cabling
from railwright.topology.sources.subnet import parse_subnet
from railwright.topology.subnet import Subnet


def read_cabling(seen: Path) -> Cabling:
    """Read the cables from ibnetdiscover's file, or a folder of lldpctl's files. Raises UsageError."""
    if not seen.is_dir():
        return parse_cabling(_read_text(seen))
    files = sorted(islice(seen.glob("*.json"), lldp.MOST_FILES))
    if not files:
        raise UsageError(f"{str(seen)[:200]} has no .json file", hint="on each node: lldpctl -f json > NAME.json")
    texts = {file.stem: read_bounded(file, lldp.MOST_BYTES).decode("utf-8", "replace") for file in files}
    return lldp.parse_lldp_cabling(texts)


def read_subnet(cabling: Path, forwarding: Path | None) -> Subnet:
    """Read the subnet from ibnetdiscover's file and dump_fts's; without the latter its switches choose freely.

    Raises UsageError.
    """
    return parse_subnet(_read_text(cabling), _read_text(forwarding) if forwarding is not None else "")


def _read_text(file: Path) -> str:
    return read_bounded(file, MOST_BYTES).decode("utf-8", "replace")

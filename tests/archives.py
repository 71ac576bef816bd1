"""Recorded results, which are kept as archives."""

from __future__ import annotations

import tarfile
from pathlib import Path


def unpack(archive: Path, folder: Path, containing: str = "") -> None:
    """Unpacks the members whose names contain the words.

    Python 3.11 before its fourth release, as Debian 12 has it, knows no filter: there the members are taken as they
    are, for the archives are our own.
    """
    with tarfile.open(archive) as opened:
        opened.extraction_filter = getattr(tarfile, "data_filter", None)
        opened.extractall(folder, members=[one for one in opened.getmembers() if containing in one.name])

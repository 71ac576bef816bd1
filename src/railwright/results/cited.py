"""Citations of records in a document: the SHA-256 of the file, and the line numbers of each point."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import NamedTuple

from railwright.errors import UsageError
from railwright.reading import open_given, read_piece
from railwright.results.records import Point, Result, make_point
from railwright.results.store import read_numbered


class Citation(NamedTuple):
    """The digest, the line count and the points of one results file."""

    sha256: str
    lines: int
    of_point: dict[Point, tuple[int, ...]]
    """The lines of each point, counted from 1."""


def cite(path: Path) -> Citation:
    """Cite a results file. Raises UsageError if it cannot be read."""
    digest, lines = digest_file(path)
    found: dict[Point, list[int]] = {}
    for number, record in read_numbered(path):
        if isinstance(record, Result):
            point = make_point(record.benchmark, record.quantity, record.path, record.parameters)
            found.setdefault(point, []).append(number)
    return Citation(digest, lines, {point: tuple(numbers) for point, numbers in found.items()})


def digest_file(path: Path) -> tuple[str, int]:
    """Return the SHA-256 and the number of lines of any file. Raises UsageError if it cannot be read."""
    digest, lines = hashlib.sha256(), 0
    try:
        with open_given(path) as file:
            while part := read_piece(file, 1 << 20):
                digest.update(part)
                lines += part.count(b"\n")
    except OSError as error:
        hint = "the sheet cites this file; restore it or give the folder that holds it"
        raise UsageError(f"cannot read {path}: {error.strerror}", hint=hint) from error
    return digest.hexdigest(), lines

"""The TOML file of a machine that a user describes: `schema/shape.schema.json`.

The file may come from somebody else: its size is bounded, and unprintable characters are refused.
"""

from __future__ import annotations

import codecs
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import msgspec

from railwright.errors import UsageError
from railwright.reading import InvalidContent, decode_toml, read_bounded
from railwright.topology.devices import Topology
from railwright.topology.expand import expand_shape
from railwright.topology.possible import refuse_impossible
from railwright.topology.shapes.catalogue import CATALOGUE
from railwright.topology.shapes.parts import Shape, ShapeFile
from railwright.topology.sources.cluster_text import format_shown

MAX_SHAPE_FILE_BYTES = 2**16
_HINT = "start from a known one: railwright shapes show hgx-h100 > machine.toml; see docs/shapes.md"


def expand_file(file: Path, changes: Mapping[str, str]) -> Topology:
    """Build the machine of a file, with changes as after the name of a shape. Raises UsageError."""
    try:
        raw = read_bounded(file, MAX_SHAPE_FILE_BYTES)
    except UsageError as error:
        raise UsageError(error.message, hint=_HINT) from error
    shape = decode_shape(raw, str(file))
    try:
        topology = expand_shape(shape, file.name, changes)
        refuse_impossible(topology, str(file))
    except UsageError as error:
        message = error.message if str(file) in error.message else f"{file}: {error.message}"
        raise UsageError(message, hint=error.hint) from error
    return topology


def decode_shape(raw: bytes, origin: str) -> Shape:
    """Decode the TOML of a machine that came from `origin`. Raises UsageError."""
    try:
        found = decode_toml(raw.removeprefix(codecs.BOM_UTF8), ShapeFile)  # Notepad begins files with it
    except InvalidContent as error:
        is_cluster = raw.startswith((b"hosts", b"host ")) or b"\nhosts" in raw
        hint = "give a cluster file with --cluster" if is_cluster else _HINT
        raise UsageError(f"{origin} does not describe a machine: {format_shown(str(error))}", hint=hint) from error
    for text in _texts(msgspec.to_builtins(found)):
        if not text.isprintable():
            message = f"{origin}: {format_shown(text)!r} has characters that do not print"
            raise UsageError(message, hint="remove them")
    try:
        return CATALOGUE.complete(found)
    except UsageError as error:
        raise UsageError(f"{origin}: {error.message}", hint=error.hint) from error


def _texts(value: object) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for each in value.values():
            yield from _texts(each)
    elif isinstance(value, Sequence):
        for each in value:
            yield from _texts(each)

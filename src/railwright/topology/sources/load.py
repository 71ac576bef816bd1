"""Loading of the topology that the user names: this machine, a capture, a saved file or a shape."""

from __future__ import annotations

import itertools
import os
import re
from pathlib import Path

from railwright.errors import UsageError
from railwright.topology.devices import Topology
from railwright.topology.expand import choose_board, expand
from railwright.topology.plan import NIC_PROTOCOLS
from railwright.topology.shapes import SHAPES, split_name, unknown_shape
from railwright.topology.shapes.parts import Shape
from railwright.topology.sources.root import ARCHIVE

_RATE = re.compile(r"\d+(\.\d+)?[GT](b(it)?(ps|/s)?)?", re.IGNORECASE)
_MEMORY_SIZE = re.compile(r"\d+GB", re.IGNORECASE)
"""A size in GB, which is memory rather than a port's rate."""
_INFINIBAND = {"edr": "100G", "hdr": "200G", "ndr": "400G", "xdr": "800G"}
"""The rate of a four-lane port by the name of its generation (InfiniBand Trade Association, roadmap)."""
_ARCHIVE_LINE = re.compile(r"line \d{1,9}")
"""The name that `ArchiveRoot` gives to an unusable line."""


def load(text: str | None, *, by_board: bool = True) -> Topology:
    """Return this machine for None, else a captured directory or `.jsonl`, a saved `.json`, a `.toml`, or a shape.

    A shape is a name with changes as `key=value` words, like `hgx-h100 nics=2`. A vendor's name also works, like
    `p5.48xlarge` or `Standard_ND96isr_H100_v5`.
    If a directory has the name of a shape, `./hgx-h100` means the directory.
    Raises UsageError.
    """
    if text is None:
        from railwright.topology.sources.look import look

        return look()
    words = text.split()
    if not words:
        raise UsageError(
            "the name of a machine must not be empty", hint="give a directory, a file or a shape like hgx-h100"
        )
    named = split_name(words)
    path = Path(text)
    if named is not None and (words[0].lower() in SHAPES or not os.path.exists(path)):  # noqa: PTH110
        return expand(named[0], _parse_changes(named[1], text), by_board=by_board)
    if os.path.exists(path):  # noqa: PTH110 - Path.exists raises for a name that is too long
        from railwright.topology.sources.look import load_path

        return load_path(path)
    if len(words) > 1 and os.path.exists(Path(words[0])):  # noqa: PTH110
        from railwright.topology.sources.look import load_text

        if (found := load_text(Path(words[0]), _parse_changes(words[1:], ""))) is not None:
            return found
        raise UsageError(f"changes like {words[1]!r} apply only to shapes", hint="leave them out")
    if "/" in text or Path(words[0]).suffix in (".json", ".jsonl", ".toml") or path.suffix in (".json", ".jsonl"):
        raise UsageError(f"there is no file or directory {text[:200]!r}", hint="check the path")
    raise unknown_shape(" ".join(word for word in words if "=" not in word), "shape, file or directory")


def name_shape(text: str) -> tuple[Shape, str, dict[str, str]]:
    """Return (shape, its name, the changes) of a shape with changes. Raises UsageError for any other text."""
    named = split_name(text.split())
    if named is None:
        raise unknown_shape(" ".join(word for word in text.split() if "=" not in word))
    changes = _parse_changes(named[1], text)
    name, changes = choose_board(named[0], changes)
    return SHAPES[name], name, changes


def damage(topology: Topology) -> str:
    """Return a message about the damage of the capture that a topology was read from; empty if the capture is whole, or
    if the topology has another source.
    """
    if topology.source != "capture":
        return ""
    found = [item for item in topology.unknown if item.what == ARCHIVE or _ARCHIVE_LINE.fullmatch(item.what)]
    return f"{topology.name} is not a whole capture: {found[0].what} {found[0].why}" if found else ""


def _parse_changes(words: list[str], text: str) -> dict[str, str]:
    """Return the changes by key; `text` is the whole text."""
    changes: dict[str, str] = {}
    expanded = list(itertools.chain.from_iterable(map(_expand_word, words)))
    invalid = [word for word in expanded if not all(word.partition("="))]
    if invalid:
        from railwright.topology.sources.invalid_words import invalid_changes

        raise invalid_changes(invalid, " ".join(part for part in text.split() if "=" not in part))
    for word in expanded:
        key, _, value = word.partition("=")
        if key in changes:
            raise UsageError(f"{key[:60]} is given twice", hint="give it once")
        changes[key] = value
    return changes


def _expand_word(word: str) -> list[str]:
    """Return the change that `ib`, `400G` or `NDR` stands for; any other word unchanged."""
    if word.lower() in NIC_PROTOCOLS:
        return [f"nic-protocol={word}"]
    if word.lower() in _INFINIBAND:
        return ["nic-protocol=infiniband", f"nic-rate={_INFINIBAND[word.lower()]}"]
    return [f"nic-rate={word}" if _RATE.fullmatch(word) and not _MEMORY_SIZE.fullmatch(word) else word]

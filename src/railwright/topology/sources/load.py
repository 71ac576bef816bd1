"""A topology from whatever the user named: nothing, a capture, a saved file or a shape."""

from __future__ import annotations

import os
import re
from pathlib import Path

from railwright.errors import UsageError
from railwright.topology.devices import Topology
from railwright.topology.expand import expand
from railwright.topology.plan import NIC_PROTOCOLS
from railwright.topology.shapes import SHAPES, split_name, unknown_shape
from railwright.topology.sources.machine import discover
from railwright.topology.sources.nvidia import ProbedRoot
from railwright.topology.sources.root import ARCHIVE, ArchiveRoot, CapturedRoot, DirectoryRoot, Unreadable, live_root
from railwright.topology.sources.saved import load_topology

_A_RATE = re.compile(r"\d+(\.\d+)?[GT](b(it)?(ps|/s)?)?", re.IGNORECASE)
_A_LINE = re.compile(r"line \d{1,9}")
"""How `ArchiveRoot` names a line that it cannot use."""


def load(text: str | None) -> Topology:
    """The machine this runs on for None; else a captured directory or `.jsonl`, a saved `.json`, or a shape.

    A shape is a name with changes as `key=value` words, like `hgx-h100 nics=2`; a vendor's name will do too, like
    `p5.48xlarge` or `Standard_ND96isr_H100_v5`.
    Where a directory has the name of a shape, `./hgx-h100` means the directory.
    Raises UsageError.
    """
    if text is None:
        return discover(this_machine(), "live")
    words = text.split()
    if not words:
        raise UsageError("an empty name is not a machine", hint="give a directory, a file or a shape like hgx-h100")
    named = split_name(words)
    path = Path(text)
    if named is not None and (words[0].lower() in SHAPES or not os.path.exists(path)):  # noqa: PTH110
        return expand(named[0], _changes(named[1]))
    if os.path.exists(path):  # noqa: PTH110 - Path.exists raises for a name that is too long
        return _load_path(path)
    if len(words) > 1 and os.path.exists(Path(words[0])):  # noqa: PTH110
        raise UsageError(f"changes like {words[1]!r} can be made to shapes only", hint="leave them out")
    if "/" in text or path.suffix in (".json", ".jsonl"):
        raise UsageError(f"there is no file or directory {text[:200]!r}", hint="check the path")
    raise unknown_shape(" ".join(word for word in words if "=" not in word), "shape, file or directory")


def damage(topology: Topology) -> str:
    """What is wrong with the capture that a topology was read from; empty where it was whole, or is none."""
    if topology.source != "capture":
        return ""
    found = [item for item in topology.unknown if item.what == ARCHIVE or _A_LINE.fullmatch(item.what)]
    return f"{topology.name} is no whole capture: {found[0].what} {found[0].why}" if found else ""


def this_machine() -> ProbedRoot:
    """The machine that this process runs on, with what NVIDIA's libraries say of it."""
    return ProbedRoot(live_root())


def open_capture(path: Path) -> CapturedRoot:
    """The files of a capture: a directory, or a `.jsonl` archive. Raises UsageError."""
    # Fixtures are called machine.jsonl in a folder named by the machine's shape.
    resolved = path.resolve()
    name = resolved.parent.name if resolved.name == "machine.jsonl" else resolved.stem
    if path.is_dir():
        return CapturedRoot(DirectoryRoot(path, resolved.name))
    return CapturedRoot(ArchiveRoot(path, name))


def _load_path(path: Path) -> Topology:
    if not path.is_dir() and path.suffix == ".json":
        return load_topology(path)
    if not path.is_dir() and path.suffix != ".jsonl":
        what = f"{path} is neither a directory, a .jsonl capture nor a saved .json topology"
        raise UsageError(what, hint="write one with: railwright topo capture DIR")
    root = open_capture(path)
    answers = [root.list(name) for name in ("sys", "proc")]
    if any(not isinstance(answer, Unreadable) or not answer.is_absent for answer in answers):
        return discover(root, "capture")
    raise UsageError(f"{path} holds neither sys nor proc", hint="give the directory that `topo capture` wrote")


def _changes(words: list[str]) -> dict[str, str]:
    changes: dict[str, str] = {}
    for word in words:
        key, equals, value = _bare(word).partition("=")
        if not equals or not key or not value:
            raise UsageError(f"not a change: {word[:60]!r}", hint="write key=value, like nics=2")
        if key in changes:
            raise UsageError(f"{key[:60]} is given twice", hint="give it once")
        changes[key] = value
    return changes


def _bare(word: str) -> str:
    """`ib` and `400G` say by themselves what they change; any other word as it is."""
    if word.lower() in NIC_PROTOCOLS:
        return f"nic-protocol={word}"
    return f"nic-rate={word}" if _A_RATE.fullmatch(word) else word

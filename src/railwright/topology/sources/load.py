"""A topology from whatever the user named: nothing, a capture, a saved file or a shape."""

from __future__ import annotations

import itertools
import os
import re
from pathlib import Path

from railwright.errors import UsageError, unknown_name
from railwright.topology.devices import NetworkLink, Topology
from railwright.topology.expand import expand
from railwright.topology.gpu_models import is_model
from railwright.topology.matrix import Matrix, matrix_of, topology_of
from railwright.topology.plan import NIC_PROTOCOLS, port_with
from railwright.topology.shapes import SHAPES, not_a_change, split_name, unknown_shape
from railwright.topology.shapes.parts import Shape
from railwright.topology.sources.asked import AskedRoot
from railwright.topology.sources.machine import discover
from railwright.topology.sources.nccl_xml import MOST_CHARACTERS, is_nccl_xml, topology_of_xml
from railwright.topology.sources.nvidia import ProbedRoot
from railwright.topology.sources.root import (
    ARCHIVE,
    ArchiveRoot,
    CapturedRoot,
    DirectoryRoot,
    Root,
    Unreadable,
    live_root,
    read_bounded,
)
from railwright.topology.sources.saved import load_topology
from railwright.topology.sources.tools import ask_tools
from railwright.topology.sources.tools_model import TOOLS

_A_RATE = re.compile(r"\d+(\.\d+)?[GT](b(it)?(ps|/s)?)?", re.IGNORECASE)
_A_SIZE = re.compile(r"\d+GB", re.IGNORECASE)
"""Memory, rather than the rate of a port."""
_INFINIBAND = {"edr": "100G", "hdr": "200G", "ndr": "400G", "xdr": "800G"}
"""What a port of four lanes is called by its rate (InfiniBand Trade Association, roadmap)."""
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
        return expand(named[0], _changes(named[1], text))
    if os.path.exists(path):  # noqa: PTH110 - Path.exists raises for a name that is too long
        return _load_path(path)
    if len(words) > 1 and os.path.exists(Path(words[0])):  # noqa: PTH110
        if (found := _load_text(Path(words[0]), _changes(words[1:], ""))) is not None:
            return found
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


def looked_over() -> Topology:
    """The machine that this runs on, with what its programs say."""
    return discover(this_machine_with_tools(), "live")


def this_machine() -> Root:
    """The machine that this process runs on, with what NVIDIA's libraries say of it."""
    return ProbedRoot(live_root())


def this_machine_with_tools() -> Root:
    """The same with what its programs say of its software: seconds more, for who looks at settings."""
    return AskedRoot(this_machine(), {TOOLS: ask_tools})


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
        if (found := _load_text(path, {})) is not None:
            return found
        what = (
            f"{path} is neither a directory, a .jsonl capture, a saved .json topology, NCCL's topology file nor what"
            " nvidia-smi topo -m printed"
        )
        raise UsageError(what, hint="write one with: railwright topo capture DIR")
    root = open_capture(path)
    answers = [root.list(name) for name in ("sys", "proc")]
    if any(not isinstance(answer, Unreadable) or not answer.is_absent for answer in answers):
        return discover(root, "capture")
    raise UsageError(f"{path} holds neither sys nor proc", hint="give the directory that `topo capture` wrote")


def _load_text(path: Path, changes: dict[str, str]) -> Topology | None:
    """NCCL's topology file or what `nvidia-smi topo -m` printed, None for what is neither. Raises UsageError."""
    if path.is_dir() or path.suffix in (".json", ".jsonl"):
        return None
    text = read_bounded(path, MOST_CHARACTERS).decode("utf-8-sig", errors="replace")
    if is_nccl_xml(text):
        if changes:
            hint = "leave the changes out: the file says all of it"
            raise UsageError(f"{path} is NCCL's topology file, to which no changes are made", hint=hint)
        return topology_of_xml(text, path.name)
    matrix = matrix_of(text)
    if matrix is None:
        return None
    return topology_of(matrix, path.name, *_said_of(matrix, changes))


def _said_of(matrix: Matrix, changes: dict[str, str]) -> tuple[Shape | None, NetworkLink | None]:
    """A shape with the GPUs of the matrix, and the port of its NICs, as the changes say. Raises UsageError."""
    known = ("gpu", "nic-rate", "nic-protocol", "mtu")
    for key in changes:
        if key not in known:
            raise unknown_name("change to what nvidia-smi topo -m printed", key, known)
    model = changes.get("gpu", next(iter(matrix.models), ""))
    shapes = [one for one in SHAPES.values() if one.gpu is not None and model and is_model(model, one.gpu.name)]
    if "gpu" in changes and not shapes:
        raise UsageError(f"gpu={model[:60]!r} is no known GPU", hint="give a model like H100, A100 or B200")
    fitting = [one for one in shapes if matrix.nvlinks == (one.nvlink.link.links if one.nvlink else 0)]
    port = port_with(matrix.port, changes) if "nic-rate" in changes else None
    return next(iter([*fitting, *shapes]), None), port


def _changes(words: list[str], said: str) -> dict[str, str]:
    """The changes of `said`, the whole text, by key."""
    changes: dict[str, str] = {}
    for word in itertools.chain.from_iterable(map(_bare, words)):
        key, equals, value = word.partition("=")
        if not equals or not key or not value:
            raise not_a_change(word, " ".join(one for one in said.split() if "=" not in one))
        if key in changes:
            raise UsageError(f"{key[:60]} is given twice", hint="give it once")
        changes[key] = value
    return changes


def _bare(word: str) -> list[str]:
    """`ib`, `400G` and `NDR` say by themselves what they change; any other word as it is."""
    if word.lower() in NIC_PROTOCOLS:
        return [f"nic-protocol={word}"]
    if word.lower() in _INFINIBAND:
        return ["nic-protocol=infiniband", f"nic-rate={_INFINIBAND[word.lower()]}"]
    return [f"nic-rate={word}" if _A_RATE.fullmatch(word) and not _A_SIZE.fullmatch(word) else word]

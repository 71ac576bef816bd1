"""A topology from this machine, a capture, a saved file, or a text written by NCCL or nvidia-smi."""

from __future__ import annotations

from pathlib import Path

from railwright.errors import UsageError, unknown_name
from railwright.reading import read_bounded
from railwright.topology.devices import Topology
from railwright.topology.gpu_models import is_model
from railwright.topology.matrix import Additions, Matrix, build_topology, parse_matrix
from railwright.topology.plan import DRIVE_LANES, change_port, parse_count, parse_switch
from railwright.topology.shapes import SHAPES
from railwright.topology.shapes.parts import Pcie
from railwright.topology.sources.asked import ProbedRoot
from railwright.topology.sources.machine import discover
from railwright.topology.sources.nccl_xml import MOST_CHARACTERS, is_nccl_xml, parse_topology_xml
from railwright.topology.sources.nvidia import ask_nvidia
from railwright.topology.sources.nvidia_model import PROBE
from railwright.topology.sources.root import (
    ArchiveRoot,
    CapturedRoot,
    DirectoryRoot,
    Root,
    Unreadable,
    live_root,
)
from railwright.topology.sources.saved import load_topology
from railwright.topology.sources.shape_file import expand_file
from railwright.topology.sources.tools import ask_tools
from railwright.topology.sources.tools_model import TOOLS


def look() -> Topology:
    """Return the machine that this runs on."""
    return discover(this_machine(), "live")


def look_with_tools() -> Topology:
    """Return the machine that this runs on, with the answers of its programs."""
    return discover(this_machine_with_tools(), "live")


def this_machine() -> Root:
    """Return the machine that this process runs on, with the answers of NVIDIA's libraries."""
    return ProbedRoot(live_root(), {PROBE: ask_nvidia})


def this_machine_with_tools() -> Root:
    """Return this machine with the answers of its programs about software, which take seconds, for callers that need
    settings.
    """
    return ProbedRoot(this_machine(), {TOOLS: ask_tools})


def open_capture(path: Path) -> CapturedRoot:
    """Return the files of a capture: a directory, or a `.jsonl` archive. Raises UsageError."""
    # Fixtures are called machine.jsonl in a folder named by the machine's shape.
    resolved = path.resolve()
    name = resolved.parent.name if resolved.name == "machine.jsonl" else resolved.stem
    if path.is_dir():
        return CapturedRoot(DirectoryRoot(path, resolved.name))
    return CapturedRoot(ArchiveRoot(path, name))


def load_path(path: Path) -> Topology:
    """Return the machine in a file or a directory. Raises UsageError."""
    if not path.is_dir() and path.suffix == ".json":
        return load_topology(path)
    if not path.is_dir() and path.suffix != ".jsonl":
        if (found := load_text(path, {})) is not None:
            return found
        message = (
            f"{path} is neither a directory, a .jsonl capture, a saved .json topology, a .toml machine, NCCL's topology"
            " file nor the output of nvidia-smi topo -m"
        )
        raise UsageError(message, hint="write one with: railwright topo capture DIR")
    root = open_capture(path)
    answers = [root.list(name) for name in ("sys", "proc")]
    if any(not isinstance(answer, Unreadable) or not answer.is_absent for answer in answers):
        return discover(root, "capture")
    raise UsageError(f"{path} has neither sys nor proc", hint="give a directory written by `topo capture`")


def load_text(path: Path, changes: dict[str, str]) -> Topology | None:
    """Parse the file of a machine (TOML), NCCL's topology file or the output of `nvidia-smi topo -m`; None for other
    text. Raises UsageError.
    """
    if path.is_dir() or path.suffix in (".json", ".jsonl"):
        return None
    if path.suffix.lower() == ".toml":
        return expand_file(path, changes)
    text = read_bounded(path, MOST_CHARACTERS).decode("utf-8-sig", errors="replace")
    if is_nccl_xml(text):
        if changes:
            hint = "leave the changes out: the file is complete"
            raise UsageError(f"{path} is NCCL's topology file, which cannot be changed", hint=hint)
        return parse_topology_xml(text, path.name)
    matrix = parse_matrix(text)
    if matrix is None:
        return None
    return build_topology(matrix, path.name, _read_additions(matrix, changes))


def _read_additions(matrix: Matrix, changes: dict[str, str]) -> Additions:
    """Return what the changes add to the matrix: a shape with its GPUs, the port of its NICs, drives. Raises
    UsageError.
    """
    known = ("gpu", "nic-rate", "nic-protocol", "mtu", "p2p", "drives", "drive-pcie")
    for key in changes:
        if key not in known:
            raise unknown_name("change to the output of nvidia-smi topo -m", key, known)
    model = changes.get("gpu", next(iter(matrix.models), ""))
    shapes = [shape for shape in SHAPES.values() if shape.gpu is not None and model and is_model(model, shape.gpu.name)]
    if "gpu" in changes and not shapes:
        raise UsageError(f"gpu must be a known GPU, got {model[:60]!r}", hint="give a model like H100, A100 or B200")
    fitting = [shape for shape in shapes if matrix.nvlinks == (shape.nvlink.links if shape.nvlink else 0)]
    port = change_port(matrix.port, changes) if "nic-rate" in changes else None
    generation = parse_count("drive-pcie", changes["drive-pcie"]) if "drive-pcie" in changes else None
    if generation is not None and "drives" not in changes:
        raise UsageError("drive-pcie needs the number of drives", hint="give drives=8 too")
    return Additions(
        shape=next(iter([*fitting, *shapes]), None),
        port=port,
        peer_to_peer=parse_switch("p2p", changes["p2p"]) if "p2p" in changes else True,
        drives=parse_count("drives", changes["drives"]) if "drives" in changes else 0,
        drive_pcie=Pcie(generation, DRIVE_LANES if generation else None),
    )

"""NIXL between two GPUs: our benchmark compared with NIXL's C API called from C, alternating on the same GPUs."""

from __future__ import annotations

import os
import shutil
from collections import defaultdict
from functools import partial
from pathlib import Path

from measure_gpu.points import itself, medians
from measure_gpu.session import Session, first_gpus

from railwright.benchmarks.kv.timed import Point
from railwright.native.nixl import find_library
from railwright.native.vendor_libraries import find_in_wheels
from railwright.results.store import load
from railwright.units import KIB, MIB, format_duration, format_size

SOURCE = Path(__file__).resolve().parents[2] / "host-paths" / "baselines" / "nixl_direct.c"
SIZES = (4 * KIB, 64 * KIB, MIB, 64 * MIB, 256 * MIB)
_NAME = "nixl-direct"
_OPERATIONS = ("WRITE", "READ")

Times = dict[tuple[str, int], list[float]]
"""(operation, bytes) -> the median duration of a request in each round, in seconds."""


def compare(session: Session) -> None:
    """Measure WRITE and READ between two processes with a GPU each; the two programs alternate in going first."""
    library, compiler = find_library(), shutil.which("cc") or shutil.which("gcc")
    if session.gpus < 2 or library is None or compiler is None:
        session.note(f"{_NAME}: needs two GPUs, NIXL and a C compiler; here: {session.gpus}, {library}, {compiler}")
        return
    program = session.raw / "nixl_direct"
    if session.run("cc-nixl_direct", [compiler, "-O2", "-o", str(program), str(SOURCE), "-ldl"]) is None:
        return
    turns = [partial(_theirs, session, str(program), str(library)), partial(_ours, session)]
    for number in range(session.rounds):
        name = f"{_NAME}-{session.free_number(_NAME)}"
        for turn in reversed(turns) if number % 2 else turns:
            turn(name)
    program.unlink(missing_ok=True)


def _theirs(session: Session, program: str, library: str, name: str) -> None:
    repeats = [(size, *reversed(Point(operation="WRITE", size_bytes=size).repeats())) for size in SIZES]
    runtimes = [str(Path(path).parent) for path in find_in_wheels("libcudart.so.13", "libcudart.so.12")]
    places = os.pathsep.join(filter(None, (*runtimes, os.environ.get("LD_LIBRARY_PATH"))))
    argv = [program, library, "gpus=0,1", *(str(number) for one in repeats for number in one)]
    session.run(name, argv, LD_LIBRARY_PATH=places, **first_gpus(2))


def _ours(session: Session, name: str) -> None:
    options = {"links": "gpu-gpu", "processes": "2", "pairs": "first", "sizes": ",".join(map(str, SIZES))}
    chosen = [f"kv_vram.{key}={value}" for key, value in options.items()]
    session.railwright(f"{name}-ours", ["kv_vram"], chosen, **first_gpus(2))


def table(raw: Path) -> list[str]:
    """Return the table of the medians over all rounds, or nothing unless both were measured."""
    theirs, ours = _times_of_theirs(raw), _times_of_ours(raw)
    head = "| operation | size | C API | ours | ours / C API | C API against itself | rounds |"
    lines = ["### NIXL beside its C API", "", head, "|" + "---|" * 7]
    for key, one, other in medians(theirs, ours):
        shown = f"{format_duration(one)} | {format_duration(other)} | {other / one:.3f} | {itself(theirs[key]):.1%}"
        lines.append(f"| {key[0]} | {format_size(key[1])} | {shown} | {len(theirs[key])}, {len(ours[key])} |")
    return [*lines, ""] if len(lines) > 4 else []


def _times_of_theirs(raw: Path) -> Times:
    found: Times = defaultdict(list)
    for path in sorted(raw.rglob(f"{_NAME}-*.txt")):
        words = (line.split() for line in path.read_text(errors="replace").splitlines())
        for operation, size, seconds in (one for one in words if len(one) == 3 and one[0] in _OPERATIONS):
            found[operation, int(size)].append(float(seconds))
    return found


def _times_of_ours(raw: Path) -> Times:
    """Return our times. Latency and bandwidth of a size are from the same requests, so only one of them is used."""
    found: Times = defaultdict(list)
    for path in sorted(raw.rglob(f"{_NAME}-*-ours/results.jsonl")):
        seconds: dict[tuple[str, int], float] = {}
        for result in load(path).results:
            size = result.parameters.get("size_bytes")
            if result.summary is not None and isinstance(size, int):
                median = result.summary.median
                key = str(result.parameters["operation"]), size
                seconds[key] = median if result.quantity == "latency_s" else size / median
        for key, one in seconds.items():
            found[key].append(one)
    return found

"""Measures operations on memory that was never written, which nccl-tests uses without its data check.

`-c 0` leaves the buffers unwritten; `-c 1` fills them and checks the result, as ours does.
"""

from __future__ import annotations

import re
import statistics
from collections import defaultdict
from pathlib import Path

from measure_gpu.collectives import ours, theirs
from measure_gpu.points import WAYS, times_of
from measure_gpu.session import Session

from railwright.units import format_duration, format_size

OPERATIONS = ("all_to_all", "all_reduce", "all_gather")
SIZES = "8M:8G:x4"
_NAME = re.compile(r"written-(?P<operation>[a-z_]+)-(?P<gpus>\d+)gpus-(?P<kind>without|with|ours)-\d+(?:\.txt)?")


def written(session: Session) -> None:
    """Measure nccl-tests without data, nccl-tests with data, and ours, alternating."""
    for _ in range(session.rounds):
        for count in session.counts:
            for operation in OPERATIONS:
                _round(session, operation, count)


def _round(session: Session, operation: str, count: int) -> None:
    stem, way = f"written-{operation}-{count}gpus", WAYS["processes"]
    number = session.free_number(f"{stem}-ours")
    for kind, checks in (("without", False), ("with", True)):
        theirs(session, f"{stem}-{kind}-{number}", operation, way, count, SIZES, checks=checks)
    ours(session, f"{stem}-ours-{number}", operation, way, count, SIZES)


def table(raw: Path) -> list[str]:
    """Return the table of out-of-place times by size and kind, or nothing if they were not measured."""
    found: dict[tuple[str, int, int], dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for path in sorted((*raw.rglob("written-*.txt"), *raw.rglob("written-*-ours-*/results.jsonl"))):
        match = _NAME.fullmatch(path.name if path.suffix == ".txt" else path.parent.name)
        if match is None or (match["kind"] == "ours") is not (path.suffix == ".jsonl"):
            continue
        for (placement, size), seconds in times_of(path):
            if placement == "out of place":
                found[match["operation"], int(match["gpus"]), size][match["kind"]].append(seconds)
    head = "| collective | GPUs | size | nccl-tests -c 0 | -c 1 | ours | -c 0 / -c 1 | ours / -c 1 | rounds |"
    lines = ["### Memory that nothing has written", "", head, "|" + "---|" * 9]
    for (operation, gpus, size), kinds in sorted(found.items()):
        if len(kinds) == len(("without", "with", "ours")):
            lines.append(f"| {operation} | {gpus} | {format_size(size)} | {_row(kinds)} |")
    return [*lines, ""] if len(lines) > 4 else []


def _row(kinds: dict[str, list[float]]) -> str:
    without, data, mine = (statistics.median(kinds[kind]) for kind in ("without", "with", "ours"))
    rounds = ", ".join(str(len(kinds[kind])) for kind in ("without", "with", "ours"))
    shown = " | ".join(format_duration(one) for one in (without, data, mine))
    return f"{shown} | {without / data:.3f} | {mine / data:.3f} | {rounds}"

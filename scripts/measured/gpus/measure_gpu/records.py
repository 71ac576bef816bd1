"""Builds tables of our records for which no other project has a reference, from the raw files alone."""

from __future__ import annotations

import json
import re
from pathlib import Path

from measure_gpu.points import itself, medians

from railwright.diagnosis.verdicts.verdict import format_quantity
from railwright.results.records import Result
from railwright.results.store import load
from railwright.units import format_bandwidth, format_size

_COPY_KEYS = ("engine", "host", "by", "direction")
_BASELINE_KEYS = ("path", "engine", "by", "direction")


def rows(paths: list[Path], *keys: str) -> list[str]:
    """Return each point of results files as a row: path, given parameters, median, spread and evidence."""
    lines = [f"| path | {' | '.join(keys)} | median | lowest to highest | seen |", "|---|" + "---|" * (len(keys) + 3)]
    for result in (one for path in paths for one in load(path).results):
        named = [_format_parameter(key, result) for key in keys]
        if result.summary is None:
            lines.append(f"| {result.path} | {' | '.join(named)} | {result.outcome} | | {result.reason[:160]} |")
            continue
        value, low, high = (
            format_quantity(result.quantity, one)
            for one in (result.summary.median, result.summary.minimum, result.summary.maximum)
        )
        seen = ", ".join(evidence.value for evidence in result.evidence)[:100]
        lines.append(f"| {result.path} | {' | '.join(named)} | {value} | {low} to {high} | {seen} |")
    return [*lines, ""]


def _format_parameter(key: str, result: Result) -> str:
    value = result.parameters.get(key, "")
    return format_size(value) if key == "size_bytes" and isinstance(value, int) else str(value)


def _section(title: str, paths: list[Path], *keys: str) -> list[str]:
    return [f"### {title}", "", *rows(paths, *keys)] if paths else []


def _find_results(raw: Path, pattern: str) -> list[Path]:
    return sorted(raw.rglob(f"{pattern}/results.jsonl"))


def copies(raw: Path) -> list[str]:
    """Return the table of the first run of copies, and the comparison with the CUDA C++ program if it ran."""
    paths = _find_results(raw, "gpu_copy-*")
    host = _section("Copies of host memory", _find_results(raw, "gpu_copy_host"), "size_bytes", "host")
    return [*_section("Copies", paths[:1], "size_bytes", *_COPY_KEYS), *host, *_baseline(raw, paths)]


def _baseline(raw: Path, paths: list[Path]) -> list[str]:
    theirs: dict[tuple[str, ...], list[float]] = {}
    ours: dict[tuple[str, ...], list[float]] = {}
    for text in (path.read_text(errors="replace") for path in sorted(raw.rglob("gpu_copy_baseline-*.txt"))):
        for one in (json.loads(line) for line in text.splitlines() if line.startswith("{")):
            key = tuple(str(one.get(name, "")) for name in _BASELINE_KEYS)
            theirs.setdefault(key, []).append(float(one["bandwidth_bytes_per_s"]))
    for result in (one for path in paths for one in load(path).results):
        if result.summary is not None and result.parameters.get("host", "pinned") == "pinned":
            named = (str(result.parameters.get(name, "")) for name in _BASELINE_KEYS[1:])
            ours.setdefault((result.path, *named), []).append(result.summary.median)
    lines = ["| path | engine | by | direction | CUDA C++ | ours | ours / CUDA C++ | itself |", "|" + "---|" * 8]
    for key, one, other in medians(theirs, ours):
        shown = f"{format_bandwidth(one)} | {format_bandwidth(other)} | {other / one:.4f} | {itself(theirs[key]):.2%}"
        lines.append(f"| {' | '.join(key)} | {shown} |")
    return [*lines, ""] if len(lines) > 2 else []


def latency(raw: Path) -> list[str]:
    """Return the table of the latencies of copies and of loads."""
    return _section("Latency", _find_results(raw, "gpu_latency"), "kind", "size_bytes", "clock")


def nixl(raw: Path) -> list[str]:
    """Return the tables of NIXL with GPU memory."""
    return _section(
        "NIXL",
        _find_results(raw, "kv_vram*"),
        "size_bytes",
        "operation",
        "initiator",
        "processes",
        "host",
        "ucx",
        "peer_access",
    )


def steps(raw: Path) -> list[str]:
    """Return the tables of training steps, by source of the load, model and number of GPUs."""
    told = []
    for path in _find_results(raw, "train_step-*"):
        match = re.fullmatch(r"train_step-([a-z]+)(?:-([\d.]+[MB]))?(?:-(\d+)gpus)?", path.parent.name)
        if match:
            compute, model, gpus = match.groups()
            named = [f"compute={compute}", f"{model} parameters" if model else "", f"{gpus} GPUs" if gpus else ""]
            title = ", ".join(["train_step", *filter(None, named)])
            told += _section(title, [path], "part", "dtype", "buckets", "overlap", "rate")
    return told


def files(raw: Path) -> list[str]:
    """Return the tables of transfers between files and GPU memory, and of the files that cuFile accepts."""
    tried = [line for path in raw.rglob("try-cufile.txt") for line in path.read_text(errors="replace").splitlines()]
    told = ["### What cuFile takes", "", "```", *tried, "```", ""] if tried else []
    for path in (*_find_results(raw, "gpu_file_read*"), *_find_results(raw, "gpu_file_write*")):
        told += _section(path.parent.name, [path], "size_bytes", "depth", "threads", "way")
    for path in _find_results(raw, "kv_file*"):
        told += _section(path.parent.name, [path], "backend", "memory", "operation", "size_bytes", "batch")
    return told

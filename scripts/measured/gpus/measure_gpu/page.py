"""Builds all tables and curves of a folder of raw records. Reads files only and starts no program."""

from __future__ import annotations

import re
import statistics
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

from measure_gpu import nixl_direct, placement, records, sampling, written
from measure_gpu.curves import draw_choice, draw_collective, draw_overview
from measure_gpu.points import Curve, Way, curves
from measure_gpu.session import COMMANDS, NOT_RUN, NOTES

from railwright.benchmarks.registry import DECLARATIONS
from railwright.diagnosis.runs.diagnose import diagnose
from railwright.diagnosis.verdicts.judged import Judged
from railwright.report.nccl_choice import TITLES, cost_tables
from railwright.results.records import Run
from railwright.results.store import load
from railwright.topology.cpu_list import format_cpu_list
from railwright.units import MIB, format_size

TABLES = "measured.md"
_NO_TIME = re.compile(rf"(?P<name>.+)-(?P<number>\d+)(?P<whose>(?:-nccl-tests)?){NOT_RUN}")
_HEAD = [
    "| collective | ranks | GPUs | time below 1 MiB, ours / nccl-tests: median (range) | from 1 MiB | within | not |",
    "|" + "---|" * 7,
]
_COLUMNS = (
    "placement",
    "size",
    "nccl-tests",
    "ours",
    "time, ours / nccl-tests",
    "fastest / fastest",
    "nccl-tests against itself",
    "rounds",
    "verdict",
)


def write(folder: Path) -> list[str]:
    """Write `measured.md` and the curves of `folder/raw`. Returns the lines that summarise them."""
    raw = folder / "raw"
    found = [curve for curve in curves(raw) if curve.points]
    short = [*_HEAD, *map(_summary, found), ""] if found else []
    missing: list[str] = []
    drawn = _pictures(folder, raw, found, missing)
    told = [line for curve in found for line in _table(curve)]
    rest = [
        *written.table(raw),
        *records.copies(raw),
        *records.latency(raw),
        *_choice(raw),
        *records.nixl(raw),
        *nixl_direct.table(raw),
        *records.steps(raw),
    ]
    rest += [*records.files(raw), *sampling.table(raw), *placement.table(raw)]
    notes = [*_left_out(raw), *missing]
    ends = ["### Left out or failed", "", *(f"- {note}" for note in notes), ""] if notes else []
    text = "\n".join([*_title(raw), *short, *drawn, *told, *rest, *ends])
    (folder / TABLES).write_text(text)
    return [*short, *ends, f"wrote {folder / TABLES}"]


def _read_lines(raw: Path, name: str) -> list[str]:
    return [line for path in sorted(raw.rglob(name)) for line in path.read_text(errors="replace").splitlines()]


def _left_out(raw: Path) -> list[str]:
    """Return the notes of all visits, each once, without runs that another visit had time for."""
    ran = {path.stem for path in raw.rglob("*.txt")}
    notes = dict.fromkeys(_read_lines(raw, NOTES))
    left = [note for note in notes if not (note.endswith(NOT_RUN) and note.removesuffix(NOT_RUN) in ran)]
    return list(_merge_rounds(left))


def _merge_rounds(notes: list[str]) -> Iterator[str]:
    """Merge the notes on rounds of the same series that were not run."""
    series: dict[str, dict[int, str]] = defaultdict(dict)
    for note in notes:
        match = _NO_TIME.fullmatch(note)
        name, number = (match["name"] + match["whose"], int(match["number"])) if match else (note, 0)
        series[name][number] = note
    for name, rounds in series.items():
        several = f"{name}, rounds {format_cpu_list(rounds)}{NOT_RUN}"
        yield several if len(rounds) > 1 else next(iter(rounds.values()))


def _title(raw: Path) -> list[str]:
    """Describe the machine, by the run with the most GPUs, and the commands."""
    runs = [load(path).run for path in raw.rglob("results.jsonl")]
    if not runs:
        return ["# Nothing was measured", ""]
    run = max(runs, key=lambda one: len(one.topology.of_kind("gpu")))
    gpus = run.topology.of_kind("gpu")
    names = ", ".join(sorted({gpu.name for gpu in gpus})) or "GPU"
    commands = _read_lines(raw, COMMANDS)
    shown = ["```", *commands, "```", ""] if commands else []
    days = sorted({one.started_at[:10] for one in runs})
    when = days[0] if len(days) == 1 else f"{days[0]} to {days[-1]}"
    return [
        f"# {len(gpus)} x {names} of one host",
        "",
        f"`scripts/measured/gpus/measure-gpu`, {when}; {_software(run)}.",
        "",
        *shown,
    ]


def _software(run: Run) -> str:
    host = next(iter(run.topology.of_kind("host")), None)
    facts = host.facts if host else {}
    known = {"driver": facts.get("nvidia_driver"), "CUDA": facts.get("cuda")}
    known |= {"cores:": run.context.cores, **run.context.software}
    told = ", ".join(f"{name} {value}" for name, value in known.items() if value is not None)
    off = run.context.environment.get("NCCL_NVLS_ENABLE") == "0"
    return f"{told}{'; `NCCL_NVLS_ENABLE=0`, so no NVLS' if off else ''}"


def _pictures(folder: Path, raw: Path, found: list[Curve], missing: list[str]) -> list[str]:
    """Draw a picture for each collective and placement of ranks, with a line for each number of GPUs."""
    names = sorted({curve.name for curve in found})
    paths = {f"{name}.svg": [curve for curve in found if curve.name == name] for name in names}
    choices = {f"choice-{gpus}gpus.svg": (gpus, points) for gpus, points in _choices(raw)}
    overviews = {f"collectives-{way.name}-{gpus}gpus.svg": every for (way, gpus), every in _together(found).items()}
    if not paths and not choices:
        return []
    try:
        for path, every in paths.items():
            draw_collective(folder / path, every)
        for path, every in overviews.items():
            title = f"collectives on {every[0].gpus} GPUs, {every[0].way.name}: median time of ours"
            draw_overview(folder / path, title, every)
        for path, (gpus, points) in choices.items():
            draw_choice(folder / path, gpus, points)
    except ImportError:
        missing.append("no curves: matplotlib is not installed")
        return []
    return ["## Curves", "", *(line for path in (*overviews, *paths, *choices) for line in (f"![{path}]({path})", ""))]


def _together(found: list[Curve]) -> dict[tuple[Way, int], list[Curve]]:
    """Return the groups of several curves with the same placement of ranks and number of GPUs."""
    every: dict[tuple[Way, int], list[Curve]] = defaultdict(list)
    for curve in found:
        every[curve.way, curve.gpus].append(curve)
    return {key: several for key, several in every.items() if len(several) > 1}


def _choices(raw: Path) -> list[tuple[int, tuple[Judged, ...]]]:
    """Return the judged times of every algorithm and protocol, by number of GPUs."""
    found = []
    for path in sorted(raw.rglob("choice*/results.jsonl")):
        file = load(path)
        if file.results:
            found.append(
                (
                    max(one.ranks for one in file.results),
                    diagnose(file, DECLARATIONS).points,
                )
            )
    return found


def _choice(raw: Path) -> list[str]:
    told = []
    for gpus, points in _choices(raw):
        for title, rows in cost_tables(points):
            told += [f"### NCCL's choice on {gpus} GPUs", "", title, "", f"| {' | '.join(TITLES)} |"]
            told += ["|" + "---|" * len(TITLES), *(f"| {' | '.join(row)} |" for row in rows), ""]
    return told


def _table(curve: Curve) -> list[str]:
    """Return the table of a collective, in Markdown."""
    launches = "CUDA graph" if curve.way.launched == "graph" else "launches"
    buffers = "" if curve.way.buffers == "plain" else f", {curve.way.buffers} buffers"
    lines = [
        f"### {curve.operation}, {curve.gpus} GPUs, {curve.way.ranks_in}, {launches}{buffers}",
        "",
        f"| {' | '.join(_COLUMNS)} |",
        "|" + "---|" * len(_COLUMNS),
    ]
    for point in curve.points:
        theirs, ours = (statistics.median(one) * 1e6 for one in (point.theirs, point.ours))
        lines.append(
            f"| {point.placement} | {format_size(point.size)} | {theirs:,.2f} us | {ours:,.2f} us | {point.ratio:.3f} "
            f"| {point.fastest:.3f} | {point.itself:.1%} | {len(point.theirs)}, {len(point.ours)} | {point.verdict} |"
        )
    return [*lines, ""]


def _summary(curve: Curve) -> str:
    """Return a table row with the ratios of small and large sizes, and the number of points by verdict."""
    verdicts = [point.verdict for point in curve.points]
    small, large = (
        _spread([point.ratio for point in curve.points if (point.size < MIB) is is_small]) for is_small in (True, False)
    )
    return (
        f"| {curve.operation} | {curve.way.name} | {curve.gpus} | {small} | {large} "
        f"| {verdicts.count('within')} of {len(verdicts)} "
        f"| {verdicts.count('void')} void, {verdicts.count('above')} above |"
    )


def _spread(ratios: list[float]) -> str:
    if not ratios:
        return "-"
    return f"{statistics.median(ratios):.3f} ({min(ratios):.3f} to {max(ratios):.3f})"

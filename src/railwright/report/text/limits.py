"""Limits as plain text, for `limits`: equal paths share a row, and a key below the table has the sources."""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterable, Iterator, Sequence

from railwright.expected.path_rows import PathLimit
from railwright.groups import group_by_key
from railwright.limits.limit import Limit, NoLimit
from railwright.report.text import wording
from railwright.report.text.collectives import labelled
from railwright.topology.cluster import Cluster, describe_gpus
from railwright.topology.gpus import format_runs
from railwright.units import format_bandwidth, format_count

_NUMBER = re.compile(r"\d+")
_WIDTH = 26
_LONGEST = 20
"""The longest list of devices in a name, in characters."""


def render_limits(cluster: Cluster, rows: Iterable[PathLimit]) -> str:
    """Render the paths with limit, band, narrowest link and derivation, and then the sources."""
    hosts = format_count(cluster.hosts, "host")
    head = f"limits of {wording.escape(cluster.name)}, {hosts}, {describe_gpus(cluster)}, each direction"
    groups = [alike for _, alike in group_by_key(rows, _find_likeness)]
    names = [f"{_name_paths(alike)}  {alike[0].kind}" for alike in groups]
    width = max([_WIDTH, *map(len, names)])
    sources: dict[str, int] = {}
    lines = [
        line
        for name, alike in zip(names, groups, strict=True)
        for line in _row_lines(f"{name:{width}}", alike, sources)
    ]
    key = [line for source, number in sources.items() for line in labelled(f"[{number}]", source)]
    return "\n".join([head, "", *lines, *([""] * bool(key)), *key])


def _find_likeness(row: PathLimit) -> Hashable:
    """Return what equal paths have in common: all but the numbers of their devices."""
    ends = _NUMBER.sub("", row.path)
    if isinstance(row.limit, NoLimit):
        return ends, row.kind, _NUMBER.sub("", row.limit.why)
    because = _NUMBER.sub("", row.limit.because)
    return ends, row.kind, because, row.limit.value, row.limit.derivation, row.limit.sources, row.expected


def _row_lines(name: str, alike: Sequence[PathLimit], sources: dict[str, int]) -> Iterator[str]:
    """Yield the row of equal paths; new sources get the next number in `sources`."""
    row = alike[0]
    like = f"for {row.path}: " if len(alike) > 1 else ""
    if not isinstance(row.limit, Limit):
        yield f"{name} unknown"
        yield f"{'':8}{like}{wording.escape(row.limit.why)}"
        return
    expected = f"   expected {wording.band_words(row.expected, '{} and up')}" if row.expected is not None else ""
    yield f"{name} {format_bandwidth(row.limit.value):>10}{expected}"
    yield f"{'':8}because   {like}{wording.escape(row.limit.because)}"
    for step in row.limit.derivation:
        yield f"{'':8}          {step.value:>10}  {wording.escape(step.text)}"
    numbers = [sources.setdefault(str(source), len(sources) + 1) for source in row.limit.sources]
    yield f"{'':8}source    {' '.join(f'[{number}]' for number in numbers)}"


def _name_paths(alike: Sequence[PathLimit]) -> str:
    """Name equal paths by their ends: `gpu0-7>nic0-7, 8 paths`."""
    if len(alike) == 1:
        return alike[0].path
    ends = [row.path.partition(">") for row in alike]
    first, second = (_format_ends(list(dict.fromkeys(end[place] for end in ends))) for place in (0, 2))
    return f"{first}>{second}, {len(alike)} paths"


def _format_ends(names: Sequence[str]) -> str:
    runs = format_runs(names)
    return runs if len(runs) <= _LONGEST else f"{names[0]} to {names[-1]}"

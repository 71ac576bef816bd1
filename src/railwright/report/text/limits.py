"""Limits as plain text, for `limits`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from railwright.expected.path_rows import PathLimit
from railwright.limits.limit import Limit
from railwright.report.text import wording
from railwright.topology.cluster import Cluster, describe_gpus
from railwright.units import format_bandwidth, format_count


def render_limits(cluster: Cluster, rows: Iterable[PathLimit]) -> str:
    """Render each path with its limit, band, narrowest link, derivation and sources."""
    hosts = format_count(cluster.hosts, "host")
    head = f"limits of {wording.escape(cluster.name)}, {hosts}, {describe_gpus(cluster)}, each direction"
    return "\n".join([head, "", *(line for row in rows for line in _row_lines(row))])


def _row_lines(row: PathLimit) -> Iterator[str]:
    name = f"{row.path}  {row.kind}"
    if not isinstance(row.limit, Limit):
        yield f"{name:26} unknown"
        yield f"{'':8}{wording.escape(row.limit.why)}"
        return
    expected = f"   expected {wording.band_words(row.expected, '{} and up')}" if row.expected is not None else ""
    yield f"{name:26} {format_bandwidth(row.limit.value):>10}{expected}"
    yield f"{'':8}because   {wording.escape(row.limit.because)}"
    for step in row.limit.derivation:
        yield f"{'':8}          {step.value:>10}  {wording.escape(step.text)}"
    yield f"{'':8}source    {'; '.join(map(str, row.limit.sources))}"

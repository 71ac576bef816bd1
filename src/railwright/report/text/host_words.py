"""A table of hosts in words, for every report of it."""

from __future__ import annotations

from railwright.diagnosis.fleet.host_table import Cell, Column, HostSeen, HostTable
from railwright.report.text import wording
from railwright.units import format_count


def column_name(column: Column) -> str:
    """Name a column by its benchmark, path, parameters and quantity."""
    varied = wording.parameter_words(column.parameters)
    quantity = wording.QUANTITY_WORDS.get(column.quantity, column.quantity)
    return ", ".join(filter(None, (f"{column.benchmark} {column.path}", varied, quantity)))


def describe_lag(cell: Cell, column: Column) -> str:
    """Describe how far a host is behind the others at a path."""
    value, median = (wording.quantity(column.quantity, number) for number in (cell.value, column.median))
    part = "" if cell.part is None else f" ({cell.part:.2f} of the others)"
    return f"{column_name(column)}: {value}{part}, the median of all hosts is {median}"


def describe_host(host: HostSeen, table: HostTable) -> str:
    """Describe a host by its trouble, by the path at which it is furthest behind, or by its first notable verdict."""
    if host.trouble:
        return host.trouble
    notable = host.behind or host.telling
    if not notable:
        return "like the others"
    first, column = notable[0], table.columns[notable[0].column]
    more = f", and {format_count(len(notable) - 1, 'path')} more" if len(notable) > 1 else ""
    if host.behind:
        return f"behind at {describe_lag(first, column)}{more}"
    return f"{wording.state_word(first.state)}: {column_name(column)}{more}, like its siblings"


def summarize(table: HostTable) -> str:
    """Summarize the table in one sentence."""
    troubled = sum(bool(host.trouble) for host in table.hosts)
    behind = sum(bool(host.behind and not host.trouble) for host in table.hosts)
    parts = [format_count(len(table.hosts), "host")]
    parts += [f"{troubled} without results"] if troubled else []
    parts += [f"{behind} behind the others"] if behind else []
    return ", ".join(parts if troubled or behind else [*parts, "none behind the others"])

"""What a table of hosts says in words, for every report of it."""

from __future__ import annotations

from railwright.diagnosis.fleet.host_table import Cell, Column, HostSeen, HostTable
from railwright.report.text import wording
from railwright.units import count


def column_name(column: Column) -> str:
    """Benchmark, path, and what was varied."""
    varied = wording.parameter_words(column.parameters)
    quantity = wording.QUANTITY_WORDS.get(column.quantity, column.quantity)
    return ", ".join(filter(None, (f"{column.benchmark} {column.path}", varied, quantity)))


def behind_words(cell: Cell, column: Column) -> str:
    """How far one host is behind the others at one path."""
    value, median = (wording.quantity(column.quantity, number) for number in (cell.value, column.median))
    part = "" if cell.part is None else f" ({cell.part:.2f} of the others)"
    return f"{column_name(column)}: {value}{part}, all hosts have {median} in the middle"


def host_says(host: HostSeen, table: HostTable) -> str:
    """Why a host is told of: its trouble, or the path at which it is furthest behind."""
    if host.trouble:
        return host.trouble
    told = host.behind or host.telling
    if not told:
        return "like the others"
    first, column = told[0], table.columns[told[0].column]
    more = f", and {count(len(told) - 1, 'path')} more" if len(told) > 1 else ""
    if host.behind:
        return f"behind at {behind_words(first, column)}{more}"
    return f"{first.state}: {column_name(column)}{more}, as far as its siblings are"


def answer(table: HostTable) -> str:
    """The first sentence."""
    troubled = sum(bool(host.trouble) for host in table.hosts)
    behind = sum(bool(host.behind and not host.trouble) for host in table.hosts)
    parts = [count(len(table.hosts), "host")]
    parts += [f"{troubled} without results"] if troubled else []
    parts += [f"{behind} behind the others"] if behind else []
    return ", ".join(parts if troubled or behind else [*parts, "none behind the others"])

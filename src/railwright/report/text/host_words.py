"""What a table of hosts says in words, for every report of it."""

from __future__ import annotations

from railwright.diagnosis.fleet.host_table import Cell, Column, HostSeen, HostTable
from railwright.diagnosis.verdicts.verdict import format_quantity
from railwright.report.text import wording
from railwright.units import count


def column_name(column: Column) -> str:
    """Benchmark, path, and what was varied."""
    varied = wording.parameter_words(column.parameters)
    quantity = wording.QUANTITY_WORDS.get(column.quantity, column.quantity)
    return ", ".join(filter(None, (f"{column.benchmark} {column.path}", varied, quantity)))


def value_words(cell: Cell, column: Column) -> str:
    """`12.1 GB/s`; a dash where there is no value."""
    return wording.ABSENT if cell.value is None else format_quantity(column.quantity, cell.value)


def behind_words(cell: Cell, column: Column) -> str:
    """How far one host is behind the others at one path."""
    median = wording.ABSENT if column.median is None else format_quantity(column.quantity, column.median)
    part = "" if cell.part is None else f" ({cell.part:.2f} of the others)"
    return f"{column_name(column)}: {value_words(cell, column)}{part}, all hosts have {median} in the middle"


def host_says(host: HostSeen, table: HostTable) -> str:
    """Why a host is told of: its trouble, or the path at which it is furthest behind."""
    if host.trouble:
        return host.trouble
    behind = host.behind
    if behind:
        more = f", and {count(len(behind) - 1, 'path')} more" if len(behind) > 1 else ""
        return f"behind at {behind_words(behind[0], table.columns[behind[0].column])}{more}"
    telling = host.telling
    if telling:
        first = telling[0]
        more = f", and {count(len(telling) - 1, 'path')} more" if len(telling) > 1 else ""
        return f"{first.state}: {column_name(table.columns[first.column])}{more}, as far as its siblings are"
    return "like the others"


def answer(table: HostTable) -> str:
    """The first sentence."""
    troubled = sum(bool(host.trouble) for host in table.hosts)
    behind = sum(bool(host.behind and not host.trouble) for host in table.hosts)
    parts = [count(len(table.hosts), "host")]
    parts += [f"{troubled} without results"] if troubled else []
    parts += [f"{behind} behind the others"] if behind else []
    return ", ".join(parts if troubled or behind else [*parts, "none behind the others"])

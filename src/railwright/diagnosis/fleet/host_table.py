"""Hosts that each proved themselves, one against its siblings: every path of every host, and which hosts stand out.

A sibling's value is no limit: what all hosts lack alike is seen by each host's own verdicts, not here.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import NamedTuple, TypeVar

import msgspec

from railwright.diagnosis.verdicts.judged import Diagnosis, JudgedPath, State
from railwright.diagnosis.verdicts.pair import Standing
from railwright.limits.limit import Quantity
from railwright.results.statistics import quantile
from railwright.topology.devices import Scalar

NEEDED = 3
"""Of two hosts nobody knows which is the healthy one."""
_BEHIND_BY = 0.10
"""Our choice: twice what fresh processes on one idle host differ by (docs/measured/host-paths)."""
_SPREADS = 6.0
"""A host also has to be so many times as far from the median as healthy hosts are, by their median deviation ..."""
_RANGES = 2.0
"""... and so many times as far as the upper three quarters of the others lie apart, which few hosts tell better."""
_FEW = 6
"""Of so few others the range counts twice."""
_MANY = 50
"""Among so many one counts for nothing."""
_DEVIATION = 1.4826  # of a normal distribution, from its median absolute deviation
_TELLING: tuple[State, ...] = ("slow", "failed", "suspicious")

One = TypeVar("One", bound=Hashable)
Key = tuple[str, str, str, tuple[tuple[str, Scalar], ...]]


class Column(msgspec.Struct, frozen=True, kw_only=True, tag="column", tag_field="record", forbid_unknown_fields=True):
    """One path at the work that stands for it."""

    benchmark: str
    quantity: Quantity
    path: str
    parameters: dict[str, Scalar]
    median: float | None
    """Of all hosts, in the quantity's unit; None where none has a value."""


class Cell(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What one host reached of one path."""

    column: int
    """Its number in the table's columns, counted from 0."""
    state: State
    """The host's own verdict."""
    value: float | None
    part: float | None
    """Of the others' median, so that below 1 is worse: a latency's is turned over. None where there are no others."""
    standing: Standing


class HostSeen(msgspec.Struct, frozen=True, kw_only=True, tag="host", tag_field="record", forbid_unknown_fields=True):
    """One host."""

    name: str
    cells: tuple[Cell, ...] = ()
    trouble: str = ""
    """Why it gave no results, or not all."""

    @property
    def behind(self) -> tuple[Cell, ...]:
        """The paths at which it is behind the others, the furthest first."""
        return tuple(sorted((one for one in self.cells if one.standing == "behind"), key=_part))

    @property
    def telling(self) -> tuple[Cell, ...]:
        """The paths that its own verdict calls slow, failed or suspicious."""
        return tuple(one for one in self.cells if one.state in _TELLING)

    @property
    def is_outlier(self) -> bool:
        """Whether it stands out from the others."""
        return bool(self.trouble or self.behind)


class HostTable(NamedTuple):
    """Every host with every path. Hosts stand in the order in which they are told: what stands out first."""

    columns: tuple[Column, ...]
    hosts: tuple[HostSeen, ...]


def _part(cell: Cell) -> float:
    return 1.0 if cell.part is None else cell.part


def host_table(
    judged: Mapping[str, Diagnosis | str], *, compare: bool = True, troubles: Mapping[str, str] | None = None
) -> HostTable:
    """The table of hosts, each with what it measured or why there is nothing.

    Without `compare` nobody is behind: hosts that share CPUs disturb each other. `troubles` are of hosts whose records
    were cut off: what they sent counts.
    """
    cut_off = troubles or {}
    found: dict[Key, dict[str, JudgedPath]] = {}
    for host, diagnosis in judged.items():
        for path in diagnosis.paths if isinstance(diagnosis, Diagnosis) else ():
            if path.verdict.state != "waived":
                found.setdefault(_key(path), {})[host] = path
    columns = []
    cells: dict[str, list[Cell]] = {host: [] for host in judged}
    for number, of_hosts in enumerate(found.values()):
        column, made = _column(number, of_hosts, compare)
        columns.append(column)
        for host, cell in made.items():
            cells[host].append(cell)
    hosts = [
        HostSeen(
            name=host,
            cells=tuple(cells[host]),
            trouble=one if isinstance(one, str) else cut_off.get(host, "") or _unfinished(one),
        )
        for host, one in judged.items()
    ]
    return HostTable(tuple(columns), tuple(sorted(hosts, key=_rank)))


def _key(path: JudgedPath) -> Key:
    return (path.benchmark, path.quantity, path.path, tuple(sorted(path.parameters.items())))


def _unfinished(diagnosis: Diagnosis) -> str:
    return "" if diagnosis.paths else "it measured nothing"


def _rank(host: HostSeen) -> tuple[int, float, int, str]:
    worst = min(map(_part, host.behind), default=1.0)
    return (0 if host.trouble else 1 if host.behind else 2, worst, -len(host.telling), host.name)


def _column(number: int, of_hosts: Mapping[str, JudgedPath], compare: bool) -> tuple[Column, dict[str, Cell]]:
    """One path of all hosts that have it."""
    first = next(iter(of_hosts.values()))
    is_time = first.quantity == "latency_s"
    values = {host: _values(path) for host, path in of_hosts.items()}
    goods = {host: sorted(1 / one if is_time else one for one in own if one > 0) for host, own in values.items()}
    cells = {}
    for host, (part, standing) in among_others(goods, compare=compare).items():
        value = quantile(values[host], 0.5) if values[host] else None
        state = of_hosts[host].verdict.state
        cells[host] = Cell(column=number, state=state, value=value, part=part, standing=standing)
    every = sorted(quantile(own, 0.5) for own in goods.values() if own)
    middle = quantile(every, 0.5) if every else None
    column = Column(
        benchmark=first.benchmark,
        quantity=first.quantity,
        path=first.path,
        parameters=first.parameters,
        median=1 / middle if is_time and middle else middle,
    )
    return column, cells


def among_others(
    values: Mapping[One, Sequence[float]], *, compare: bool
) -> dict[One, tuple[float | None, Standing]]:  # fmt: skip
    """Each one's median as a part of the others', and how it stands among them.

    Values are from low to high, of which more is better; none where it has none. Without `compare` nobody is behind.
    """
    own = {one: quantile(of_one, 0.5) for one, of_one in values.items() if of_one}
    every = sorted(own.values())
    of_all = _usual_of(every) if len(every) > _MANY else None
    found: dict[One, tuple[float | None, Standing]] = dict.fromkeys(values, (None, "alone"))
    for one, value in own.items() if len(every) > 1 else ():
        usual, far = of_all or _usual_of(_without(every, value))
        standing: Standing = "alone"
        if len(every) >= NEEDED:
            standing = "behind" if compare and usual - values[one][-1] > far else "with the others"
        found[one] = value / usual, standing
    return found


def _usual_of(others: Sequence[float]) -> tuple[float, float]:
    """What is usual, and how far below it a host is behind: farther than healthy hosts, most of the others, lie."""
    usual = quantile(others, 0.5)
    deviation = _DEVIATION * quantile(sorted(abs(one - usual) for one in others), 0.5)
    ranges = _RANGES * (1 + _FEW / len(others))
    return usual, max(_BEHIND_BY * usual, _SPREADS * deviation, ranges * (others[-1] - quantile(others, 0.25)))


def _values(path: JudgedPath) -> list[float]:
    """The medians of the launches of the point that stands for a path, from low to high."""
    head = path.headline
    if head is None or head.value is None:
        return []
    return sorted(one.median for one in head.launches) or [head.value]


def _without(every: Sequence[float], own: float) -> Sequence[float]:
    """All values but one."""
    found = list(every)
    found.remove(own)
    return found

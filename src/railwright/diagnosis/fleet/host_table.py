"""Compares hosts with their siblings: every path of every host, and the outliers.

A sibling's value is not a limit: a loss that all hosts share shows in each host's own verdicts, not here.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import NamedTuple, TypeVar

import msgspec

from railwright.diagnosis.verdicts.judged import Diagnosis, JudgedPath, State
from railwright.diagnosis.verdicts.pair import PeerStanding
from railwright.limits.limit import Quantity
from railwright.results.statistics import quantile
from railwright.topology.devices import Scalar

NEEDED = 3
"""With two hosts it is unknown which one is healthy."""
_BEHIND_BY = 0.10
"""Our choice: twice the variation between fresh processes on an idle host (docs/measured/host-paths)."""
_SPREADS = 6.0
"""An outlier is below the median of the others by more than this many standard deviations, estimated from their median
absolute deviation ..."""
_RANGES = 2.0
"""... and by more than this multiple of the range of their upper three quarters, which suits few hosts better."""
_FEW_HOSTS = 6
"""With this many others `_RANGES` is doubled; with more it is increased less."""
_MANY_HOSTS = 50
"""Above this number of hosts a host's own value hardly affects the median."""
_DEVIATION = 1.4826  # standard deviation over median absolute deviation of a normal distribution
_TELLING: tuple[State, ...] = ("slow", "failed", "suspicious")

One = TypeVar("One", bound=Hashable)
Key = tuple[str, str, str, tuple[tuple[str, Scalar], ...]]


class Column(msgspec.Struct, frozen=True, kw_only=True, tag="column", tag_field="record", forbid_unknown_fields=True):
    """A path at its representative work."""

    benchmark: str
    quantity: Quantity
    path: str
    parameters: dict[str, Scalar]
    median: float | None
    """The median of all hosts, in the quantity's unit; None if no host has a value."""


class Cell(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The result of one host for one path."""

    column: int
    """The index in the table's columns."""
    state: State
    """The host's own verdict."""
    value: float | None
    part: float | None
    """The value as a share of the others' median, inverted for a latency, so that below 1 is worse; None if alone."""
    standing: PeerStanding


class HostSeen(msgspec.Struct, frozen=True, kw_only=True, tag="host", tag_field="record", forbid_unknown_fields=True):
    """A host with its cells."""

    name: str
    cells: tuple[Cell, ...] = ()
    trouble: str = ""
    """The reason why results are missing."""

    @property
    def behind(self) -> tuple[Cell, ...]:
        """The paths on which the host is behind the others, the furthest first."""
        return tuple(sorted((cell for cell in self.cells if cell.standing == "behind"), key=_share_of_others))

    @property
    def telling(self) -> tuple[Cell, ...]:
        """The paths with a slow, failed or suspicious verdict of their own."""
        return tuple(cell for cell in self.cells if cell.state in _TELLING)

    @property
    def is_outlier(self) -> bool:
        """Whether the host stands out from the others."""
        return bool(self.trouble or self.behind)


class HostTable(NamedTuple):
    """Every host with every path, outliers first."""

    columns: tuple[Column, ...]
    hosts: tuple[HostSeen, ...]


def _share_of_others(cell: Cell) -> float:
    return 1.0 if cell.part is None else cell.part


def host_table(
    judged: Mapping[str, Diagnosis | str], *, compare: bool = True, troubles: Mapping[str, str] | None = None
) -> HostTable:
    """Build the table from each host's diagnosis, or the reason why it has none.

    Without `compare` no host is behind, because hosts that share CPUs disturb each other. `troubles` holds the hosts
    whose records were cut off; the records that they sent count.
    """
    cut_off = troubles or {}
    found: dict[Key, dict[str, JudgedPath]] = {}
    for host, diagnosis in judged.items():
        for path in diagnosis.paths if isinstance(diagnosis, Diagnosis) else ():
            if path.verdict.state != "waived":
                found.setdefault(_path_key(path), {})[host] = path
    columns = []
    cells: dict[str, list[Cell]] = {host: [] for host in judged}
    for number, of_hosts in enumerate(found.values()):
        column, made = _build_column(number, of_hosts, compare)
        columns.append(column)
        for host, cell in made.items():
            cells[host].append(cell)
    hosts = [
        HostSeen(
            name=host,
            cells=tuple(cells[host]),
            trouble=diagnosis_or_trouble
            if isinstance(diagnosis_or_trouble, str)
            else cut_off.get(host, "") or _unfinished(diagnosis_or_trouble),
        )
        for host, diagnosis_or_trouble in judged.items()
    ]
    return HostTable(tuple(columns), tuple(sorted(hosts, key=_rank)))


def _path_key(path: JudgedPath) -> Key:
    return (path.benchmark, path.quantity, path.path, tuple(sorted(path.parameters.items())))


def _unfinished(diagnosis: Diagnosis) -> str:
    return "" if diagnosis.paths else "nothing was measured"


def _rank(host: HostSeen) -> tuple[int, float, int, str]:
    worst = min(map(_share_of_others, host.behind), default=1.0)
    return (0 if host.trouble else 1 if host.behind else 2, worst, -len(host.telling), host.name)


def _build_column(number: int, of_hosts: Mapping[str, JudgedPath], compare: bool) -> tuple[Column, dict[str, Cell]]:
    """Build the column of a path, with the cells of all hosts that have it."""
    first = next(iter(of_hosts.values()))
    is_time = first.quantity == "latency_s"
    values = {host: _values(path) for host, path in of_hosts.items()}
    goods = {
        host: sorted(1 / value if is_time else value for value in launches if value > 0)
        for host, launches in values.items()
    }
    cells = {}
    for host, (part, standing) in rank_among_peers(goods, compare=compare).items():
        value = quantile(values[host], 0.5) if values[host] else None
        state = of_hosts[host].verdict.state
        cells[host] = Cell(column=number, state=state, value=value, part=part, standing=standing)
    medians = sorted(quantile(launches, 0.5) for launches in goods.values() if launches)
    middle = quantile(medians, 0.5) if medians else None
    column = Column(
        benchmark=first.benchmark,
        quantity=first.quantity,
        path=first.path,
        parameters=first.parameters,
        median=1 / middle if is_time and middle else middle,
    )
    return column, cells


def rank_among_peers(
    values: Mapping[One, Sequence[float]], *, compare: bool
) -> dict[One, tuple[float | None, PeerStanding]]:  # fmt: skip
    """Return each key's median as a share of the others' median, and its standing among them.

    Values are ascending, and higher is better; they may be empty. Without `compare` no key is behind.
    """
    medians = {key: quantile(of_one, 0.5) for key, of_one in values.items() if of_one}
    every = sorted(medians.values())
    of_all = _compute_usual(every) if len(every) > _MANY_HOSTS else None
    found: dict[One, tuple[float | None, PeerStanding]] = dict.fromkeys(values, (None, "alone"))
    for key, value in medians.items() if len(every) > 1 else ():
        usual, far = of_all or _compute_usual(_drop_one(every, value))
        standing: PeerStanding = "alone"
        if len(every) >= NEEDED:
            standing = "behind" if compare and usual - values[key][-1] > far else "with the others"
        found[key] = value / usual, standing
    return found


def _compute_usual(others: Sequence[float]) -> tuple[float, float]:
    """Return the median, and the distance below it from which a host is behind, beyond the spread of most others."""
    usual = quantile(others, 0.5)
    deviation = _DEVIATION * quantile(sorted(abs(value - usual) for value in others), 0.5)
    ranges = _RANGES * (1 + _FEW_HOSTS / len(others))
    return usual, max(_BEHIND_BY * usual, _SPREADS * deviation, ranges * (others[-1] - quantile(others, 0.25)))


def _values(path: JudgedPath) -> list[float]:
    """Return the medians of the launches of a path's headline, ascending."""
    head = path.headline
    if head is None or head.value is None:
        return []
    return sorted(launch.median for launch in head.launches) or [head.value]


def _drop_one(every: Sequence[float], own: float) -> Sequence[float]:
    """Return all values except one occurrence of `own`."""
    found = list(every)
    found.remove(own)
    return found

"""Where a row is below its band, but not beyond doubt: what healthy machines of one kind differ by.

A doubt is no excuse for a whole table: it turns a row into `unknown` with the reason, never into `ok`.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from railwright.diagnosis.verdicts.call_time import CallTime
from railwright.diagnosis.verdicts.judged import Judged, Verdict
from railwright.limits.limit import Expected, Limit
from railwright.results.records import size_of
from railwright.units import format_duration

_OF_SWITCH = 0.5
"""Where NCCL changes its protocol: eight A100 reach 0.67 of the band at 8 MiB, 0.45 to 0.7 about it, and
all of it above (SuperBench, recorded outputs, nccl_reducescatter.log)."""
_OF_OLD = 0.8
"""Of the low end with NCCL of 2020: 0.91 at 1 GiB on p4d with 2.8.3, 0.99 and less below (AWS, Getting started with EFA
on EKS)."""
OLD_NCCL = (2, 9)
_OF_A_CALL = 0.4
_OF_BYTES = 0.75
_CALL_DECIDES = 0.1
"""Of the limit: where a band ends below this share of it, the time is that of the call."""
_BYTES_DECIDE = 0.5
"""From this share of the largest size's rate on, bytes decide the time more than the call does."""
_WHY_CALL = "the fixed time of a call differs as much between healthy hosts, plug-ins and containers, and large sizes"
_WHY_CALLS = "at these sizes a call decides, whose time differs as much between healthy hosts, versions and containers"
_WHY_SWITCH = "NCCL changes its protocol about this size, which a version may do too early or too late, and larger ones"


def largest_row(rows: Sequence[Judged]) -> int | None:
    """The number of the row of the largest size, the best of its placements; for rows without sizes the best value."""

    def rank(number: int) -> tuple[int, float]:
        return size_of(rows[number].parameters) or 0, rows[number].value or 0.0

    bandwidths = [number for number, row in enumerate(rows) if row.quantity != "latency_s"]
    return max(bandwidths or range(len(rows)), key=rank, default=None)


def of_old_nccl(rows: Sequence[Judged], headline: int, hosts: int, version: tuple[int, ...]) -> tuple[Judged, ...]:
    """The rows between hosts by an NCCL that is older than what the bands were taken from.

    Where its largest size is little below the band, smaller ones are in doubt as below a size that is in it.
    """
    if hosts < 2 or not version or version[:2] >= OLD_NCCL or _share(rows[headline]) < _OF_OLD:
        return tuple(rows)
    why = f"NCCL {'.'.join(map(str, version))} reaches less than later ones, which the band is of"
    return _near_in_doubt(rows, why)


def _near_in_doubt(rows: Sequence[Judged], why: str) -> tuple[Judged, ...]:
    """The rows; those that are slow are in doubt where they have a part of their band that a call may cost."""
    return tuple(_doubted(row, why) if _is_slow(row) and _share(row) >= _OF_A_CALL else row for row in rows)


def _is_slow(row: Judged) -> bool:
    return row.verdict.state == "slow"


def weighed(rows: Sequence[Judged], headline: int | None, hosts: int, call: CallTime | None) -> tuple[Judged, ...]:
    """The rows of a collective, where a doubt is about the whole table.

    A fault of a link takes its rate from the largest size too, and slows a size in both of its placements. So where
    the largest size is in its band, a smaller one is slow only if both placements are, and far below the band.
    Between hosts that holds for every size, since what a network plug-in does to middle sizes is not published; inside
    one host only where the call decides. `call` is a fixed time that such machines may have: then nothing is slow.
    A table that ends before bytes count has no such size: its call may take as long on a healthy machine.
    """
    if headline is None:
        return tuple(rows)
    if rows[headline].verdict.state != "ok":
        return _near_in_doubt(rows, _WHY_CALLS) if _is_of_a_call(rows[headline]) else tuple(rows)
    if call is not None:
        return tuple(_of_call(row, call) if row.verdict.state == "slow" else row for row in rows)
    top = rows[headline].expected
    best: dict[int, float] = {}
    for row in rows:
        best[_size(row)] = max(best.get(_size(row), 0.0), _share(row))
    found = tuple(
        _in_words(row, _WHY_CALL) if _is_slow(row) and _in_doubt(row, best[_size(row)], top, hosts) else row
        for row in rows
    )
    still = {_size(row) for row in found if _is_slow(row)}
    if len(still) == 1 and best[min(still)] >= _OF_SWITCH:
        return tuple(_in_words(row, _WHY_SWITCH) if _is_slow(row) else row for row in found)
    return found


def _is_of_a_call(row: Judged) -> bool:
    """Whether bytes decide nothing at the largest size: its band ends far below what the links carry."""
    high = row.expected.high if row.expected is not None else None
    return isinstance(row.limit, Limit) and high is not None and high < _CALL_DECIDES * row.limit.value


def _size(row: Judged) -> int:
    return size_of(row.parameters) or 0


def _of_call(row: Judged, call: CallTime) -> Judged:
    time = format_duration(call.extra_s)
    return _in_words(row, f"a fixed time of {time} a call explains it, as {call.known_of} have; large sizes")


def _in_doubt(row: Judged, best: float, top: Expected | None, hosts: int) -> bool:
    """Whether a row below its band is not beyond doubt; `best` is the better placement's share of the low end."""
    highs = [band.high for band in (row.expected, top) if band is not None and band.high]
    if hosts == 1 and len(highs) > 1 and highs[0] >= _BYTES_DECIDE * highs[1]:
        return _share(row) >= _OF_BYTES
    return best >= _OF_A_CALL


def _share(row: Judged) -> float:
    return row.value / row.expected.low if row.value and row.expected and row.expected.low else 0.0


def _in_words(row: Judged, why: str) -> Judged:
    return _doubted(row, f"{why} are in their band")


def _doubted(row: Judged, why: str) -> Judged:
    return replace(row, verdict=Verdict(state="unknown", why=f"{row.verdict.why}, but {why}"))

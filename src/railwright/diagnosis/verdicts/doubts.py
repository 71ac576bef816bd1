"""Doubts about slow rows that are within the variation between healthy machines.

A doubt turns a row into `unknown` with the reason, never into `ok`.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from railwright.diagnosis.verdicts.call_time import CallTime
from railwright.diagnosis.verdicts.judged import Judged, Verdict
from railwright.limits.limit import Expected, Limit
from railwright.results.records import find_size
from railwright.units import format_duration

_SWITCH_SHARE = 0.5
"""The share of the band at which NCCL changes protocol: eight A100 reach 0.67 of the band at 8 MiB, 0.45 to 0.7
around it, and all of it above (SuperBench, recorded outputs, nccl_reducescatter.log)."""
_MOST_SWITCH_SIZES = 3
_SWITCH_UP_TO = 16 * 2**20
"""The number of sizes and the largest of them that a change of protocol may slow."""
_OLD_SHARE = 0.8
"""The share of the low end that NCCL of 2020 reaches: 0.91 at 1 GiB on p4d with 2.8.3, 0.99 and less below
(AWS, Getting started with EFA on EKS)."""
OLD_NCCL = (2, 9)
_CALL_SHARE = 0.4
_BYTES_SHARE = 0.75
_CALL_DECIDES = 0.1
"""Share of the limit: in a band that ends below it the call decides the time."""
_BYTES_DECIDE = 0.5
"""Share of the largest size's rate from which bytes decide the time more than the call does."""
_WHY_CALL = "the fixed time of a call varies as much between healthy hosts, plug-ins and containers, and large sizes"
_WHY_CALLS = (
    "at these sizes the call decides, and its time varies as much between healthy hosts, versions and containers"
)
_WHY_SWITCH = (
    "NCCL changes its protocol around these sizes, and some versions do so too early or too late (8 A100: 0.45 to 0.7"
    " of the band, SuperBench's recorded outputs), and larger sizes"
)


def largest_row(rows: Sequence[Judged]) -> int | None:
    """Return the index of the row with the largest size in its best placement; without sizes, with the best value."""

    def rank(number: int) -> tuple[int, float]:
        return find_size(rows[number].parameters) or 0, rows[number].value or 0.0

    bandwidths = [number for number, row in enumerate(rows) if row.quantity != "latency_s"]
    return max(bandwidths or range(len(rows)), key=rank, default=None)


def doubt_old_nccl(rows: Sequence[Judged], headline: int, hosts: int, version: tuple[int, ...]) -> tuple[Judged, ...]:
    """Doubt slow rows between hosts if NCCL is older than the versions that the bands were taken from.

    If the largest size is only a little below the band, smaller sizes are doubted as if it were in the band.
    """
    if hosts < 2 or not version or version[:2] >= OLD_NCCL or _share_of_band(rows[headline]) < _OLD_SHARE:
        return tuple(rows)
    why = f"NCCL {'.'.join(map(str, version))} reaches less than later versions, on which the band is based"
    return _doubt_near_rows(rows, why)


def _doubt_near_rows(rows: Sequence[Judged], why: str) -> tuple[Judged, ...]:
    """Doubt slow rows that miss no more of their band than a call may cost."""
    return tuple(_doubt(row, why) if _is_slow(row) and _share_of_band(row) >= _CALL_SHARE else row for row in rows)


def _is_slow(row: Judged) -> bool:
    return row.verdict.state == "slow"


def doubt_rows(rows: Sequence[Judged], headline: int | None, hosts: int, call: CallTime | None) -> tuple[Judged, ...]:
    """Doubt slow rows of a collective in view of the whole table.

    A faulty link also slows the largest size, and slows a size in both of its placements. So if the largest size is in
    its band, a smaller one is slow only if both placements are far below the band. Between hosts that holds for every
    size, because the effect of network plug-ins on middle sizes is not published; inside one host only where the call
    decides. `call` is a fixed time that such machines may have: then nothing is slow. A table that ends before bytes
    decide has no such size: the call may take as long on a healthy machine.
    """
    if headline is None:
        return tuple(rows)
    if rows[headline].verdict.state != "ok":
        return _doubt_near_rows(rows, _WHY_CALLS) if _is_call_bound(rows[headline]) else tuple(rows)
    if call is not None:
        return tuple(_doubt_call(row, call) if row.verdict.state == "slow" else row for row in rows)
    top = rows[headline].expected
    best: dict[int, float] = {}
    for row in rows:
        best[_size(row)] = max(best.get(_size(row), 0.0), _share_of_band(row))
    found = tuple(
        _doubt_others_in_band(row, _WHY_CALL)
        if _is_slow(row) and _is_doubtful(row, best[_size(row)], top, hosts)
        else row
        for row in rows
    )
    still = {_size(row) for row in found if _is_slow(row)}
    near = len(still) == 1 or (
        len(still) <= _MOST_SWITCH_SIZES and max(still, default=0) <= _SWITCH_UP_TO and hosts == 1
    )
    if still and near and min(best[size] for size in still) >= _SWITCH_SHARE:
        return tuple(_doubt_others_in_band(row, _WHY_SWITCH) if _is_slow(row) else row for row in found)
    return found


def _is_call_bound(row: Judged) -> bool:
    """Report whether the call decides even at the largest size: its band ends far below the rate of the links."""
    high = row.expected.high if row.expected is not None else None
    return isinstance(row.limit, Limit) and high is not None and high < _CALL_DECIDES * row.limit.value


def _size(row: Judged) -> int:
    return find_size(row.parameters) or 0


def _doubt_call(row: Judged, call: CallTime) -> Judged:
    time = format_duration(call.extra_s)
    return _doubt_others_in_band(
        row, f"a fixed time of {time} per call explains it, as with {call.known_of}; large sizes"
    )


def _is_doubtful(row: Judged, best: float, top: Expected | None, hosts: int) -> bool:
    """Report whether a slow row is in doubt; `best` is the better placement's share of the low end."""
    highs = [band.high for band in (row.expected, top) if band is not None and band.high]
    if hosts == 1 and len(highs) > 1 and highs[0] >= _BYTES_DECIDE * highs[1]:
        return _share_of_band(row) >= _BYTES_SHARE
    return best >= _CALL_SHARE


def _share_of_band(row: Judged) -> float:
    return row.value / row.expected.low if row.value and row.expected and row.expected.low else 0.0


def _doubt_others_in_band(row: Judged, why: str) -> Judged:
    return _doubt(row, f"{why} are in their band")


def _doubt(row: Judged, why: str) -> Judged:
    return replace(row, verdict=Verdict(state="unknown", why=f"{row.verdict.why}, but {why}"))

"""Compares a judged run with an agreement: each line is met, not met, or not judged."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Literal, NamedTuple

import msgspec

from railwright.diagnosis.acceptance.agreement import PAIRS, Bound, Item, Spec
from railwright.diagnosis.verdicts.judged import Diagnosis, Judged, State, Verdict
from railwright.diagnosis.verdicts.pair import PairJudged
from railwright.diagnosis.verdicts.verdict import format_quantity, fraction_of_limit, state_word
from railwright.errors import EXIT_OK, EXIT_SLOW, EXIT_UNJUDGED
from railwright.limits.limit import Limit, NoLimit, Quantity
from railwright.results.records import Point, make_point
from railwright.topology.devices import Scalar
from railwright.units import format_count, format_size

LineState = Literal["met", "not met", "not judged"]
WORST_FIRST: tuple[LineState, ...] = ("not met", "not judged", "met")
_STATUS = {"not met": EXIT_SLOW, "not judged": EXIT_UNJUDGED, "met": EXIT_OK}
_BY_VERDICT: Mapping[State, LineState] = {"ok": "met", "slow": "not met"}


class Candidate(NamedTuple):
    """A curve or point that a line may match."""

    host: str
    """Empty for traffic between hosts, and for a single host."""
    benchmark: str
    path: str
    varied: tuple[tuple[str, Scalar], ...]
    quantity: Quantity
    value: float | None
    limit: Limit | NoLimit | None
    verdict: Verdict
    """The verdict of the point, or of the curve if this is its headline."""
    records: tuple[str, ...] = ()
    """The locations of its records: `hosts/node1/results.jsonl:12`."""
    is_headline: bool = True
    """Whether it represents its curve."""
    expected: float | None = None
    """The lowest expected rate, or the longest expected time; None if there is no band."""
    hosts: int = 1
    """The number of hosts whose ranks took part."""

    def fits(self, item: Item) -> bool:
        """Report whether a line asks for this path with these parameters. `hosts` counts as one."""
        has = {*self.varied, ("hosts", self.hosts)}
        return item.required.names(self.benchmark, self.path) and {*item.where} <= has

    @property
    def size_bytes(self) -> Scalar | None:
        """The size moved in bytes; None if the size was not varied."""
        return dict(self.varied).get("size_bytes")


class SheetLine(msgspec.Struct, frozen=True, kw_only=True, tag="acceptance_line", tag_field="record",
                omit_defaults=True, forbid_unknown_fields=True):  # fmt: skip
    """A measured value and the requirement on it."""

    item: int
    """The line of the specification, counted from 1; 0 for requirements on the whole run."""
    asked: str
    state: LineState
    why: str
    host: str = ""
    benchmark: str = ""
    path: str = ""
    parameters: dict[str, Scalar] = {}
    quantity: Quantity | None = None
    value: float | None = None
    limit: float | None = None
    verdict: State | None = None
    records: tuple[str, ...] = ()


class RecordFile(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """A file with the records of lines; the hash reveals later changes."""

    name: str
    """The path relative to the sheet's folder."""
    sha256: str
    lines: int
    host: str = ""
    started_at: str = ""
    railwright: str = ""
    """The version of Railwright that measured."""


class Sheet(msgspec.Struct, frozen=True, kw_only=True, tag="acceptance", tag_field="record", omit_defaults=True,
            forbid_unknown_fields=True):  # fmt: skip
    """The result of an acceptance."""

    title: str
    reference: str = ""
    between: tuple[str, ...] = ()
    state: LineState
    lines: tuple[SheetLine, ...]
    files: tuple[RecordFile, ...]

    @property
    def exit_status(self) -> int:
        """0: every line is met; 1: a line is not met; 3: a line could not be judged, and none is worse."""
        return _STATUS[self.state]


def worst_state(states: Iterable[LineState]) -> LineState:
    """Return the worst of the states."""
    found = set(states)
    return next((state for state in WORST_FIRST if state in found), "not judged")


def build_sheet(
    spec: Spec,
    seen: Sequence[Candidate],
    hosts: Sequence[str],
    lost: dict[str, str],
    files: tuple[RecordFile, ...],
    *,
    is_cut_off: bool = False,
) -> Sheet:
    """Build the sheet with the results of every line of the specification.

    `hosts` are the hosts with results, `lost` those without, each with the reason.
    """
    lines = [*_check_run(spec, hosts, lost, is_cut_off=is_cut_off)]
    for number, item in enumerate(spec.items, 1):
        lines += _check_item(number, item, seen, hosts)
    return Sheet(
        title=spec.title,
        reference=spec.reference,
        between=spec.between,
        state=worst_state(line.state for line in lines),
        lines=tuple(lines),
        files=files,
    )


def _check_run(spec: Spec, hosts: Sequence[str], lost: dict[str, str], *, is_cut_off: bool) -> Iterable[SheetLine]:
    if spec.hosts is not None:
        took_part = len(hosts) if hosts or lost else 1  # a single machine has no name
        state: LineState = "met" if took_part >= spec.hosts else "not judged"
        yield SheetLine(item=0, asked=format_count(spec.hosts, "host"), state=state, why=f"{took_part} gave results")
    for host, why in lost.items():
        yield SheetLine(item=0, asked="every host gives results", state="not judged", why=why, host=host)
    if is_cut_off:
        why = "it was interrupted, and the rest was not judged"
        yield SheetLine(item=0, asked="the run is complete", state="not judged", why=why)


def _check_item(number: int, item: Item, seen: Sequence[Candidate], hosts: Sequence[str]) -> Iterable[SheetLine]:
    """Yield a line for each matching point, and for each host without one."""
    named = [result for result in seen if result.fits(item)]
    matching = [result for result in named if _is_point(result, item.size_bytes)]
    matching = [result for result in matching if result.quantity in item.quantities] or matching
    for result in matching:
        state, why = _check_bounds(item, result)
        yield SheetLine(
            item=number,
            asked=str(item),
            state=state,
            why=why,
            host=result.host,
            benchmark=result.benchmark,
            path=result.path,
            parameters=dict(result.varied),
            quantity=result.quantity,
            value=result.value,
            limit=result.limit.value if isinstance(result.limit, Limit) else None,
            verdict=result.verdict.state,
            records=result.records,
        )
    size = f" at {format_size(item.size_bytes)}{_list_sizes(named)}" if named and item.size_bytes is not None else ""
    if not matching:
        yield SheetLine(item=number, asked=str(item), state="not judged", why=f"nothing was measured{size}")
    elif any(result.host for result in matching):
        for host in [host for host in hosts if host not in {result.host for result in matching}]:
            why = f"nothing was measured there{size}"
            yield SheetLine(item=number, asked=str(item), state="not judged", why=why, host=host)


def _list_sizes(seen: Sequence[Candidate]) -> str:
    """Return the measured sizes, so that a specification can name one of them; empty if no size was varied."""
    sizes = sorted({result.size_bytes for result in seen if isinstance(result.size_bytes, int)})
    return f", but at {', '.join(map(format_size, sizes))}" if sizes else ""


def _is_point(result: Candidate, size_bytes: int | None) -> bool:
    return result.is_headline if size_bytes is None else not result.is_headline and result.size_bytes == size_bytes


def _check_bounds(item: Item, result: Candidate) -> tuple[LineState, str]:
    """Compare a value with the bounds of a line."""
    state, why = result.verdict.state, result.verdict.why
    if state == "failed":
        return "not met", f"failed: {why}"
    if result.value is None or state in ("waived", "suspicious"):
        return "not judged", f"{state_word(state)}: {why}"
    if not item.bounds:
        return _BY_VERDICT.get(state, "not judged"), why if state == "ok" else f"{state_word(state)}: {why}"
    found = [_check_bound(bound, result, result.value) for bound in item.bounds]
    standing = worst_state(state_of_bound for state_of_bound, _ in found)
    return standing, next(words for state_of_bound, words in found if state_of_bound == standing)


def _check_bound(bound: Bound, result: Candidate, value: float) -> tuple[LineState, str]:
    if bound.quantity is None and bound.of == "expected":
        if not result.expected:
            return "not judged", "its expected value is unknown"
        share = result.expected / value if result.quantity == "latency_s" else value / result.expected
        return "met" if share >= bound.value else "not met", f"{share:.3f} of the expected"
    if bound.quantity is None:
        if not isinstance(result.limit, Limit):
            return "not judged", "its limit is unknown"
        share = fraction_of_limit(value, result.limit)
        return "met" if share >= bound.value else "not met", f"{share:.3f} of its limit"
    if bound.quantity != result.quantity:
        return "not judged", f"the bound is {bound}, but the measurement is of another quantity: {result.quantity}"
    is_met = value >= bound.value if bound.is_least else value <= bound.value
    asked = f"{'asked' if bound.is_least else 'allowed'} {format_quantity(bound.quantity, bound.value)}"
    share = value / bound.value if bound.value else math.inf
    return ("met" if is_met else "not met"), f"{share:.4g} {'times' if share > 1 else 'of'} the {asked}"


def list_candidates(diagnosis: Diagnosis, host: str, records: Mapping[Point, tuple[str, ...]]) -> list[Candidate]:
    """Return every curve and point of a judged run; `records` maps points to the locations of their records."""
    found = []
    for path in diagnosis.paths:
        if path.headline is None:
            varied = tuple(sorted(path.parameters.items()))
            found.append(Candidate(host, path.benchmark, path.path, varied, path.quantity, None, None, path.verdict))
        else:
            found.append(
                _build_candidate(path.headline, host, records)._replace(verdict=path.verdict, is_headline=True)
            )
    return found + [_build_candidate(point, host, records) for point in diagnosis.points]


def _build_candidate(point: Judged, host: str, records: Mapping[Point, tuple[str, ...]]) -> Candidate:
    key = make_point(point.benchmark, point.quantity, point.path, point.parameters)
    return Candidate(
        host,
        point.benchmark,
        point.path,
        key[-1],
        point.quantity,
        point.value,
        point.limit,
        point.verdict,
        records.get(key, ()),
        is_headline=False,
        expected=_find_expected(point),
        hosts=point.hosts,
    )


def _find_expected(point: Judged) -> float | None:
    if point.expected is None:
        return None
    return point.expected.high if point.quantity == "latency_s" else point.expected.low


def list_pair_candidates(pairs: Iterable[PairJudged], record: str) -> list[Candidate]:
    """Return the traffic of each pair of hosts."""
    quantity: Quantity = "bandwidth_bytes_per_s"
    return [
        Candidate(
            "",
            PAIRS,
            f"{pair.source}>{pair.destination}",
            (),
            quantity,
            pair.value,
            Limit(quantity=quantity, value=pair.limit, kind="derived", because=pair.because) if pair.limit else None,
            pair.verdict,
            (record,),
        )
        for pair in pairs
    ]

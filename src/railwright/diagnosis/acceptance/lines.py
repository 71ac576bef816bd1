"""A judged run held against what a vendor and a customer agreed on: each line met, not met, or not judged."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Literal, NamedTuple

import msgspec

from railwright.diagnosis.acceptance.agreement import PAIRS, Bound, Item, Spec
from railwright.diagnosis.verdicts.judged import Diagnosis, Judged, State, Verdict
from railwright.diagnosis.verdicts.pair import PairJudged
from railwright.diagnosis.verdicts.verdict import fraction_of_limit, state_word
from railwright.errors import EXIT_OK, EXIT_SLOW, EXIT_UNJUDGED
from railwright.limits.limit import Limit, NoLimit, Quantity
from railwright.results.records import Point, point_of
from railwright.topology.devices import Scalar
from railwright.units import count, format_size

Standing = Literal["met", "not met", "not judged"]
WORST_FIRST: tuple[Standing, ...] = ("not met", "not judged", "met")
_STATUS = {"not met": EXIT_SLOW, "not judged": EXIT_UNJUDGED, "met": EXIT_OK}
_BY_VERDICT: Mapping[State, Standing] = {"ok": "met", "slow": "not met"}


class Seen(NamedTuple):
    """A curve or a point of one, that a line may mean."""

    host: str
    """Empty: it is between hosts, or the only one."""
    benchmark: str
    path: str
    varied: tuple[tuple[str, Scalar], ...]
    quantity: Quantity
    value: float | None
    limit: Limit | NoLimit | None
    verdict: Verdict
    """Of the whole curve, where it stands for that."""
    records: tuple[str, ...] = ()
    """Where its records stand: `hosts/node1/results.jsonl:12`."""
    is_headline: bool = True
    """Whether it stands for its curve."""

    @property
    def size_bytes(self) -> Scalar | None:
        """Of what was moved; None where no size was varied."""
        return dict(self.varied).get("size_bytes")


class SheetLine(msgspec.Struct, frozen=True, kw_only=True, tag="acceptance_line", tag_field="record",
                omit_defaults=True, forbid_unknown_fields=True):  # fmt: skip
    """One measured value beside what was asked of it."""

    item: int
    """Which line of the specification, counted from 1; 0: what is asked of the run as a whole."""
    asked: str
    state: Standing
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
    """A file that lines point into, so that nobody can change it afterwards unseen."""

    name: str
    """Below the folder of the sheet."""
    sha256: str
    lines: int
    host: str = ""
    started_at: str = ""
    railwright: str = ""
    """The version that measured."""


class Sheet(msgspec.Struct, frozen=True, kw_only=True, tag="acceptance", tag_field="record", omit_defaults=True,
            forbid_unknown_fields=True):  # fmt: skip
    """The whole answer."""

    title: str
    reference: str = ""
    between: tuple[str, ...] = ()
    state: Standing
    lines: tuple[SheetLine, ...]
    files: tuple[RecordFile, ...]

    @property
    def exit_status(self) -> int:
        """0: every line is met; 1: one is not; 3: one could not be judged, and nothing is worse."""
        return _STATUS[self.state]


def worst(states: Iterable[Standing]) -> Standing:
    """The one that counts for all of them."""
    found = set(states)
    return next((state for state in WORST_FIRST if state in found), "not judged")


def sheet_of(
    spec: Spec,
    seen: Sequence[Seen],
    hosts: Sequence[str],
    lost: dict[str, str],
    files: tuple[RecordFile, ...],
    *,
    is_cut_off: bool = False,
) -> Sheet:
    """Every line of the specification with everything that it means.

    `hosts` are those that gave results, `lost` those that did not, each with the reason.
    """
    lines = [*_of_the_run(spec, hosts, lost, is_cut_off=is_cut_off)]
    for number, item in enumerate(spec.items, 1):
        lines += _of_item(number, item, seen, hosts)
    return Sheet(
        title=spec.title,
        reference=spec.reference,
        between=spec.between,
        state=worst(line.state for line in lines),
        lines=tuple(lines),
        files=files,
    )


def _of_the_run(spec: Spec, hosts: Sequence[str], lost: dict[str, str], *, is_cut_off: bool) -> Iterable[SheetLine]:
    if spec.hosts is not None:
        took_part = len(hosts) if hosts or lost else 1  # one machine by itself has no name
        state: Standing = "met" if took_part >= spec.hosts else "not judged"
        yield SheetLine(item=0, asked=count(spec.hosts, "host"), state=state, why=f"{took_part} gave results")
    for host, why in lost.items():
        yield SheetLine(item=0, asked="every host gives results", state="not judged", why=why, host=host)
    if is_cut_off:
        why = "it was interrupted: what it did not reach, nobody has judged"
        yield SheetLine(item=0, asked="the run is whole", state="not judged", why=why)


def _of_item(number: int, item: Item, seen: Sequence[Seen], hosts: Sequence[str]) -> Iterable[SheetLine]:
    """A line for each point that is meant, and for each host that has none."""
    named = [one for one in seen if item.required.names(one.benchmark, one.path) and {*item.where} <= {*one.varied}]
    meant = [one for one in named if _is_point(one, item.size_bytes)]
    meant = [one for one in meant if one.quantity in item.quantities] or meant
    for one in meant:
        state, why = _held(item, one)
        yield SheetLine(
            item=number,
            asked=str(item),
            state=state,
            why=why,
            host=one.host,
            benchmark=one.benchmark,
            path=one.path,
            parameters=dict(one.varied),
            quantity=one.quantity,
            value=one.value,
            limit=one.limit.value if isinstance(one.limit, Limit) else None,
            verdict=one.verdict.state,
            records=one.records,
        )
    size = f" at {format_size(item.size_bytes)}" if named and item.size_bytes is not None else ""
    if not meant:
        yield SheetLine(item=number, asked=str(item), state="not judged", why=f"nothing of it was measured{size}")
    elif any(one.host for one in meant):
        for host in [host for host in hosts if host not in {one.host for one in meant}]:
            why = f"nothing of it was measured there{size}"
            yield SheetLine(item=number, asked=str(item), state="not judged", why=why, host=host)


def _is_point(one: Seen, size_bytes: int | None) -> bool:
    return one.is_headline if size_bytes is None else not one.is_headline and one.size_bytes == size_bytes


def _held(item: Item, one: Seen) -> tuple[Standing, str]:
    """One value against what is asked of it."""
    state, why = one.verdict.state, one.verdict.why
    if state == "failed":
        return "not met", f"failed: {why}"
    if one.value is None or state in ("waived", "suspicious"):
        return "not judged", f"{state_word(state)}: {why}"
    if not item.bounds:
        return _BY_VERDICT.get(state, "not judged"), why if state == "ok" else f"{state_word(state)}: {why}"
    found = [_against(bound, one, one.value) for bound in item.bounds]
    standing = worst(each for each, _ in found)
    return standing, next(words for each, words in found if each == standing)


def _against(bound: Bound, one: Seen, value: float) -> tuple[Standing, str]:
    if bound.quantity is None:
        if not isinstance(one.limit, Limit):
            return "not judged", "its limit is not known"
        share = fraction_of_limit(value, one.limit)
        return "met" if share >= bound.value else "not met", f"{share:.3f} of its limit"
    if bound.quantity != one.quantity:
        return "not judged", f"{bound} is of another quantity than what was measured"
    is_met = value >= bound.value if bound.is_least else value <= bound.value
    return "met" if is_met else "not met", f"{value / bound.value:.3f} of that"


def seen_in(diagnosis: Diagnosis, host: str, records: Mapping[Point, tuple[str, ...]]) -> list[Seen]:
    """Every curve and every point of a judged run; `records` says where those of a point stand."""
    found = []
    for path in diagnosis.paths:
        if path.headline is None:
            varied = tuple(sorted(path.parameters.items()))
            found.append(Seen(host, path.benchmark, path.path, varied, path.quantity, None, None, path.verdict))
        else:
            found.append(_seen(path.headline, host, records)._replace(verdict=path.verdict, is_headline=True))
    return found + [_seen(point, host, records) for point in diagnosis.points]


def _seen(point: Judged, host: str, records: Mapping[Point, tuple[str, ...]]) -> Seen:
    key = point_of(point.benchmark, point.quantity, point.path, point.parameters)
    return Seen(
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
    )


def seen_of_pairs(pairs: Iterable[PairJudged], record: str) -> list[Seen]:
    """What each host sent to each other one."""
    quantity: Quantity = "bandwidth_bytes_per_s"
    return [
        Seen(
            "",
            PAIRS,
            f"{one.source}>{one.destination}",
            (),
            quantity,
            one.value,
            Limit(quantity=quantity, value=one.limit, kind="derived", because=one.because) if one.limit else None,
            one.verdict,
            (record,),
        )
        for one in pairs
    ]

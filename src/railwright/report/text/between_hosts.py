"""What was measured between hosts, in words, for every report of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

from railwright.diagnosis.fleet.between_hosts import BetweenHosts
from railwright.diagnosis.verdicts.judged import Diagnosis, JudgedPath
from railwright.diagnosis.verdicts.pair import PairJudged
from railwright.locate.search import Located
from railwright.report.text import wording
from railwright.report.text.locate import suspect_lines
from railwright.results.statistics import quantile
from railwright.units import count, format_bandwidth, format_duration

_MOST_PAIRS = 12


class Found(NamedTuple):
    """Everything that was found between hosts."""

    said: BetweenHosts
    """What was done, and whom it accuses."""
    pairs: tuple[PairJudged, ...] = ()
    """Every pair, the slowest first."""
    located: Located | None = None
    """The search, for its matrix."""
    collectives: Diagnosis | None = None
    """Those of all hosts, judged."""


def answer(found: Found) -> str:
    """The first sentence: how many pairs, and how fast they are."""
    values = sorted(one.value for one in found.pairs if one.value)
    if not values:
        return "no pair was measured"
    states = Counter(one.verdict.state for one in found.pairs)
    judged = ", ".join(f"{number} {state}" for state, number in states.most_common())
    rates = f"{format_bandwidth(values[0])} to {format_bandwidth(values[-1])}"
    middle = format_bandwidth(quantile(values, 0.5))
    return f"{count(len(found.pairs), 'pair')}: {judged}; {middle} in the middle, {rates}"


def telling(found: Found) -> list[PairJudged]:
    """The pairs that are slow, suspicious, failed or behind, as far as no suspect is an end of them."""
    named = {one.id.partition(":")[0] for one in found.said.suspects if one.kind in ("host", "nic")}
    return [
        one
        for one in found.pairs
        if (one.verdict.state in ("slow", "suspicious", "failed") or one.standing == "behind")
        and not {one.source, one.destination} & named
    ]


def pair_words(one: PairJudged) -> str:
    """One pair and why it is told of."""
    value = wording.ABSENT if one.value is None else format_bandwidth(one.value)
    part = f", {one.part:.2f} of the other pairs in {count(one.tries, 'try', 'tries')}" if one.part is not None else ""
    behind = ", behind them" if one.standing == "behind" else ""
    return f"{one.verdict.state}: {one.source} to {one.destination}: {value}{part}{behind}; {one.verdict.why}"


def limits_of(found: Found) -> list[str]:
    """What pairs are held against: each reason once."""
    reasons = Counter(
        f"{format_bandwidth(one.limit)}: {one.because}" if one.limit else one.because for one in found.pairs
    )
    return [f"{text} ({count(number, 'pair')})" for text, number in reasons.most_common(4)]


def collective_words(path: JudgedPath) -> tuple[str, str, str, str]:
    """Name with what was varied, value, limit and its reason, and verdict."""
    head = path.headline
    value = wording.quantity(path.quantity, head.value if head else None)
    limit = wording.limit_value(head.limit) if head else wording.ABSENT
    name = " ".join(filter(None, (path.benchmark, wording.parameter_words(path.parameters), path.path)))
    return name, value, limit, path.verdict.state


def rows(found: Found) -> Iterator[tuple[str, str]]:
    """What was done and what was not: each with its name."""
    said = found.said
    if said.rounds:
        yield "cost", f"{count(said.rounds, 'round')}, {format_duration(said.seconds)}, {said.sent_bytes / 1e9:.3g} GB"
    for one in limits_of(found):
        yield "limit", one
    for host, why in said.left_out.items():
        yield "left out", f"{host}: {why}"
    for part, why in said.not_measured.items():
        yield "not measured", f"{part}: {why}"
    for one in said.unjudged:
        yield "unknown", one
    for one in said.cannot_tell:
        yield "cannot tell", one


def between_lines(found: Found) -> Iterator[str]:
    """All of it as text."""
    yield f"Between hosts: {answer(found)}"
    if found.said.suspects:
        yield from suspect_lines(found.said.suspects)
    told = telling(found)
    for one in told[:_MOST_PAIRS]:
        yield f"  {pair_words(one)}"
    if len(told) > _MOST_PAIRS:
        yield f"  and {count(len(told) - _MOST_PAIRS, 'pair')} more: --json prints all"
    for path in found.collectives.paths if found.collectives is not None else ():
        name, value, limit, state = collective_words(path)
        yield f"  {name:<44}  {value:>10}  of {limit:>10}  {state}"
    for name, text in rows(found):
        yield f"  {name:<13} {text}"

"""Measurements between hosts in words, for every report of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

from msgspec.structs import replace

from railwright.diagnosis.fleet.between_hosts import BetweenHosts, RailTried
from railwright.diagnosis.verdicts.judged import Diagnosis, JudgedPath, State
from railwright.diagnosis.verdicts.pair import PairJudged
from railwright.diagnosis.verdicts.verdict import WORST_FIRST
from railwright.groups import group_by_key
from railwright.locate.search import Located, PairSeen
from railwright.report.nccl_scaling import scaling_lines
from railwright.report.text import wording
from railwright.report.text.locate import suspect_lines
from railwright.results.statistics import quantile
from railwright.units import format_bandwidth, format_count, format_duration

_MAX_PAIRS = 12
_PAIR = "between"


class BetweenHostsResult(NamedTuple):
    """All results between hosts."""

    said: BetweenHosts
    """The work that was done, with the suspects."""
    pairs: tuple[PairJudged, ...] = ()
    """All pairs, the slowest first."""
    located: Located | None = None
    """The search, which has the matrix of pairs."""
    by_rdma: Located | None = None
    """The search by RDMA over all near ports, if hosts have RDMA."""
    rails: tuple[RailTried, ...] = ()
    """The flows between GPUs, and between RDMA ports."""
    collectives: Diagnosis | None = None
    """The judged collectives over all hosts."""


def summarize(found: BetweenHostsResult) -> str:
    """Summarize the pairs in one sentence: number, verdicts and rates."""
    values = sorted(pair.value for pair in found.pairs if pair.value)
    if not values:
        return "no pair was measured"
    states = Counter(pair.verdict.state for pair in found.pairs)
    judged = ", ".join(f"{number} {wording.state_word(state)}" for state, number in states.most_common())
    rates = f"{format_bandwidth(values[0])} to {format_bandwidth(values[-1])}"
    middle = format_bandwidth(quantile(values, 0.5))
    return f"{format_count(len(found.pairs), 'pair')}: {judged}; median {middle}, {rates}"


def find_notable_pairs(found: BetweenHostsResult) -> list[PairJudged]:
    """Return the pairs that are slow, suspicious, failed or behind and have no suspect as an end."""
    named = {suspect.id.partition(":")[0] for suspect in found.said.suspects if suspect.kind in ("host", "nic")}
    return [
        pair
        for pair in found.pairs
        if (pair.verdict.state in ("slow", "suspicious", "failed") or pair.standing == "behind")
        and not {pair.source, pair.destination} & named
    ]


def merge_pairs(found: BetweenHostsResult) -> Located | None:
    """Return the search whose rates the matrix shows: by RDMA where both hosts have it, else by TCP.

    Ports have the names of TCP's search, so that each host has one row. A pair whose RDMA failed shows no rate of TCP.
    """
    if found.located is None or found.by_rdma is None:
        return found.located
    by_rdma = {(pair.source, pair.destination) for pair in found.pairs if pair.by == "rdma"}
    port_of = {flow.source.rpartition(":")[0]: flow.source for flow in found.located.pairs}
    kept = [flow for flow in found.located.pairs if _hosts(flow) not in by_rdma]
    kept += [
        replace(flow, source=port_of[source], destination=port_of[destination])
        for flow in found.by_rdma.pairs
        for source, destination in [_hosts(flow)]
        if source in port_of and destination in port_of
    ]
    return replace(found.located, pairs=tuple(kept), fabric=f"{found.located.fabric}, by RDMA where both have it")


def _hosts(flow: PairSeen) -> tuple[str, str]:
    return flow.source.rpartition(":")[0], flow.destination.rpartition(":")[0]


def format_pair(pair: PairJudged) -> str:
    """Format a pair with its verdict and the reason."""
    value = wording.ABSENT if pair.value is None else format_bandwidth(pair.value)
    part = (
        f", {pair.part:.2f} of the other pairs in {format_count(pair.tries, 'try', 'tries')}"
        if pair.part is not None
        else ""
    )
    behind = ", behind them" if pair.standing == "behind" else ""
    state, ends = wording.state_word(pair.verdict.state), f"{pair.source} to {pair.destination}"
    by = " by RDMA" * (pair.by == "rdma")
    return f"{state}: {ends}: {value}{by}{part}{behind}; {pair.verdict.why}"


def format_limits(found: BetweenHostsResult) -> list[str]:
    """List the four most common limits of the pairs, each with its number of pairs."""
    reasons = Counter(
        f"{format_bandwidth(pair.limit)}: {pair.because}" if pair.limit else pair.because for pair in found.pairs
    )
    return [f"{text} ({format_count(number, 'pair')})" for text, number in reasons.most_common(4)]


def format_collective(path: JudgedPath) -> tuple[str, str, str, State]:
    """Return the name with its parameters, the value, the limit and the state of a collective."""
    head = path.headline
    value = wording.quantity(path.quantity, head.value if head else None)
    limit = wording.limit_value(head.limit) if head else wording.ABSENT
    name = " ".join(filter(None, (path.benchmark, wording.parameter_words(path.parameters), path.path)))
    return name, value, limit, path.verdict.state


def list_collectives(found: BetweenHostsResult) -> list[tuple[str, str, str, State]]:
    """Return collectives and transfers in words, without the algbw of those that also have a busbw.

    Measurements that differ in the pair of hosts alone share a line.
    """
    paths = found.collectives.paths if found.collectives is not None else ()
    shown = [path for path in paths if path.parameters.get("rate") != "algbw"]
    return [_format_alike(list(alike)) for _, alike in group_by_key(shown, _key_without_pair)]


def _key_without_pair(path: JudgedPath) -> tuple[object, ...]:
    kept = (item for item in sorted(path.parameters.items()) if item[0] != _PAIR)
    return path.benchmark, path.quantity, path.path, _PAIR in path.parameters, *kept


def _format_alike(paths: list[JudgedPath]) -> tuple[str, str, str, State]:
    """Return the line of a measurement, or of all pairs of hosts: the median, the slowest pair and the worst state."""
    if len(paths) == 1:
        return format_collective(paths[0])
    first = paths[0]
    is_time = first.quantity == "latency_s"
    known = [(path.headline.value, path) for path in paths if path.headline and path.headline.value is not None]
    ordered = sorted(known, key=lambda pair: pair[0], reverse=is_time)
    state = min((path.verdict.state for path in paths), key=WORST_FIRST.index)
    alike = {name: value for name, value in first.parameters.items() if name != _PAIR}
    name = " ".join(filter(None, (first.benchmark, wording.parameter_words(alike), first.path)))
    if not ordered:
        return f"{name}, {format_count(len(paths), 'pair')}", wording.ABSENT, wording.ABSENT, state
    slowest, of = ordered[0]
    limit = wording.limit_value(of.headline.limit) if of.headline else wording.ABSENT
    where = f"{of.parameters[_PAIR]} {wording.quantity(first.quantity, slowest)}"
    middle = wording.quantity(first.quantity, quantile(sorted(value for value, _ in ordered), 0.5))
    return f"{name}, {format_count(len(paths), 'pair')}, slowest {where}", middle, limit, state


def rows(found: BetweenHostsResult) -> Iterator[tuple[str, str]]:
    """Yield cost, limits and gaps of the measurement as pairs of label and text."""
    summary = found.said
    if summary.rounds:
        yield (
            "cost",
            (
                f"{format_count(summary.rounds, 'round')}, {format_duration(summary.seconds)}, "
                f"{summary.sent_bytes / 1e9:.3g} GB"
            ),
        )
    beside = sorted(pair.tcp_value for pair in found.pairs if pair.tcp_value)
    by_rdma = sum(pair.by == "rdma" for pair in found.pairs)
    if by_rdma:
        told = f"{format_count(by_rdma, 'pair')} by RDMA over all near ports"
        middle = f"; TCP beside it has a median of {format_bandwidth(quantile(beside, 0.5))}" if beside else ""
        yield "transport", told + middle
    for text in format_limits(found):
        yield "limit", text
    for host, reason in summary.left_out.items():
        yield "left out", f"{host}: {reason}"
    for part, reason in summary.not_measured.items():
        yield "not measured", f"{part}: {reason}"
    for text in summary.unjudged:
        yield "unknown", text
    for text in summary.cannot_tell:
        yield "cannot tell", text


def format_between_hosts(found: BetweenHostsResult) -> Iterator[str]:
    """Yield the whole report as text."""
    yield f"Between hosts: {summarize(found)}"
    if found.said.suspects:
        yield from suspect_lines(found.said.suspects)
    notable = find_notable_pairs(found)
    for pair in notable[:_MAX_PAIRS]:
        yield f"  {format_pair(pair)}"
    if len(notable) > _MAX_PAIRS:
        yield f"  and {format_count(len(notable) - _MAX_PAIRS, 'pair')} more: --json prints all"
    for name, value, limit, state in list_collectives(found):
        yield f"  {name:<44}  {value:>10}  of {limit:>10}  {wording.state_word(state)}"
    for line in scaling_lines(found.collectives.points if found.collectives is not None else ()):
        yield f"  {line}"
    for name, text in rows(found):
        yield f"  {name:<13} {text}"

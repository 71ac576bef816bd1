"""The result of a search as text; `--json` prints the same record."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Iterator

from railwright.diagnosis.localise.cabling import CablingChecked
from railwright.diagnosis.localise.load import LoadClass
from railwright.diagnosis.localise.records import Suspect
from railwright.diagnosis.localise.trial import Simulated, Tested
from railwright.locate.search import Located
from railwright.locate.ways import WORDS
from railwright.report.text.wording import escape
from railwright.results.statistics import quantile
from railwright.units import format_count, format_duration

_MAX_LISTED = 20
_ALMOST_ONE = 0.995
_CONFIDENCE = (
    (0.99, "almost certain"),
    (0.9, "very likely"),
    (0.7, "likely"),
    (0.0, "a candidate, no more likely than not"),
)
"""The words for a probability of at least so much."""


def simulated_lines(found: Simulated) -> Iterator[str]:
    """Yield a simulated search: suspects, precision and recall, cost, and the links it did not test."""
    yield f"{escape(found.fabric)}: {format_count(found.hosts, 'host')}, {found.nics} NICs, {found.switches} switches"
    yield ""
    yield from suspect_lines(found.suspects)
    yield ""
    total = found.right + found.missed
    yield f"links       {found.right} of {total} faulty ones named, {found.wrong} named wrongly"
    yield f"            precision {found.precision:.4f}, recall {found.recall:.4f}"
    if any(fault.kind == "route" for fault in found.truth):
        yield f"routes      precision {found.route_precision:.4f}, recall {found.route_recall:.4f}"
    yield from _rows(_round_rows(found))
    yield f"cost        {format_duration(found.seconds)} at most, {found.sent_bytes / 1e15:.3g} PB at 400 Gb/s"
    yield from _rows(tested_rows(found.tested))
    yield from _rows(_load_rows(found.load))
    for other in found.baselines:
        score = ""
        if other.precision is not None and other.recall is not None:
            score = f", precision {other.precision:.3f}, recall {other.recall:.3f}"
        yield f"instead     {other.name}: {other.rounds} rounds, {format_duration(other.seconds)}{score} ({other.how})"


def suspect_lines(suspects: Iterable[Suspect]) -> Iterator[str]:
    """Yield each suspect with its evidence, the alternatives and the next step."""
    listed = list(suspects)
    if not listed:
        yield "no suspects"
    for suspect in listed[:_MAX_LISTED]:
        words = f"{suspect_words(suspect)}: {capacity_words(suspect)}, {confidence_words(suspect.confidence)}"
        yield f"{suspect.verdict:<16}  {escape(words)}"
        yield f"{'':<16}  seen    {escape(suspect.evidence)}"
        if suspect.alternatives:
            others = escape(", ".join(suspect.alternatives[:4]))
            yield f"{'':<16}  or      {others}: these paths do not distinguish them"
        yield f"{'':<16}  next    {escape(suspect.action)}"
        yield f"{'':<16}  verify  {escape(suspect.verify)}"
    if len(listed) > _MAX_LISTED:
        yield f"and {len(listed) - _MAX_LISTED} more: see --json"


def suspect_words(suspect: Suspect) -> str:
    """Format a suspect as `link leaf2-spine1 up (from leaf2 to spine1)`."""
    name = f"{suspect.kind} {suspect.id}"
    return name if suspect.direction == "both" else f"{name} {suspect.direction} ({_direction_words(suspect)})"


def _direction_words(suspect: Suspect) -> str:
    is_away = suspect.direction in ("up", "out")
    if suspect.kind in ("switch", "line-card") and suspect.direction in ("in", "out"):
        return "what it sends" if is_away else "what it receives"
    if suspect.kind in ("host", "nic"):
        return "what the host sends" if is_away else "what the host receives"
    lower, dash, upper = suspect.id.partition("-")
    if not dash or "-" in upper:
        return "away from the hosts" if is_away else "towards the hosts"
    return f"from {lower} to {upper}" if is_away else f"from {upper} to {lower}"


def capacity_words(suspect: Suspect) -> str:
    """Format the share of its rate that a suspect still carries, or reached where other traffic varied."""
    return f"carries {suspect.capacity:.0%} of its rate"


def confidence_words(confidence: float) -> str:
    """Format a probability as words, with the number unless it is nearly 1."""
    words = next(words for least, words in _CONFIDENCE if confidence >= least)
    return words if confidence >= _ALMOST_ONE else f"{words} ({confidence:.0%})"


def tested_rows(tested: Tested) -> Iterator[tuple[str, str]]:
    """Yield the coverage of links and routes as pairs of label and text."""
    share = "all" if tested.links_filled == tested.links else f"{tested.links_filled} of"
    yield "tested", f"{share} {tested.links} link directions, each with enough traffic to fill it"
    if tested.links_partly:
        yield "", f"{tested.links_partly} more in part: the NICs below cannot fill them"
    if tested.routes:
        yield "", f"{tested.routes} routes by the cover"
    if tested.links_untested:
        yield "not tested", f"{tested.links_untested} link directions: no flow crosses them"


def cost_rows(found: Located) -> Iterator[tuple[str, str]]:
    """Yield cost and coverage of a search with real probes as pairs of label and text."""
    yield from _round_rows(found)
    yield "cost", f"{format_duration(found.seconds)}, {found.sent_bytes / 1e9:.3g} GB"
    yield from tested_rows(found.tested)
    if not found.cover_rounds and not found.cannot_tell:
        yield "not tested", "routes of single pairs of hosts: --route-cover pair"
    if found.not_measured:
        yield (
            "not run",
            f"{format_count(found.not_measured, 'flow')}: no source port took the chosen path, or an end was silent",
        )
    yield "routing", found.routing
    yield "probes", WORDS.get(found.probe, found.probe)
    ratios = sorted(pair.ratio for pair in found.pairs if pair.ratio is not None)
    if ratios:
        spread = statistics.pstdev(ratios)
        parts = (f"median {quantile(ratios, 0.5):.1%}", f"lowest hundredth {quantile(ratios, 0.01):.1%}")
        yield (
            "rates",
            (
                f"{', '.join(parts)}, deviation {spread:.1%} of the expected rate, "
                f"over {format_count(len(ratios), 'flow')}"
            ),
        )
    yield from _load_rows(found.load)
    yield from _latency_rows(found)
    if found.resumed_phases:
        yield "resumed", f"{format_count(found.resumed_phases, 'launch', 'launches')} of an earlier run"
    for reason in found.cannot_tell:
        yield "cannot tell", reason
    for reason in found.unjudged:
        yield "unknown", reason


def cabling_lines(found: CablingChecked) -> Iterator[str]:
    """Yield each difference from the plan with the next step, and the devices that were not checked."""
    yield f"{found.right} of {format_count(found.planned, 'planned cable')} are in the planned place"
    for finding in found.findings[:_MAX_LISTED]:
        yield f"{finding.kind:<16}  {escape(finding.evidence)}"
        yield f"{'':<16}  next    {escape(finding.action)}"
    if len(found.findings) > _MAX_LISTED:
        yield f"and {len(found.findings) - _MAX_LISTED} more: see --json"
    if found.not_looked_at:
        names = ", ".join(found.not_looked_at[:_MAX_LISTED])
        yield f"not checked: {escape(names)}{' ...' if len(found.not_looked_at) > _MAX_LISTED else ''}"


_HOPS = {1: "below one leaf", 3: "across a spine", 5: "across a core"}
_MAX_SLOW_PAIRS = 10


def hop_words(switches: int) -> str:
    """Name the hop class of a path by its number of switches, like `across a spine`."""
    return _HOPS.get(switches, f"over {switches} switches")


def _round_rows(found: Located | Simulated) -> Iterator[tuple[str, str]]:
    more = f", {found.load_rounds} of the load test" if found.load_rounds else ""
    yield "rounds", f"{found.rounds} to screen and confirm, {found.cover_rounds} of the route cover{more}"


def _load_rows(load: Iterable[LoadClass]) -> Iterator[tuple[str, str]]:
    """Yield the rates with all ports loaded and with a quarter of them, and the conclusion."""
    for place, load_class in enumerate(load):
        means = (
            "congestion"
            if load_class.is_congested
            else f"{load_class.held_back} of {load_class.flows} held back by others"
        )
        if load_class.slow_alone:
            means += f", {load_class.slow_alone} slow even without them"
        rates = f"{load_class.full:.0%} of the rate with all ports loaded, {load_class.quarter:.0%} with a quarter"
        yield "" if place else "load", f"{hop_words(load_class.switches)}: {rates}: {means}"


def _latency_rows(found: Located) -> Iterator[tuple[str, str]]:
    """Yield the round trip of each hop class, and the pairs that are late for their class."""
    latency = found.latency
    for place, hop_class in enumerate(latency.classes):
        times = f"{format_duration(hop_class.median_s)}, spread {format_duration(hop_class.spread_s)}"
        yield (
            "" if place else "round trip",
            f"{times} {hop_words(hop_class.switches)}, of {format_count(hop_class.pairs, 'pair')}",
        )
    for slow in latency.slow_pairs[:_MAX_SLOW_PAIRS]:
        took = f"{format_duration(slow.round_trip_s)}, {slow.times:g} times the median of its class"
        yield "late", f"{slow.source} to {slow.destination}: {took}, in all of {slow.tries} tries"
    if latency.tried_once:
        yield "", f"{format_count(latency.tried_once, 'pair')} more looked late in their only try: see --latency"


def _rows(rows: Iterable[tuple[str, str]]) -> Iterator[str]:
    for name, text in rows:
        yield f"{name:<12}{escape(text)}"


def located_lines(found: Located) -> Iterator[str]:
    """Yield a search with real probes: the fabric, its suspects, the coverage and the cost."""
    yield escape(found.fabric)
    yield ""
    yield from _picture(found)
    yield ""
    yield from suspect_lines(found.suspects)
    yield ""
    yield from _rows(cost_rows(found))


def _picture(found: Located) -> Iterator[str]:
    """Yield each leaf with its hosts and uplinks; suspects are marked with their verdict."""
    hosts: dict[str, dict[str, None]] = {}
    spines: dict[str, dict[str, None]] = {}
    for pair in found.pairs:
        for end, leaf in ((pair.source, pair.over[0]), (pair.destination, pair.over[-1])):
            hosts.setdefault(leaf, {})[end] = None
            if len(pair.over) > 1:
                spines.setdefault(leaf, {})[pair.over[1] if leaf == pair.over[0] else pair.over[-2]] = None
    marks: dict[str, str] = {}
    for suspect in found.suspects:
        marks.setdefault(suspect.id, suspect.verdict)

    def mark(*names: str) -> str:
        return next((f"[{marks[name]}]" for name in names if name in marks), "")

    for leaf in sorted(hosts, key=lambda name: (len(name), name)):
        above = "  ".join(f"{s}{mark(f'{leaf}-{s}', s)}" for s in sorted(spines.get(leaf, ())))
        yield escape(f"{leaf}{mark(leaf)}  up: {above or 'nothing'}")
        below = (f"{h}{mark(h, h.partition(':')[0])}" for h in sorted(hosts[leaf], key=lambda n: (len(n), n)))
        yield escape(f"    {'  '.join(below)}")

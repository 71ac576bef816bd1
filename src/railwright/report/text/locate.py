"""What a search found, as text; the same record as with `--json`."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Iterator

from railwright.diagnosis.localise.cabling import CablingChecked
from railwright.diagnosis.localise.load import LoadClass
from railwright.diagnosis.localise.records import Suspect
from railwright.diagnosis.localise.trial import Simulated, Tested
from railwright.locate.search import Located
from railwright.locate.ways import WORDS
from railwright.report.text.wording import visible
from railwright.results.statistics import quantile
from railwright.units import count, format_duration

_MOST_LISTED = 20


def simulated_lines(found: Simulated) -> Iterator[str]:
    """A simulated search: its cost, what it found, how right that is, and what it did not look at."""
    yield f"{visible(found.fabric)}: {count(found.hosts, 'host')}, {found.nics} NICs, {found.switches} switches"
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
    """Each suspect with its evidence, what else it may be, and what to do."""
    listed = list(suspects)
    if not listed:
        yield "no suspects"
    for one in listed[:_MOST_LISTED]:
        yield f"{one.verdict:<16}  {visible(suspect_words(one))}, at {one.capacity:.0%}, sure to {one.confidence:.1%}"
        yield f"{'':<16}  seen    {visible(one.evidence)}"
        if one.alternatives:
            yield f"{'':<16}  or      {visible(', '.join(one.alternatives[:4]))}: these paths cannot tell them apart"
        yield f"{'':<16}  next    {visible(one.action)}"
        yield f"{'':<16}  verify  {visible(one.verify)}"
    if len(listed) > _MOST_LISTED:
        yield f"and {len(listed) - _MOST_LISTED} more: see --json"


def suspect_words(one: Suspect) -> str:
    """`link leaf2-spine1 up`."""
    return f"{one.kind} {one.id}" + ("" if one.direction == "both" else f" {one.direction}")


def tested_rows(tested: Tested) -> Iterator[tuple[str, str]]:
    """What was filled, what was not, and what nothing crossed: each with its name."""
    yield "tested", f"{tested.links_filled} of {tested.links} link directions at their full rate"
    if tested.links_partly:
        yield "", f"{tested.links_partly} more in part: the NICs below cannot fill them"
    if tested.routes:
        yield "", f"{tested.routes} routes by the cover"
    if tested.links_untested:
        yield "not tested", f"{tested.links_untested} link directions: no flow crosses them"


def cost_rows(found: Located) -> Iterator[tuple[str, str]]:
    """What a search by real probes cost, what it tested and what not: each with its name."""
    yield from _round_rows(found)
    yield "cost", f"{format_duration(found.seconds)}, {found.sent_bytes / 1e9:.3g} GB"
    yield from tested_rows(found.tested)
    if not found.cover_rounds and not found.cannot_tell:
        yield "not tested", "routes of single pairs of hosts: --route-cover pair"
    if found.not_measured:
        yield "not run", f"{count(found.not_measured, 'flow')}: no port took the wanted path, or an end was silent"
    yield "routing", found.routing
    yield "probes", WORDS.get(found.probe, found.probe)
    ratios = sorted(pair.ratio for pair in found.pairs if pair.ratio is not None)
    if ratios:
        spread = statistics.pstdev(ratios)
        parts = (f"median {quantile(ratios, 0.5):.1%}", f"lowest hundredth {quantile(ratios, 0.01):.1%}")
        yield "rates", f"{', '.join(parts)}, deviation {spread:.1%} of what {count(len(ratios), 'flow')} should reach"
    yield from _load_rows(found.load)
    yield from _latency_rows(found)
    if found.resumed_phases:
        yield "resumed", f"{count(found.resumed_phases, 'launch', 'launches')} of an earlier run"
    for one in found.cannot_tell:
        yield "cannot tell", one
    for one in found.unjudged:
        yield "unknown", one


def cabling_lines(found: CablingChecked) -> Iterator[str]:
    """Each difference from the plan with what to do, and what was not looked at."""
    yield f"{found.right} of {count(found.planned, 'planned cable')} are where they should be"
    for one in found.findings[:_MOST_LISTED]:
        yield f"{one.kind:<16}  {visible(one.evidence)}"
        yield f"{'':<16}  next    {visible(one.action)}"
    if len(found.findings) > _MOST_LISTED:
        yield f"and {len(found.findings) - _MOST_LISTED} more: see --json"
    if found.not_looked_at:
        names = ", ".join(found.not_looked_at[:_MOST_LISTED])
        yield f"not looked at: {visible(names)}{' ...' if len(found.not_looked_at) > _MOST_LISTED else ''}"


_HOPS = {1: "below one leaf", 3: "across a spine", 5: "across a core"}
_MOST_SLOW_PAIRS = 10


def hop_words(switches: int) -> str:
    """`across a spine`."""
    return _HOPS.get(switches, f"over {switches} switches")


def _round_rows(found: Located | Simulated) -> Iterator[tuple[str, str]]:
    more = f", {found.load_rounds} of the load test" if found.load_rounds else ""
    yield "rounds", f"{found.rounds}, and {found.cover_rounds} of the route cover{more}"


def _load_rows(load: Iterable[LoadClass]) -> Iterator[tuple[str, str]]:
    """What flows have with all ports at work and with a quarter of them, and what that means."""
    for place, one in enumerate(load):
        means = "congestion" if one.is_congested else f"{one.held_back} of {one.flows} held back by others"
        if one.slow_alone:
            means += f", {one.slow_alone} slow without them, too"
        rates = f"{one.full:.0%} of their rate with all ports at work, {one.quarter:.0%} with a quarter"
        yield "" if place else "load", f"{hop_words(one.switches)}: {rates}: {means}"


def _latency_rows(found: Located) -> Iterator[tuple[str, str]]:
    """The round trip of each hop class, and the pairs that are slower than theirs."""
    latency = found.latency
    for place, one in enumerate(latency.classes):
        times = f"{format_duration(one.median_s)}, spread {format_duration(one.spread_s)}"
        yield "" if place else "round trip", f"{times} {hop_words(one.switches)}, of {count(one.pairs, 'pair')}"
    for slow in latency.slow_pairs[:_MOST_SLOW_PAIRS]:
        took = f"{format_duration(slow.round_trip_s)}, {slow.times:g} times its class"
        yield "late", f"{slow.source} to {slow.destination}: {took}, in all of {slow.tries} tries"
    if latency.tried_once:
        yield "", f"{count(latency.tried_once, 'pair')} more looked late and had one try: see --latency"


def _rows(rows: Iterable[tuple[str, str]]) -> Iterator[str]:
    for name, text in rows:
        yield f"{name:<12}{visible(text)}"


def located_lines(found: Located) -> Iterator[str]:
    """A search by real probes: the fabric with its suspects, what was found, what was tested, and what it cost."""
    yield visible(found.fabric)
    yield ""
    yield from _picture(found)
    yield ""
    yield from suspect_lines(found.suspects)
    yield ""
    yield from _rows(cost_rows(found))


def _picture(found: Located) -> Iterator[str]:
    """Each leaf with its hosts and uplinks; what is suspected is marked by a word."""
    hosts: dict[str, dict[str, None]] = {}
    spines: dict[str, dict[str, None]] = {}
    for pair in found.pairs:
        for end, leaf in ((pair.source, pair.over[0]), (pair.destination, pair.over[-1])):
            hosts.setdefault(leaf, {})[end] = None
            if len(pair.over) > 1:
                spines.setdefault(leaf, {})[pair.over[1] if leaf == pair.over[0] else pair.over[-2]] = None
    marks: dict[str, str] = {}
    for one in found.suspects:
        marks.setdefault(one.id, one.verdict)

    def mark(*names: str) -> str:
        return next((f"[{marks[name]}]" for name in names if name in marks), "")

    for leaf in sorted(hosts, key=lambda name: (len(name), name)):
        above = "  ".join(f"{s}{mark(f'{leaf}-{s}', s)}" for s in sorted(spines.get(leaf, ())))
        yield visible(f"{leaf}{mark(leaf)}  up: {above or 'nothing'}")
        below = (f"{h}{mark(h, h.partition(':')[0])}" for h in sorted(hosts[leaf], key=lambda n: (len(n), n)))
        yield visible(f"    {'  '.join(below)}")

"""A fleet on one screen: faults with their hosts, and what sets hosts apart from the others."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence

from railwright.diagnosis.fleet.settings import Difference, Fleet, FleetFault
from railwright.groups import grouped
from railwright.report.text import wording
from railwright.topology.gpus import runs
from railwright.units import count

_MOST_FAULTS = 12
_MOST_BLIND = 4
_MOST_GROUPS = 10
_MOST_UNREAD = 4
_THINGS_A_GROUP = 3
_LONGEST_LINE = 150
_LONGEST_VALUE = 48
_LONGEST_HOSTS = 60


def render_fleet(fleet: Fleet, faults: Sequence[FleetFault], found: Sequence[Difference]) -> Iterator[str]:
    """The lines, at most about forty of at most 150 characters."""
    odd = {host for one in found for value in one.odd for host in value.hosts if one.usual}
    wrong = [one for one in faults if one.certainty != "could not look"]
    blind = [one for one in faults if one.certainty == "could not look"]
    unread = f", {len(fleet.unread)} could not be read" if fleet.unread else ""
    yield (
        f"audit of {count(fleet.hosts, 'host')}: {count(len(wrong), 'fault')} found,"
        f" {count(len(found), 'difference')}, {count(len(odd), 'host')} not like most{unread}"
    )
    yield from _section("could not be read:", (f"{host}: {why}" for host, why in fleet.unread.items()), _MOST_UNREAD)
    yield from _section("found:", (_fault(one, fleet.hosts) for one in wrong), _MOST_FAULTS)
    yield from _section("not like most hosts:", _groups(found), _MOST_GROUPS)
    yield from _section("no value that most hosts have:", _split(found), _MOST_GROUPS)
    yield from _section("not told by some hosts:", _unsaid(found), _MOST_BLIND)
    yield from _section("could not be looked for:", (_fault(one, fleet.hosts) for one in blind), _MOST_BLIND)


def _section(title: str, lines: Iterator[str], most: int) -> Iterator[str]:
    shown = list(lines)
    if not shown:
        return
    yield ""
    yield title
    for line in shown[:most]:
        yield "  " + _cut(line, _LONGEST_LINE)
    if len(shown) > most:
        yield f"  and {len(shown) - most} more: --json prints all"


def _fault(one: FleetFault, hosts: int) -> str:
    says = one.says or one.summary
    return f"{one.fault} ({one.certainty}) on {_hosts(one.hosts, hosts)}: {says}"


def _groups(found: Sequence[Difference]) -> Iterator[str]:
    """The hosts that differ in the same things, with the first of these."""
    things: dict[tuple[str, ...], list[str]] = defaultdict(list)
    for one in found:
        for odd in one.odd if one.usual else ():
            value, usual = (_cut(text, _LONGEST_VALUE) for text in (odd.value, one.usual))
            things[odd.hosts].append(f"{one.what} {value}, {one.usual_on} hosts have {usual}")
    for hosts, differs in things.items():
        more = len(differs) - _THINGS_A_GROUP
        rest = f"; and {more} more" if more > 0 else ""
        yield f"{_hosts(hosts)}: {'; '.join(differs[:_THINGS_A_GROUP])}{rest}"


def _split(found: Sequence[Difference]) -> Iterator[str]:
    for one in found:
        if not one.usual and one.odd:
            values = [f"{_cut(odd.value, _LONGEST_VALUE)} on {len(odd.hosts)}" for odd in reversed(one.odd[-4:])]
            more = f", and {len(one.odd) - 4} other values" if len(one.odd) > 4 else ""
            yield f"{one.what}: {', '.join(values)}{more}"


def _unsaid(found: Sequence[Difference]) -> Iterator[str]:
    """Grouped by hosts: a host that could not be asked lacks many things at once."""
    for hosts, differences in grouped((one for one in found if one.unsaid), lambda one: one.unsaid):
        lacking = [one.what for one in differences]
        yield f"{_hosts(hosts)}: {wording.first_of(lacking, 6)}"


def _hosts(names: Sequence[str], of: int = 0) -> str:
    """`host3, host17`, `all 8 hosts`, or how many where they are many."""
    if len(names) == of:
        return f"all {of} hosts"
    listed = runs(names)
    if len(listed) <= _LONGEST_HOSTS:
        return listed
    cut = listed[:_LONGEST_HOSTS].rpartition(",")[0] or listed[:_LONGEST_HOSTS]
    return f"{len(names)} hosts ({cut} ...)"


def _cut(text: str, most: int) -> str:
    said = wording.visible(text)
    return said if len(said) <= most else f"{said[: most - 4]} ..."

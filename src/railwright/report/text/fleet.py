"""A fleet on one screen: faults with their hosts, and the differences between hosts."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence

from railwright.diagnosis.fleet.settings import Difference, Fleet, FleetFault
from railwright.groups import group_by_key
from railwright.report.text import wording
from railwright.topology.gpus import format_runs
from railwright.units import format_count

_MAX_FAULTS = 12
_MAX_BLIND = 4
_MAX_GROUPS = 10
_MAX_UNREAD = 4
_THINGS_A_GROUP = 3
_LONGEST_LINE = 150
_LONGEST_VALUE = 48
_LONGEST_HOSTS = 60


def render_fleet(fleet: Fleet, faults: Sequence[FleetFault], found: Sequence[Difference]) -> Iterator[str]:
    """Yield at most about forty lines of at most 150 characters."""
    odd = {host for item in found for value in item.odd for host in value.hosts if item.usual}
    wrong = [item for item in faults if item.certainty != "could not look"]
    blind = [item for item in faults if item.certainty == "could not look"]
    unread = f", {len(fleet.unread)} could not be read" if fleet.unread else ""
    yield (
        f"audit of {format_count(fleet.hosts, 'host')}: {format_count(len(wrong), 'fault')} found,"
        f" {format_count(len(found), 'difference')}, {format_count(len(odd), 'host')} unlike most{unread}"
    )
    yield from _section("could not be read:", (f"{host}: {why}" for host, why in fleet.unread.items()), _MAX_UNREAD)
    yield from _section("found:", (_fault(item, fleet.hosts) for item in wrong), _MAX_FAULTS)
    yield from _section("unlike most hosts:", _groups(found), _MAX_GROUPS)
    yield from _section("no value shared by most hosts:", _split_values(found), _MAX_GROUPS)
    yield from _section("not reported by some hosts:", _missing_values(found), _MAX_BLIND)
    yield from _section("could not be checked:", (_fault(item, fleet.hosts) for item in blind), _MAX_BLIND)


def _section(title: str, lines: Iterator[str], limit: int) -> Iterator[str]:
    shown = list(lines)
    if not shown:
        return
    yield ""
    yield title
    for line in shown[:limit]:
        yield "  " + _cut(line, _LONGEST_LINE)
    if len(shown) > limit:
        yield f"  and {len(shown) - limit} more: --json prints all"


def _fault(fault: FleetFault, hosts: int) -> str:
    words = fault.says or fault.summary
    return f"{fault.fault} ({fault.certainty}) on {_hosts(fault.hosts, hosts)}: {words}"


def _groups(found: Sequence[Difference]) -> Iterator[str]:
    """Yield the groups of hosts that share their differences, each with its first three differences."""
    things: dict[tuple[str, ...], list[str]] = defaultdict(list)
    for difference in found:
        for odd in difference.odd if difference.usual else ():
            value, usual = (_cut(text, _LONGEST_VALUE) for text in (odd.value, difference.usual))
            things[odd.hosts].append(f"{difference.what} {value}, {difference.usual_on} hosts have {usual}")
    for hosts, differences in things.items():
        more = len(differences) - _THINGS_A_GROUP
        rest = f"; and {more} more" if more > 0 else ""
        yield f"{_hosts(hosts)}: {'; '.join(differences[:_THINGS_A_GROUP])}{rest}"


def _split_values(found: Sequence[Difference]) -> Iterator[str]:
    for difference in found:
        if not difference.usual and difference.odd:
            values = [f"{_cut(odd.value, _LONGEST_VALUE)} on {len(odd.hosts)}" for odd in reversed(difference.odd[-4:])]
            more = f", and {len(difference.odd) - 4} other values" if len(difference.odd) > 4 else ""
            yield f"{difference.what}: {', '.join(values)}{more}"


def _missing_values(found: Sequence[Difference]) -> Iterator[str]:
    """Yield the missing values grouped by hosts, because a silent host lacks many values at once."""
    for hosts, differences in group_by_key(
        (difference for difference in found if difference.unsaid), lambda difference: difference.unsaid
    ):
        lacking = [difference.what for difference in differences]
        yield f"{_hosts(hosts)}: {wording.join_first(lacking, 6)}"


def _hosts(names: Sequence[str], total: int = 0) -> str:
    """Format hosts as `host3, host17` or `all 8 hosts`, or as a number if the list is long."""
    if len(names) == total:
        return f"all {total} hosts"
    listed = format_runs(names)
    if len(listed) <= _LONGEST_HOSTS:
        return listed
    cut = listed[:_LONGEST_HOSTS].rpartition(",")[0] or listed[:_LONGEST_HOSTS]
    return f"{len(names)} hosts ({cut} ...)"


def _cut(text: str, limit: int) -> str:
    shown = wording.escape(text)
    return shown if len(shown) <= limit else f"{shown[: limit - 4]} ..."

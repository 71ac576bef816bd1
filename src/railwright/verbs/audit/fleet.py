"""Hosts that should be alike: the faults of each, and what sets some apart from the others, on one screen."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from typing import NamedTuple

from railwright.checks.check import Facts
from railwright.checks.known_bad import KnownBad, known_bad
from railwright.checks.outcome import CheckOutcome, look_for
from railwright.diagnosis.fleet.settings import Difference, Fleet, FleetFault, differences, faults_of, told_of
from railwright.errors import EXIT_OK, EXIT_SLOW, EXIT_UNJUDGED, UsageError
from railwright.faults.every_check import EVERY_CHECK
from railwright.launch.hosts import Hosts
from railwright.launch.spread import spread
from railwright.options.output import print_answer
from railwright.report.text.fleet import render_fleet
from railwright.run.discovered import discover
from railwright.topology.devices import Topology
from railwright.topology.sources.load import damage, load

_OF_SETTINGS = tuple(check for check in EVERY_CHECK if not check.needs_results)


class _Seen(NamedTuple):
    """What is kept of a host."""

    told: dict[str, str]
    checks: tuple[CheckOutcome, ...]
    """Those that found something or could not look."""


def audit_fleet(machines: Sequence[str], as_json: bool, bad: Sequence[KnownBad] = ()) -> int:
    """Audit captured, saved or described machines; the exit status."""
    return _tell(zip(_names(machines), spread(partial(_loaded, bad=bad), machines), strict=True), as_json)


def audit_hosts(hosts: Hosts, as_json: bool, bad: Sequence[KnownBad] = ()) -> int:
    """Audit hosts that can be reached; the exit status."""
    return _tell(
        ((name, one if isinstance(one, str) else _seen(one, bad)) for name, one in discover(hosts).items()), as_json
    )


def _loaded(text: str, bad: Sequence[KnownBad]) -> _Seen | str:
    """A machine, or why it is none; a capture that is not whole would look as if devices were missing."""
    try:
        topology = load(text)
    except UsageError as error:
        return error.message
    return damage(topology) or _seen(topology, bad)


def _seen(topology: Topology, bad: Sequence[KnownBad]) -> _Seen:
    every = [look_for(check, Facts(topology=topology)) for check in _OF_SETTINGS]
    every += [known_bad(entry, topology) for entry in bad]
    return _Seen(told_of(topology), tuple(one for one in every if one.state in ("found", "could not look")))


def _names(machines: Sequence[str]) -> list[str]:
    """What each is called: as short as tells them apart."""
    parts = [text.rstrip("/").removesuffix("/machine.jsonl").split("/") for text in machines]
    for depth in range(1, max(map(len, parts)) + 1):
        names = ["/".join(one[-depth:]).removesuffix(".jsonl").removesuffix(".json") for one in parts]
        if len(set(names)) == len(names):
            return names
    twice = next(text for text in machines if machines.count(text) > 1) if len(set(machines)) < len(machines) else ""
    raise UsageError(f"{(twice or machines[0])[:200]} is given twice", hint="give each host once")


def _tell(given: Iterable[tuple[str, _Seen | str]], as_json: bool) -> int:
    every = dict(given)
    unread = {name: one for name, one in every.items() if isinstance(one, str)}
    seen = {name: one for name, one in every.items() if isinstance(one, _Seen)}
    told = {name: one.told for name, one in seen.items()}
    fleet = Fleet(hosts=len(told), unread=unread)
    faults, found = faults_of({name: one.checks for name, one in seen.items()}), differences(told)
    print_answer((fleet, *faults, *found), lambda: render_fleet(fleet, faults, found), as_json=as_json)
    return _status(fleet, faults, found)


def _status(fleet: Fleet, faults: Sequence[FleetFault], found: Sequence[Difference]) -> int:
    """1 where something is wrong or hosts differ; else 3 where something could not be read; 0 where all are alike."""
    certainties = {one.certainty for one in faults}
    if certainties & {"seen", "likely"} or any(one.odd for one in found):
        return EXIT_SLOW
    blind = fleet.unread or "could not look" in certainties or any(one.unsaid for one in found)
    return EXIT_UNJUDGED if blind or fleet.hosts < 2 else EXIT_OK

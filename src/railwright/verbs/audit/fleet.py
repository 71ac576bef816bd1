"""The audit of similar hosts: the faults of each, and the differences between them, on one screen."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from typing import NamedTuple

from railwright.checks.check import Facts
from railwright.checks.known_bad import KnownBad, check_known_bad
from railwright.checks.outcome import CheckOutcome, look_for
from railwright.diagnosis.fleet.settings import (
    Difference,
    Fleet,
    FleetFault,
    collect_faults,
    describe_host,
    differences,
)
from railwright.errors import EXIT_OK, EXIT_SLOW, EXIT_UNJUDGED, UsageError
from railwright.faults.every_check import EVERY_CHECK
from railwright.launch.hosts import Hosts
from railwright.launch.spread import spread
from railwright.options.output import print_answer
from railwright.report.text.fleet import render_fleet
from railwright.run.discovered import discover
from railwright.topology.devices import Topology
from railwright.topology.sources.load import damage, load

_SETTING_CHECKS = tuple(check for check in EVERY_CHECK if not check.needs_results)


class _Audited(NamedTuple):
    """The audit of a host: its settings by name, and the outcomes of checks."""

    told: dict[str, str]
    checks: tuple[CheckOutcome, ...]
    """The checks that found a fault or could not look."""


def audit_fleet(machines: Sequence[str], as_json: bool, bad: Sequence[KnownBad] = ()) -> int:
    """Audit captured, saved or described machines, and return the exit status."""
    return _report(zip(_shorten_names(machines), spread(partial(_audit_file, bad=bad), machines), strict=True), as_json)


def audit_hosts(hosts: Hosts, as_json: bool, bad: Sequence[KnownBad] = ()) -> int:
    """Audit reachable hosts, and return the exit status."""
    return _report(
        (
            (name, topology if isinstance(topology, str) else _audit_topology(topology, bad))
            for name, topology in discover(hosts).items()
        ),
        as_json,
    )


def _audit_file(text: str, bad: Sequence[KnownBad]) -> _Audited | str:
    """Load and audit a machine, or return why that fails. An incomplete capture would seem to lack devices."""
    try:
        topology = load(text)
    except UsageError as error:
        return error.message
    return damage(topology) or _audit_topology(topology, bad)


def _audit_topology(topology: Topology, bad: Sequence[KnownBad]) -> _Audited:
    outcomes = [look_for(check, Facts(topology=topology)) for check in _SETTING_CHECKS]
    outcomes += [check_known_bad(entry, topology) for entry in bad]
    return _Audited(
        describe_host(topology), tuple(outcome for outcome in outcomes if outcome.state in ("found", "could not look"))
    )


def _shorten_names(machines: Sequence[str]) -> list[str]:
    """Return the shortest names that distinguish the machines. Raises UsageError if a machine is given twice."""
    parts = [text.rstrip("/").removesuffix("/machine.jsonl").split("/") for text in machines]
    for depth in range(1, max(map(len, parts)) + 1):
        names = ["/".join(part[-depth:]).removesuffix(".jsonl").removesuffix(".json") for part in parts]
        if len(set(names)) == len(names):
            return names
    twice = next(text for text in machines if machines.count(text) > 1) if len(set(machines)) < len(machines) else ""
    raise UsageError(f"{(twice or machines[0])[:200]} is given twice", hint="give each host once")


def _report(given: Iterable[tuple[str, _Audited | str]], as_json: bool) -> int:
    audits = dict(given)
    unread = {name: audit for name, audit in audits.items() if isinstance(audit, str)}
    seen = {name: audit for name, audit in audits.items() if isinstance(audit, _Audited)}
    settings = {name: audit.told for name, audit in seen.items()}
    fleet = Fleet(hosts=len(settings), unread=unread)
    faults, found = collect_faults({name: audit.checks for name, audit in seen.items()}), differences(settings)
    print_answer((fleet, *faults, *found), lambda: render_fleet(fleet, faults, found), as_json=as_json)
    return _status(fleet, faults, found)


def _status(fleet: Fleet, faults: Sequence[FleetFault], found: Sequence[Difference]) -> int:
    """Return 1 for faults or differences, 3 if a host could not be read or fewer than 2 could, and otherwise 0."""
    certainties = {entry.certainty for entry in faults}
    if certainties & {"seen", "likely"} or any(entry.odd for entry in found):
        return EXIT_SLOW
    blind = fleet.unread or "could not look" in certainties or any(entry.unsaid for entry in found)
    return EXIT_UNJUDGED if blind or fleet.hosts < 2 else EXIT_OK

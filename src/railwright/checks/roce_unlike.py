"""Settings of RoCE ports that should be the same within a host; the right value depends on the fabric."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial

from railwright.checks import needs
from railwright.checks.check import Check, Facts, Findings
from railwright.checks.parts import blind
from railwright.checks.roce_gids import roce, roce_nics
from railwright.topology.devices import Topology

NO_OFED = "no driver of MLNX_OFED or DOCA-OFED, which alone shows it in sysfs"
LOOK_WITH = "; check with mlnx_qos -i NETDEV"


def make_check(
    name: str,
    summary: str,
    right: str,
    fact: str,
    *,
    says: Callable[[list[str], str, str], str],
    seen: tuple[str, str],
    unread: str,
    costs: str,
    remedy: str,
    lacking: str = "",
) -> Check:
    """Return a check that a fact is the same on all RoCE ports of a host.

    `says` takes the NICs that differ from the majority, their value and the usual value; `seen` is the claim and the
    tool that reports it. With `lacking`, the check does not apply to a machine of which no port has the fact.
    """

    def signs(facts: Facts) -> Findings:
        for names, value, usual in _find_odd_ports(facts.topology, fact):
            yield check.finding(names, says(names, value, usual), (seen[0], value, seen[1]))

    check = Check(
        name=name,
        summary=summary,
        right=right,
        certainty="likely",
        costs=costs,
        remedy=remedy,
        signs=signs,
        needs=(needs.settings, roce, *([needs.some(partial(_find_values, fact=fact), lacking)] if lacking else [])),
        asks=(blind(roce_nics, fact, unread),),
    )
    return check


def _find_values(topology: Topology, fact: str) -> dict[str, str]:
    return {nic.id: str(nic.facts[fact]) for nic in roce_nics(topology) if fact in nic.facts}


def _find_odd_ports(topology: Topology, fact: str) -> Iterator[tuple[list[str], str, str]]:
    values = _find_values(topology, fact)
    usual = next(iter(Counter(values.values()).most_common(1)), ("", 0))[0]
    others = {name: value for name, value in values.items() if value != usual}
    for value in dict.fromkeys(others.values()):
        yield [name for name in others if others[name] == value], value, usual

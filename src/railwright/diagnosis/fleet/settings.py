"""Hosts that should be alike, held against each other: what most of them have is the best reference that there is.

Each host is told as a few words for each thing that can differ (`nic firmware`), over all devices of a kind at once, so
that a thousand hosts fit in memory and a difference is one line. What one host did not say, where others did, is apart
from what differs: nobody knows whether it does.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping

import msgspec

from railwright.checks.finding import Certainty, Finding
from railwright.checks.outcome import CheckOutcome
from railwright.topology.devices import DeviceKind, NetworkLink, PcieLink, Scalar, Topology
from railwright.topology.gpus import runs
from railwright.units import GIB, format_size

_KINDS: tuple[DeviceKind, ...] = ("host", "cpu", "memory", "root_port", "pcie_switch", "card", "gpu", "nvswitch", "nic",
                                  "drive")  # fmt: skip
_OWN = frozenset({"source", "layout_source", "pci_class", "shape", "peers", "peers_with_atomics"})
"""Facts that say where a figure is from, or of each GPU all others: those that refuse each other are told apart."""
_ROUNDED = frozenset({"size_bytes", "memory_bytes", "dev_shm_bytes"})
"""Firmware keeps a few MiB back, and not everywhere as many."""
_NAMED_BY_ADDRESS = ("enx", "ibx")
_LONGEST = 160
_ORDER: tuple[Certainty, ...] = ("seen", "likely", "possible", "could not look")

Told = Mapping[str, str]


class Odd(msgspec.Struct, frozen=True, kw_only=True):
    """A value that is not that of most hosts, and the hosts that have it."""

    value: str
    hosts: tuple[str, ...]


class Difference(msgspec.Struct, frozen=True, kw_only=True, tag="difference", tag_field="record",
                 omit_defaults=True, forbid_unknown_fields=True):  # fmt: skip
    """One thing in which hosts that should be alike are not."""

    what: str
    usual: str
    """The value of more than half of the hosts that say it; empty where there is no such value."""
    usual_on: int
    odd: tuple[Odd, ...]
    unsaid: tuple[str, ...] = ()
    """Hosts that have such a device, or are one, and do not say."""


class FleetFault(msgspec.Struct, frozen=True, kw_only=True, tag="fleet_fault", tag_field="record",
                 omit_defaults=True, forbid_unknown_fields=True):  # fmt: skip
    """A fault that some hosts have, or that could not be looked for on some."""

    fault: str
    summary: str
    certainty: Certainty
    says: str
    """What the first of these hosts shows."""
    remedy: str
    hosts: tuple[str, ...]


class Fleet(msgspec.Struct, frozen=True, kw_only=True, tag="fleet", tag_field="record", omit_defaults=True,
            forbid_unknown_fields=True):  # fmt: skip
    """What became of the hosts that were given."""

    hosts: int
    """Those that were read."""
    unread: dict[str, str] = {}
    """Host to reason."""


def faults_of(hosts: Mapping[str, Iterable[CheckOutcome]]) -> tuple[FleetFault, ...]:
    """The faults with the hosts that have each: what is certain first, what most hosts have first."""
    having: dict[tuple[str, Certainty], list[str]] = defaultdict(list)
    first: dict[tuple[str, Certainty], tuple[CheckOutcome, Finding | None]] = {}
    for name, checks in hosts.items():
        for one in checks:
            for certainty, finding in _states(one).items():
                having[one.fault, certainty].append(name)
                first.setdefault((one.fault, certainty), (one, finding))
    found = []
    for (fault, certainty), names in having.items():
        one, finding = first[fault, certainty]
        says, remedy = (finding.says, finding.remedy) if finding is not None else (one.because, "")
        found.append(
            FleetFault(
                fault=fault, summary=one.summary, certainty=certainty, says=says, remedy=remedy, hosts=tuple(names)
            )
        )
    return tuple(sorted(found, key=lambda one: (_ORDER.index(one.certainty), -len(one.hosts), one.fault)))


def _states(one: CheckOutcome) -> dict[Certainty, Finding | None]:
    """Each certainty with which a host has the fault, and its first finding."""
    states: dict[Certainty, Finding | None] = {}
    for finding in one.findings:
        states.setdefault(finding.certainty, finding)
    if one.state == "could not look" and not states:
        states["could not look"] = None
    return states


def told_of(topology: Topology) -> dict[str, str]:
    """What can differ between hosts, in words: `nic firmware` -> `28.39.1002`, or with the devices that have it."""
    values: dict[str, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    kinds = {device.id: device.kind for device in topology.devices}
    found = {f"number of {kind}": str(len(topology.of_kind(kind))) for kind in _KINDS}
    for device in topology.of_kind(*_KINDS):
        what = {"name": device.name, "numa": device.numa, **device.facts}
        for name, value in what.items():
            if (said := _words(name, value)) is not None:
                values[f"{device.kind} {name}"][said].append(device.id)
    for link in topology.links:
        if isinstance(link.protocol, PcieLink):
            of, end = f"{kinds.get(link.b, '?')} PCIe", link.b
        elif isinstance(link.protocol, NetworkLink):
            of, end = f"{kinds.get(link.a, '?')} port", link.a
        else:
            continue
        for name in link.protocol.__struct_fields__:
            if (value := getattr(link.protocol, name)) is not None:
                values[f"{of} {name}"][f"{value:g}" if isinstance(value, float) else str(value)].append(end)
    return found | {what: _listed(by_value) for what, by_value in values.items()}


def differences(hosts: Mapping[str, Told]) -> tuple[Difference, ...]:
    """Where the hosts are not alike, what fewest hosts have first."""
    kinds = {name: _has(told) for name, told in hosts.items()}
    found = [one for what in _all_things(hosts.values()) if (one := _difference(what, hosts, kinds)) is not None]
    return tuple(sorted(found, key=lambda one: (sum(len(odd.hosts) for odd in one.odd) or len(hosts), one.what)))


def _has(told: Told) -> set[str]:
    """The kinds of devices that a host has."""
    return {kind for kind in _KINDS if told.get(f"number of {kind}", "0") != "0"}


def _all_things(told: Iterable[Told]) -> Iterator[str]:
    return iter(dict.fromkeys(what for one in told for what in one))


def _difference(what: str, hosts: Mapping[str, Told], kinds: Mapping[str, set[str]]) -> Difference | None:
    """One thing held over all hosts; None where all that have such a device say the same."""
    kind = what.partition(" ")[0]
    have = [name for name in hosts if kind not in _KINDS or kind in kinds[name]]
    by_value: dict[str, list[str]] = defaultdict(list)
    for name in have:
        if (value := hosts[name].get(what)) is not None:
            by_value[value].append(name)
    said = sum(len(names) for names in by_value.values())
    unsaid = tuple(name for name in have if what not in hosts[name])
    if len(by_value) == 1 and not unsaid:
        return None
    value, count = Counter({value: len(names) for value, names in by_value.items()}).most_common(1)[0]
    usual = value if count * 2 > said else ""
    odd = [Odd(value=one, hosts=tuple(names)) for one, names in by_value.items() if one != usual]
    odd.sort(key=lambda one: (len(one.hosts), one.value))
    return Difference(what=what, usual=usual, usual_on=count if usual else 0, odd=tuple(odd), unsaid=unsaid)


def _words(name: str, value: Scalar | None) -> str | None:
    """A value in words; None for what is no property of the machine or differs by nature."""
    if value is None or name in _OWN:
        return None
    if name == "netdev" and str(value).startswith(_NAMED_BY_ADDRESS):
        return None
    if name in _ROUNDED and isinstance(value, int):
        return f"{value / GIB:.0f} GiB" if value >= GIB else format_size(value)
    return f"{value:g}" if isinstance(value, float) else str(value)[:_LONGEST]


def _listed(by_value: Mapping[str, list[str]]) -> str:
    """One value for all devices, or each with those that have it, that of the fewest first."""
    if len(by_value) == 1:
        return next(iter(by_value))
    fewest_first = sorted(by_value.items(), key=lambda one: len(one[1]))
    return "; ".join(f"{value} ({runs(ids)})" for value, ids in fewest_first)

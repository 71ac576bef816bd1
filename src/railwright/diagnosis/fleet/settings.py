"""Compares hosts that should be alike: the value of the majority is the best available baseline.

Each host is described by one text per property (`nic firmware`) over all devices of a kind, so that a thousand hosts
fit in memory and a difference is one line. Properties that a host does not report are listed apart from differences.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping

import msgspec

from railwright.checks.finding import Certainty, Finding
from railwright.checks.outcome import CheckOutcome
from railwright.topology.devices import DeviceKind, NetworkLink, PcieLink, Scalar, Topology
from railwright.topology.gpus import format_runs
from railwright.units import GIB, format_size

_KINDS: tuple[DeviceKind, ...] = ("host", "cpu", "memory", "root_port", "pcie_switch", "card", "gpu", "nvswitch", "nic",
                                  "drive")  # fmt: skip
_NOT_COMPARED = frozenset({"source", "layout_source", "pci_class", "shape", "peers", "peers_with_atomics"})
"""Facts that name the source of a figure, or a GPU's peers; refused peers are compared separately."""
_ROUNDED = frozenset({"size_bytes", "memory_bytes", "dev_shm_bytes"})
"""Firmware reserves a few MiB, and the amount varies."""
_NAMED_BY_ADDRESS = ("enx", "ibx")
_MAX_LENGTH = 160
_ORDER: tuple[Certainty, ...] = ("seen", "likely", "possible", "could not look")

Properties = Mapping[str, str]


class Odd(msgspec.Struct, frozen=True, kw_only=True):
    """A minority value, and the hosts that have it."""

    value: str
    hosts: tuple[str, ...]


class Difference(msgspec.Struct, frozen=True, kw_only=True, tag="difference", tag_field="record",
                 omit_defaults=True, forbid_unknown_fields=True):  # fmt: skip
    """A property in which hosts that should be alike differ."""

    what: str
    usual: str
    """The value of more than half of the hosts that report one; empty if there is none."""
    usual_on: int
    odd: tuple[Odd, ...]
    unsaid: tuple[str, ...] = ()
    """Hosts with such a device that do not report the property."""


class FleetFault(msgspec.Struct, frozen=True, kw_only=True, tag="fleet_fault", tag_field="record",
                 omit_defaults=True, forbid_unknown_fields=True):  # fmt: skip
    """A fault that some hosts have, or that could not be checked for on them."""

    fault: str
    summary: str
    certainty: Certainty
    says: str
    """The finding of the first of these hosts."""
    remedy: str
    hosts: tuple[str, ...]


class Fleet(msgspec.Struct, frozen=True, kw_only=True, tag="fleet", tag_field="record", omit_defaults=True,
            forbid_unknown_fields=True):  # fmt: skip
    """The number of hosts that were read, and the hosts that could not be read."""

    hosts: int
    """The number of hosts that were read."""
    unread: dict[str, str] = {}
    """Maps each host that could not be read to the reason."""


def collect_faults(hosts: Mapping[str, Iterable[CheckOutcome]]) -> tuple[FleetFault, ...]:
    """Return the faults with the hosts that have each, by certainty and then by number of hosts."""
    having: dict[tuple[str, Certainty], list[str]] = defaultdict(list)
    first: dict[tuple[str, Certainty], tuple[CheckOutcome, Finding | None]] = {}
    for name, checks in hosts.items():
        for outcome in checks:
            for certainty, finding in _states(outcome).items():
                having[outcome.fault, certainty].append(name)
                first.setdefault((outcome.fault, certainty), (outcome, finding))
    found = []
    for (fault, certainty), names in having.items():
        outcome, finding = first[fault, certainty]
        says, remedy = (finding.says, finding.remedy) if finding is not None else (outcome.because, "")
        found.append(
            FleetFault(
                fault=fault, summary=outcome.summary, certainty=certainty, says=says, remedy=remedy, hosts=tuple(names)
            )
        )
    return tuple(sorted(found, key=lambda fault: (_ORDER.index(fault.certainty), -len(fault.hosts), fault.fault)))


def _states(outcome: CheckOutcome) -> dict[Certainty, Finding | None]:
    """Return each certainty of the fault on a host, with its first finding."""
    states: dict[Certainty, Finding | None] = {}
    for finding in outcome.findings:
        states.setdefault(finding.certainty, finding)
    if outcome.state == "could not look" and not states:
        states["could not look"] = None
    return states


def describe_host(topology: Topology) -> dict[str, str]:
    """Describe a host by its comparable properties: `nic firmware` -> `28.39.1002`, with device ids if mixed."""
    values: dict[str, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    kinds = {device.id: device.kind for device in topology.devices}
    found = {f"number of {kind}": str(len(topology.of_kind(kind))) for kind in _KINDS}
    for device in topology.of_kind(*_KINDS):
        what = {"name": device.name, "numa": device.numa, **device.facts}
        for name, value in what.items():
            if (text := _format_value(name, value)) is not None:
                values[f"{device.kind} {name}"][text].append(device.id)
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
    return found | {what: _format_values(by_value) for what, by_value in values.items()}


def differences(hosts: Mapping[str, Properties]) -> tuple[Difference, ...]:
    """Return the differences between hosts, those with the fewest odd hosts first."""
    kinds = {name: _device_kinds(told) for name, told in hosts.items()}
    found = [one for what in _all_properties(hosts.values()) if (one := _difference(what, hosts, kinds)) is not None]
    return tuple(sorted(found, key=lambda one: (sum(len(odd.hosts) for odd in one.odd) or len(hosts), one.what)))


def _device_kinds(properties: Properties) -> set[str]:
    """Return the kinds of devices that a host has."""
    return {kind for kind in _KINDS if properties.get(f"number of {kind}", "0") != "0"}


def _all_properties(hosts: Iterable[Properties]) -> Iterator[str]:
    return iter(dict.fromkeys(what for properties in hosts for what in properties))


def _difference(what: str, hosts: Mapping[str, Properties], kinds: Mapping[str, set[str]]) -> Difference | None:
    """Compare a property over all hosts; None if all hosts with such a device report the same value."""
    kind = what.partition(" ")[0]
    have = [name for name in hosts if kind not in _KINDS or kind in kinds[name]]
    by_value: dict[str, list[str]] = defaultdict(list)
    for name in have:
        if (value := hosts[name].get(what)) is not None:
            by_value[value].append(name)
    reporting = sum(len(names) for names in by_value.values())
    unsaid = tuple(name for name in have if what not in hosts[name])
    if len(by_value) == 1 and not unsaid:
        return None
    value, count = Counter({value: len(names) for value, names in by_value.items()}).most_common(1)[0]
    usual = value if count * 2 > reporting else ""
    odd = [Odd(value=other, hosts=tuple(names)) for other, names in by_value.items() if other != usual]
    odd.sort(key=lambda item: (len(item.hosts), item.value))
    return Difference(what=what, usual=usual, usual_on=count if usual else 0, odd=tuple(odd), unsaid=unsaid)


def _format_value(name: str, value: Scalar | None) -> str | None:
    """Format a value; None for facts that are not properties of the machine or always differ."""
    if value is None or name in _NOT_COMPARED:
        return None
    if name == "netdev" and str(value).startswith(_NAMED_BY_ADDRESS):
        return None
    if name in _ROUNDED and isinstance(value, int):
        return f"{value / GIB:.0f} GiB" if value >= GIB else format_size(value)
    return f"{value:g}" if isinstance(value, float) else str(value)[:_MAX_LENGTH]


def _format_values(by_value: Mapping[str, list[str]]) -> str:
    """Format a common value, or each value with its devices, the rarest first."""
    if len(by_value) == 1:
        return next(iter(by_value))
    fewest_first = sorted(by_value.items(), key=lambda item: len(item[1]))
    return "; ".join(f"{value} ({format_runs(ids)})" for value, ids in fewest_first)

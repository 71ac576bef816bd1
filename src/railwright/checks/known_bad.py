"""A user's list of bad firmware and software versions, compared with a machine.

The user maintains the list (`examples/known-bad.toml`), because it depends on the site and is soon out of date.
An entry about a fact that the machine does not report is never fine.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Annotated, get_args

import msgspec
from msgspec.structs import replace

from railwright.checks.finding import Finding, PartPlace
from railwright.checks.outcome import CheckOutcome, State
from railwright.checks.settings import short
from railwright.errors import UsageError
from railwright.reading import InvalidContent, decode_toml
from railwright.results.records import Evidence
from railwright.topology.devices import DeviceKind, Topology
from railwright.topology.gpus import format_runs

_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,59}")
_MAX_ENTRIES = 1000
_Text = Annotated[str, msgspec.Meta(min_length=1, max_length=300)]
_KINDS = frozenset(get_args(DeviceKind))
_NUMBERS = re.compile(r"\d{1,9}")


class KnownBad(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An entry of the list. A value is bad if it is in `values` or is a version below `fixed_in`."""

    name: str
    """The name in findings: lower-case letters, digits, dashes and underscores."""
    of: _Text
    """The kind of device (`nic`, `gpu`, `host` ...), or a kind that a host does not report (`switch`)."""
    fact: _Text
    """The name of the fact in `topo --json`: `firmware`, `nvidia_driver`, `kernel`."""
    says: _Text
    source: _Text
    """The reference: a release note, a ticket, a report."""
    remedy: _Text
    model: str = ""
    """Restricts the entry to devices whose name contains this text."""
    line: str = ""
    """Restricts the entry to versions with this prefix: `20.` of firmware 20.30.1004 identifies the product."""
    fixed_in: str = ""
    values: tuple[_Text, ...] = ()


class KnownBadList(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The contents of the file."""

    bad: tuple[KnownBad, ...]


def decode_known_bad(raw: bytes, origin: str) -> tuple[KnownBad, ...]:
    """Decode the entries of a file. Raises UsageError that names `origin`, also for an invalid entry."""
    hint = "see examples/known-bad.toml and docs/audit.md"
    try:
        entries = decode_toml(raw, KnownBadList).bad
    except InvalidContent as error:
        raise UsageError(f"{origin} must be a list of known faults: {str(error)[:200]}", hint=hint) from error
    if len(entries) > _MAX_ENTRIES:
        raise UsageError(f"{origin} must have at most {_MAX_ENTRIES} entries, got {len(entries)}", hint="split it")
    for number, entry in enumerate(entries, 1):
        if not _NAME.fullmatch(entry.name):
            raise UsageError(
                f"entry {number} of {origin}: name must match {_NAME.pattern}, got {entry.name[:60]!r}", hint=hint
            )
        if sum(other.name == entry.name for other in entries) > 1:
            raise UsageError(f"{origin} has two entries named {entry.name}", hint="give each entry its own name")
        if bool(entry.fixed_in) == bool(entry.values):
            what = f"entry {number} of {origin} must have either fixed_in or values"
            raise UsageError(what, hint=hint)
        if entry.fixed_in and not _parse_version(entry.fixed_in):
            raise UsageError(
                f"entry {number} of {origin}: fixed_in must be a version, got {entry.fixed_in[:60]!r}", hint=hint
            )
    return entries


def check_known_bad(entry: KnownBad, topology: Topology) -> CheckOutcome:
    """Check the machine against an entry."""
    if topology.is_described:
        return _build_outcome(
            entry, "does not apply", f"{topology.name} is a description and has no installed software"
        )
    if entry.of not in _KINDS:
        return _build_outcome(entry, "could not look", f"a host does not report the {entry.fact} of a {entry.of}")
    devices = [device for device in topology.devices if device.kind == entry.of and entry.model in device.name]
    if not devices:
        return _build_outcome(entry, "does not apply", f"no {entry.of}{f' named {entry.model}' if entry.model else ''}")
    values = {device.id: str(device.facts[entry.fact]) for device in devices if entry.fact in device.facts}
    matching = {name: value for name, value in values.items() if value.startswith(entry.line)}
    found = tuple(_build_findings(entry, matching))
    if found:
        return replace(_build_outcome(entry, "found", ""), findings=found)
    blind = [device.id for device in devices if device.id not in values]
    blind += [name for name, value in matching.items() if _is_bad(entry, value) is None]
    if blind:
        return _build_outcome(
            entry, "could not look", f"{entry.fact} of {format_runs(blind)} is unknown or not a version"
        )
    return _build_outcome(
        entry, "fine" if matching else "does not apply", "" if matching else f"no {entry.fact} begins with {entry.line}"
    )


def _fault_name(entry: KnownBad) -> str:
    return f"known_bad/{entry.name}"


def _build_outcome(entry: KnownBad, state: State, because: str) -> CheckOutcome:
    right = f"no {entry.of} has a {entry.fact} of the list"
    return CheckOutcome(fault=_fault_name(entry), summary=entry.says, right=right, state=state, because=because)


def _build_findings(entry: KnownBad, values: dict[str, str]) -> Iterator[Finding]:
    by_value: dict[str, list[str]] = {}
    for name, value in values.items():
        if _is_bad(entry, value):
            by_value.setdefault(value, []).append(name)
    for value, names in by_value.items():
        fixed = f", fixed in {entry.fixed_in}" if entry.fixed_in else ""
        yield Finding(
            fault=_fault_name(entry),
            where=tuple(map(PartPlace, names)),
            certainty="seen",
            says=f"{entry.fact} {short(value)} of {format_runs(names)} is known to be bad{fixed}",
            costs=f"{entry.says} ({entry.source})",
            remedy=entry.remedy,
            evidence=(Evidence(claim=entry.fact, value=short(value), seen="topology"),),
        )


def _is_bad(entry: KnownBad, value: str) -> bool | None:
    """Report whether the value is bad; None if it is not a comparable version."""
    if entry.values:
        return value in entry.values
    version = _parse_version(value)
    return version < _parse_version(entry.fixed_in) if version else None


def _parse_version(text: str) -> tuple[int, ...]:
    """Parse the numbers before the first space of `20.30.1004 (MT_0000000223)`; empty if there are none."""
    word = text.strip().partition(" ")[0]
    return tuple(int(part) for part in _NUMBERS.findall(word)) if word[:1].isdigit() else ()

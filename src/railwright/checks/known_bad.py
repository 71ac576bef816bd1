"""Firmware and software that somebody knows to be bad: a list that users write, held against what a machine says.

The list is a file of theirs and no part of this tool: what is bad depends on the site, and is out of date soon
(`examples/known-bad.toml`). An entry whose thing the machine does not tell is never fine.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Annotated, get_args

import msgspec

from railwright.checks.finding import Finding, OfPart
from railwright.checks.outcome import CheckOutcome, State
from railwright.checks.settings import short
from railwright.errors import UsageError
from railwright.results.records import Evidence
from railwright.topology.devices import DeviceKind, Topology
from railwright.topology.gpus import runs

_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,59}")
_MOST_ENTRIES = 1000
_Word = Annotated[str, msgspec.Meta(min_length=1, max_length=300)]
_KINDS = frozenset(get_args(DeviceKind))
_NUMBERS = re.compile(r"\d{1,9}")


class KnownBad(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One entry. Bad is what is one of `values`, or a version below `fixed_in`."""

    name: str
    """How findings call it, in letters, digits and dashes."""
    of: _Word
    """The kind of device (`nic`, `gpu`, `host` ...), or of something that a host does not tell (`switch`)."""
    fact: _Word
    """The fact, as `topo --json` names it: `firmware`, `nvidia_driver`, `kernel`."""
    says: _Word
    source: _Word
    """Who knows it: a release note, a ticket, a report."""
    remedy: _Word
    model: str = ""
    """Only devices whose name has these words in it."""
    line: str = ""
    """Only versions that begin with this: `20.` of firmware 20.30.1004, whose number tells the product."""
    fixed_in: str = ""
    values: tuple[_Word, ...] = ()


class KnownBadList(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The file."""

    bad: tuple[KnownBad, ...]


def decode_known_bad(raw: bytes, origin: str) -> tuple[KnownBad, ...]:
    """The entries of a file that came from `origin`. Raises UsageError."""
    hint = "see examples/known-bad.toml and docs/audit.md"
    try:
        entries = msgspec.toml.decode(raw, type=KnownBadList).bad
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise UsageError(f"{origin} is no list of known faults: {str(error)[:200]}", hint=hint) from error
    if len(entries) > _MOST_ENTRIES:
        raise UsageError(f"{origin} has {len(entries)} entries, at most {_MOST_ENTRIES} are read", hint="split it")
    for number, entry in enumerate(entries, 1):
        if not _NAME.fullmatch(entry.name):
            raise UsageError(f"entry {number} of {origin}: {entry.name[:60]!r} is no name", hint=hint)
        if sum(other.name == entry.name for other in entries) > 1:
            raise UsageError(f"{origin} has two entries named {entry.name}", hint="name each once")
        if bool(entry.fixed_in) == bool(entry.values):
            what = f"entry {number} of {origin} needs one of fixed_in and values"
            raise UsageError(what, hint=hint)
        if entry.fixed_in and not _version(entry.fixed_in):
            raise UsageError(f"entry {number} of {origin}: {entry.fixed_in[:60]!r} is no version", hint=hint)
    return entries


def known_bad(entry: KnownBad, topology: Topology) -> CheckOutcome:
    """What came of looking for one entry."""
    if topology.is_described:
        return _outcome(entry, "does not apply", f"{topology.name} is a description, in which nothing is installed")
    if entry.of not in _KINDS:
        return _outcome(entry, "could not look", f"a host does not tell the {entry.fact} of its {entry.of}")
    devices = [one for one in topology.devices if one.kind == entry.of and entry.model in one.name]
    if not devices:
        return _outcome(entry, "does not apply", f"no {entry.of}{f' named {entry.model}' if entry.model else ''}")
    told = {one.id: str(one.facts[entry.fact]) for one in devices if entry.fact in one.facts}
    mine = {name: value for name, value in told.items() if value.startswith(entry.line)}
    found = tuple(_findings(entry, mine))
    if found:
        return CheckOutcome(fault=_called(entry), summary=entry.says, state="found", findings=found)
    blind = [one.id for one in devices if one.id not in told]
    blind += [name for name, value in mine.items() if _is_bad(entry, value) is None]
    if blind:
        return _outcome(entry, "could not look", f"{entry.fact} of {runs(blind)} is not known, or no version")
    return _outcome(entry, "fine" if mine else "does not apply", "" if mine else f"no {entry.fact} of {entry.line}")


def _called(entry: KnownBad) -> str:
    return f"known_bad/{entry.name}"


def _outcome(entry: KnownBad, state: State, because: str) -> CheckOutcome:
    return CheckOutcome(fault=_called(entry), summary=entry.says, state=state, because=because)


def _findings(entry: KnownBad, told: dict[str, str]) -> Iterator[Finding]:
    by_value: dict[str, list[str]] = {}
    for name, value in told.items():
        if _is_bad(entry, value):
            by_value.setdefault(value, []).append(name)
    for value, names in by_value.items():
        fixed = f", fixed in {entry.fixed_in}" if entry.fixed_in else ""
        yield Finding(
            fault=_called(entry),
            where=tuple(map(OfPart, names)),
            certainty="seen",
            says=f"{entry.fact} {short(value)} of {runs(names)} is known to be bad{fixed}",
            costs=f"{entry.says} ({entry.source})",
            remedy=entry.remedy,
            evidence=(Evidence(claim=entry.fact, value=short(value), seen="topology"),),
        )


def _is_bad(entry: KnownBad, value: str) -> bool | None:
    """None where the value is no version that could be compared."""
    if entry.values:
        return value in entry.values
    version = _version(value)
    return version < _version(entry.fixed_in) if version else None


def _version(text: str) -> tuple[int, ...]:
    """`20.30.1004 (MT_0000000223)` as its numbers before the first blank, empty for what begins with none."""
    word = text.strip().partition(" ")[0]
    return tuple(int(part) for part in _NUMBERS.findall(word)) if word[:1].isdigit() else ()

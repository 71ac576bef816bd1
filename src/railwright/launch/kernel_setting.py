"""A setting of the running kernel that is changed and given back: what was there is on disk before anything is written.

The record lies where the kernel's settings lie, in memory: neither outlives the machine's next start.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import msgspec

from railwright.checks.check import Change
from railwright.errors import CannotJudge, RailwrightError, UsageError
from railwright.launch import ending
from railwright.launch.ending import ended_by_signal

RECORDS = "run/railwright/changed"
_MOST_BYTES = 4096
_MOST_RECORD_BYTES = 2**22


class Write(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One file, by its path below `/`."""

    file: str
    before: str
    after: str


def plan_writes(change: Change, root: Path) -> tuple[Write, ...]:
    """What is to be written where; nothing for files that have the value. Raises CannotJudge for one with none."""
    files = [str(path.relative_to(root)) for path in sorted(root.glob(change.files))]
    writes = (Write(file, _value(root, file), change.value) for file in files)
    return tuple(one for one in writes if one.before != one.after)


def _value(root: Path, file: str) -> str:
    """The word in brackets where the kernel lists all that there are, else the whole line."""
    try:
        with (root / file).open("rb") as opened:
            content = opened.read(_MOST_BYTES).decode("ascii")
    except (OSError, ValueError) as error:
        raise CannotJudge(f"/{file} cannot be read: {getattr(error, 'strerror', None) or 'it is no text'}") from error
    chosen = re.search(r"\[([\w+-]{1,40})\]", content)
    return chosen.group(1) if chosen else content.strip()


def _write(root: Path, file: str, value: str) -> None:
    try:
        descriptor = os.open(root / file, os.O_WRONLY | os.O_TRUNC | os.O_NOFOLLOW)
        try:
            os.write(descriptor, f"{value}\n".encode())
        finally:
            os.close(descriptor)
    except OSError as error:
        hint = "" if os.geteuid() == 0 else "run it as root"
        raise RailwrightError(f"/{file} does not take {value!r}: {error.strerror}", hint=hint) from error
    if (now := _value(root, file)) != value:
        raise RailwrightError(f"/{file} took {value!r} and has {now[:80]!r}", hint="see the kernel's log: dmesg")


def apply(fault: str, writes: tuple[Write, ...], root: Path) -> None:
    """Write all or nothing. Raises RailwrightError where a file does not take its value; what was there is back."""
    record = root / RECORDS / f"{fault}.json"
    try:
        record.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        record.touch(0o600, exist_ok=False)
        record.write_bytes(msgspec.json.encode(writes))
    except FileExistsError as error:
        hint = f"give it back first: railwright audit --fix {fault} --undo"
        raise UsageError(f"{fault} was changed already, as {record} says", hint=hint) from error
    except OSError as error:
        hint = "" if os.geteuid() == 0 else "run it as root"
        raise RailwrightError(f"{record} cannot be written: {error.strerror}", hint=hint) from error
    try:
        for one in writes:
            _write(root, one.file, one.after)
    except BaseException:
        if not _given_back(writes, root).refused:
            record.unlink()
        raise


def undo(fault: str, root: Path) -> tuple[tuple[Write, ...], tuple[Write, ...]]:
    """Give back what was there: (what was given back, what somebody else has changed since, which stays).

    Raises UsageError where nothing was changed, RailwrightError for a file that does not take its old value: the record
    stays then.
    """
    record = root / RECORDS / f"{fault}.json"
    try:
        with record.open("rb") as opened:
            writes = msgspec.json.decode(opened.read(_MOST_RECORD_BYTES), type=tuple[Write, ...])
    except FileNotFoundError as error:
        raise UsageError(f"nothing was changed for {fault}: there is no {record}") from error
    except (OSError, msgspec.MsgspecError) as error:
        raise RailwrightError(f"{record} cannot be read: {str(error)[:200]}") from error
    given = _given_back(writes, root)
    if given.refused:
        raise given.refused[0]
    record.unlink()
    return given.back, given.others


class _Given(NamedTuple):
    """What became of files whose old values were written: given back, somebody else's since, and refused with why."""

    back: tuple[Write, ...]
    others: tuple[Write, ...]
    refused: tuple[RailwrightError, ...]


def _given_back(writes: tuple[Write, ...], root: Path) -> _Given:
    """Each file by itself: one that is refused keeps no other from its old value."""
    back, others, refused = [], [], []
    for one in reversed(writes):
        try:
            now = _value(root, one.file)
            if now == one.after:
                _write(root, one.file, one.before)
                back.append(one)
            elif now != one.before:
                others.append(one)
        except RailwrightError as error:
            if (root / one.file).exists():
                refused.append(error)
    return _Given(tuple(back), tuple(others), tuple(refused))


def hold(fault: str, writes: tuple[Write, ...], root: Path, tell: Callable[[], None]) -> None:
    """Apply, tell, wait for Ctrl-C, SIGTERM or SIGHUP, and give back. Killed outright, the record stays for `undo`."""
    with ended_by_signal():
        apply(fault, writes, root)
        ending.hold(tell, lambda: undo(fault, root))

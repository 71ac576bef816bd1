"""Reversible changes of kernel settings. The old values are recorded before anything is written.

The record is in /run, in memory, like the settings themselves: neither survives a reboot.
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
_MAX_BYTES = 4096
_MAX_RECORD_BYTES = 2**22


class Write(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A change of one file, given by its path below `/`."""

    file: str
    before: str
    after: str


def plan_writes(change: Change, root: Path) -> tuple[Write, ...]:
    """List the writes of a change; unchanged files are left out. Raises CannotJudge for an unreadable file."""
    files = [str(path.relative_to(root)) for path in sorted(root.glob(change.files))]
    writes = (Write(file, _read_value(root, file), change.value) for file in files)
    return tuple(write for write in writes if write.before != write.after)


def _read_value(root: Path, file: str) -> str:
    """Return the word in brackets if the kernel lists all choices, or else the whole content.

    Raises CannotJudge if the file cannot be read.
    """
    try:
        with (root / file).open("rb") as opened:
            content = opened.read(_MAX_BYTES).decode("ascii")
    except (OSError, ValueError) as error:
        raise CannotJudge(f"/{file} cannot be read: {getattr(error, 'strerror', None) or 'it is not text'}") from error
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
        raise RailwrightError(f"/{file} rejects {value!r}: {error.strerror}", hint=hint) from error
    if (now := _read_value(root, file)) != value:
        raise RailwrightError(
            f"/{file} must be {value!r} after the write, got {now[:80]!r}", hint="see the kernel's log: dmesg"
        )


def apply(fault: str, writes: tuple[Write, ...], root: Path) -> None:
    """Apply all writes or none.

    Raises UsageError if the fault is already changed, and RailwrightError if the record cannot be written or if a file
    rejects its value, after the old values have been restored.
    """
    record = root / RECORDS / f"{fault}.json"
    try:
        record.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        record.touch(0o600, exist_ok=False)
        record.write_bytes(msgspec.json.encode(writes))
    except FileExistsError as error:
        hint = f"undo it first: railwright audit --fix {fault} --undo"
        raise UsageError(f"{fault} is already changed: {record} exists", hint=hint) from error
    except OSError as error:
        hint = "" if os.geteuid() == 0 else "run it as root"
        raise RailwrightError(f"{record} cannot be written: {error.strerror}", hint=hint) from error
    try:
        for write in writes:
            _write(root, write.file, write.after)
    except BaseException:
        if not _restore(writes, root).refused:
            record.unlink()
        raise


def undo(fault: str, root: Path) -> tuple[tuple[Write, ...], tuple[Write, ...]]:
    """Restore the old values. Returns the restored writes, and those whose files others have changed since.

    Such files keep their values. Raises UsageError if nothing was changed, and RailwrightError if the record cannot be
    read or a file rejects its old value. In both cases the record stays.
    """
    record = root / RECORDS / f"{fault}.json"
    try:
        with record.open("rb") as opened:
            writes = msgspec.json.decode(opened.read(_MAX_RECORD_BYTES), type=tuple[Write, ...])
    except FileNotFoundError as error:
        raise UsageError(f"{fault} is not changed: {record} does not exist") from error
    except (OSError, msgspec.MsgspecError) as error:
        raise RailwrightError(f"{record} cannot be read: {str(error)[:200]}") from error
    restored = _restore(writes, root)
    if restored.refused:
        raise restored.refused[0]
    record.unlink()
    return restored.back, restored.others


class _Restoration(NamedTuple):
    """The outcome of a restoration: writes undone, writes that others have changed since, and errors."""

    back: tuple[Write, ...]
    others: tuple[Write, ...]
    refused: tuple[RailwrightError, ...]


def _restore(writes: tuple[Write, ...], root: Path) -> _Restoration:
    """Restore each file independently: a file that rejects its old value does not affect the others."""
    back, others, refused = [], [], []
    for write in reversed(writes):
        try:
            now = _read_value(root, write.file)
            if now == write.after:
                _write(root, write.file, write.before)
                back.append(write)
            elif now != write.before:
                others.append(write)
        except RailwrightError as error:
            if (root / write.file).exists():
                refused.append(error)
    return _Restoration(tuple(back), tuple(others), tuple(refused))


def hold(fault: str, writes: tuple[Write, ...], root: Path, tell: Callable[[], None]) -> None:
    """Apply the writes, call `tell`, wait for Ctrl-C, SIGTERM or SIGHUP, and restore the old values.

    If the process is killed by SIGKILL, the record stays for `undo`.
    """
    with ended_by_signal():
        apply(fault, writes, root)
        ending.hold(tell, lambda: undo(fault, root))

"""Reversible changes of settings, by files or by commands. The old values are recorded before anything changes.

The record is in /run, in memory, like the settings themselves: neither survives a reboot.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import msgspec

from railwright import process
from railwright.checks.check import Change, Command
from railwright.errors import CannotJudge, RailwrightError, UsageError
from railwright.launch import ending
from railwright.launch.ending import ended_by_signal
from railwright.reading import InvalidContent, decode_json, read_at_most
from railwright.writing import open_to_write, set_value

RECORDS = "run/railwright/changed"
_COMMAND_TIMEOUT_S = 60.0
_MAX_BYTES = 4096
_MAX_RECORD_BYTES = 2**22


class Write(msgspec.Struct, frozen=True, tag="write", forbid_unknown_fields=True):
    """A change of one file, given by its path below `/`."""

    file: str
    before: str
    after: str


class Run(msgspec.Struct, frozen=True, tag="run", forbid_unknown_fields=True):
    """A command, and the command that undoes it."""

    words: tuple[str, ...]
    undo: tuple[str, ...]


Step = Write | Run


def plan_steps(change: Change | tuple[Command, ...], root: Path) -> tuple[Step, ...]:
    """List the steps of a change; unchanged files are left out. Raises CannotJudge for an unreadable file."""
    if isinstance(change, tuple):
        return tuple(Run(command.words, command.undo) for command in change)
    paths = sorted(root.glob(change.files))
    files = [str(path.relative_to(root)) for path in paths if _is_meant(path, change, root)]
    writes = (Write(file, _read_value(root, file), change.value) for file in files)
    return tuple(write for write in writes if write.before != write.after)


def _is_meant(path: Path, change: Change, root: Path) -> bool:
    if not change.beside:
        return True
    number = _read_value(root, str(path.with_name(change.beside).relative_to(root)))
    return number.isdecimal() and int(number) >= change.least


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
        set_value(root / file, f"{value}\n")
    except OSError as error:
        hint = "" if os.geteuid() == 0 else "run it as root"
        raise RailwrightError(f"/{file} rejects {value!r}: {error.strerror}", hint=hint) from error
    if (now := _read_value(root, file)) != value:
        raise RailwrightError(
            f"/{file} must be {value!r} after the write, got {now[:80]!r}", hint="see the kernel's log: dmesg"
        )


def _run(words: tuple[str, ...]) -> None:
    """Run a command. Raises RailwrightError with its output if it fails."""
    ended = process.run(words, timeout_s=_COMMAND_TIMEOUT_S)
    if ended.returncode:
        output = " ".join(ended.output)[:200]
        hint = "" if os.geteuid() == 0 else "run it as root"
        raise RailwrightError(f"{shlex.join(words)} failed with {ended.describe()}: {output!r}", hint=hint)


def apply(fault: str, steps: tuple[Step, ...], root: Path) -> None:
    """Apply all steps or none.

    Raises UsageError if the fault is already changed, and RailwrightError if the record cannot be written or if a step
    fails, after the old values have been restored.
    """
    record = root / RECORDS / f"{fault}.json"
    try:
        record.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with os.fdopen(open_to_write(record, os.O_WRONLY | os.O_CREAT | os.O_EXCL), "wb") as opened:
            opened.write(msgspec.json.encode(steps))
    except FileExistsError as error:
        hint = f"undo it first: railwright audit --fix {fault} --undo"
        raise UsageError(f"{fault} is already changed: {record} exists", hint=hint) from error
    except OSError as error:
        hint = "" if os.geteuid() == 0 else "run it as root"
        raise RailwrightError(f"{record} cannot be written: {error.strerror}", hint=hint) from error
    done: list[Step] = []
    try:
        for step in steps:
            if isinstance(step, Run):
                _run(step.words)
                done.append(step)
            else:
                done.append(step)  # a write that fails may have changed the file
                _write(root, step.file, step.after)
    except BaseException:
        if not _restore(tuple(done), root).refused:
            record.unlink()
        raise


def undo(fault: str, root: Path) -> tuple[tuple[Step, ...], tuple[Write, ...]]:
    """Restore the old values. Returns the undone steps, and the writes whose files others have changed since.

    Such files keep their values. Raises UsageError if nothing was changed, and RailwrightError if the record cannot be
    read or a file rejects its old value. In both cases the record stays.
    """
    record = root / RECORDS / f"{fault}.json"
    try:
        steps = decode_json(read_at_most(record, _MAX_RECORD_BYTES), tuple[Step, ...])
    except FileNotFoundError as error:
        raise UsageError(f"{fault} is not changed: {record} does not exist") from error
    except (OSError, InvalidContent) as error:
        raise RailwrightError(f"{record} cannot be read: {str(error)[:200]}") from error
    restored = _restore(steps, root)
    if restored.refused:
        raise restored.refused[0]
    record.unlink()
    return restored.back, restored.others


class _Restoration(NamedTuple):
    """The outcome of a restoration: steps undone, writes that others have changed since, and errors."""

    back: tuple[Step, ...]
    others: tuple[Write, ...]
    refused: tuple[RailwrightError, ...]


def _restore(steps: tuple[Step, ...], root: Path) -> _Restoration:
    """Undo each step independently: one that fails does not affect the others."""
    back: list[Step] = []
    others: list[Write] = []
    refused = []
    for step in reversed(steps):
        try:
            if isinstance(step, Run):
                _run(step.undo)
                back.append(step)
                continue
            now = _read_value(root, step.file)
            if now == step.after:
                _write(root, step.file, step.before)
                back.append(step)
            elif now != step.before:
                others.append(step)
        except RailwrightError as error:
            if isinstance(step, Run) or (root / step.file).exists():
                refused.append(error)
    return _Restoration(tuple(back), tuple(others), tuple(refused))


def hold(fault: str, steps: tuple[Step, ...], root: Path, tell: Callable[[], None]) -> None:
    """Apply the steps, call `tell`, wait for Ctrl-C, SIGTERM or SIGHUP, and restore the old values.

    If the process is killed by SIGKILL, the record stays for `undo`.
    """
    with ended_by_signal():
        apply(fault, steps, root)
        ending.hold(tell, lambda: undo(fault, root))

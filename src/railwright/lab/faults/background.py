"""Starts a fault's child in a node's namespace, and ends children by the token in their argument lists."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec

from railwright.errors import CannotJudge
from railwright.lab.state import NETNS, Lab
from railwright.process import run

_CHILD = Path(__file__).with_name("child.py")
_START_S = 10.0
_GRACE_S = 2.0
_PROC = Path("/proc")
_TOKEN_ARGUMENT_BYTES = 64 * 2**10


def start(lab: Lab, node: str, token: str, settings: dict[str, str | float | int]) -> None:
    """Start a child and wait until it works. Raises CannotJudge with the child's own message if it does not."""
    # `ip netns exec` would mount a new /sys and hide the cgroups; nsenter does not.
    enter = ["nsenter", f"--net={NETNS / lab.namespace(node)}"]
    argv = [*enter, sys.executable, "-I", str(_CHILD), token, msgspec.json.encode(settings).decode()]
    ended = run(argv, timeout_s=_START_S)
    if ended.returncode != 0:
        why = " ".join(ended.output)[:300] or ended.describe()
        raise CannotJudge(f"{settings['role']} cannot run in {node}: {why}", hint="heal it: railwright lab heal")


def end(token: str) -> int:
    """End all children that carry the token: SIGTERM, then SIGKILL for those that stay. Returns their number."""
    handles = list(_open_handles(token))
    try:
        for number, patience_s in ((signal.SIGTERM, _GRACE_S), (signal.SIGKILL, _GRACE_S)):
            left = [handle for handle in handles if not _has_ended(handle, 0)]
            for handle in left:
                with contextlib.suppress(ProcessLookupError):
                    signal.pidfd_send_signal(handle, number)
            for handle in left:
                _has_ended(handle, patience_s)
    finally:
        for handle in handles:
            os.close(handle)
    return len(handles)


def _open_handles(token: str) -> Iterator[int]:
    for entry in _PROC.iterdir():
        if not entry.name.isdecimal() or not _has_token(entry, token):
            continue
        with contextlib.suppress(ProcessLookupError):
            handle = os.pidfd_open(int(entry.name))
            # Check again: while the pidfd is open, the number cannot pass to another process.
            if _has_token(entry, token):
                yield handle
            else:
                os.close(handle)


def _has_token(process: Path, token: str) -> bool:
    try:
        with (process / "cmdline").open("rb") as file:
            return token.encode() in file.read(_TOKEN_ARGUMENT_BYTES).split(b"\0")
    except OSError:
        return False


def _has_ended(handle: int, patience_s: float) -> bool:
    return bool(select.select([handle], [], [], patience_s)[0])

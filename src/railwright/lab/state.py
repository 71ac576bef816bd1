"""The files that describe a lab. A later command finds everything of the lab through them, even after a SIGKILL.

`/run/railwright/labs/NAME/`:

    lock          held (flock) while a process changes the lab; the kernel releases it when the process ends
    plan.json     the LabPlan
    identity      the random word in the names of namespaces and cgroups; written last, it marks the lab as existing
    made.jsonl    a line for each thing outside this folder, written before the thing is made
    ready         exists once all routes were in place
    faults.json   the faults that are applied now
    nodes/NODE/   configuration, sockets, pid files and logs of the node's daemons
    ssh/          keys and configuration of every host's sshd, if the lab has one

Nothing outside this folder is touched unless `made.jsonl` names it.
"""

from __future__ import annotations

import contextlib
import fcntl
import grp
import os
import secrets
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Literal

import msgspec

from railwright.errors import RailwrightError, UsageError, unknown_name
from railwright.lab.nodes import LabPlan
from railwright.lab.plan import check_name
from railwright.process import ChildResult, run
from railwright.reading import InvalidContent, decode_json, read_at_most
from railwright.writing import append, open_to_write, write_file

LABS = Path("/run/railwright/labs")
NETNS = Path("/run/netns")
ENTER = (sys.executable, "-I", str(Path(__file__).with_name("enter.py")))
"""The command that runs `enter.py`; its arguments follow."""
_MAX_FILE_BYTES = 16 * 2**20
_MAKE_ONE = "make one: railwright lab up hgx-h100 nics=2 --count 4"

MadeKind = Literal["namespace", "cgroup", "folder"]


class JournalEntry(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A thing outside the lab's folder: the name of a network namespace, or the path of a cgroup or folder."""

    kind: MadeKind
    name: str


@dataclass(frozen=True)
class Lab:
    """A lab on this machine, complete or not."""

    name: str
    folder: Path

    @cached_property
    def plan(self) -> LabPlan:
        """The lab's plan. Raises UsageError if the lab was interrupted before the plan was written."""
        try:
            return decode_json(read(self.folder / "plan.json"), LabPlan)
        except (OSError, InvalidContent) as error:
            hint = f"remove its remains: railwright lab down --name {self.name}"
            raise UsageError(f"lab {self.name} has no readable plan", hint=hint) from error

    @cached_property
    def identity(self) -> str:
        """A random word in the name of every namespace and cgroup of the lab."""
        return read(self.folder / "identity").decode("ascii", "replace").strip()

    @property
    def ready(self) -> bool:
        """Whether the lab came up with all its routes."""
        return (self.folder / "ready").exists()

    def namespace(self, node: str) -> str:
        """Return the node's network namespace, as `ip netns` names it. Raises UsageError for an unknown node."""
        return f"rw-{self.name}-{self.identity}-{self.plan.node(node).name}"

    def argv_in(self, node: str, argv: Sequence[str]) -> list[str]:
        """Return the argument list that runs `argv` in the node's namespace. It execs the program, without a fork."""
        return ["ip", "netns", "exec", self.namespace(node), *argv]

    def run(self, node: str, argv: Sequence[str], timeout_s: float = 30.0) -> ChildResult:
        """Run `argv` in the node's namespace to completion."""
        return run(self.argv_in(node, argv), timeout_s=timeout_s)

    def node_folder(self, node: str) -> Path:
        """Return the folder with the sockets, pid files and logs of a node."""
        return self.folder / "nodes" / self.plan.node(node).name

    def record(self, kind: MadeKind, *names: str) -> None:
        """Add names to the journal. Call this before the things are made."""
        lines = (msgspec.json.encode(JournalEntry(kind=kind, name=name)) + b"\n" for name in names)
        append(self.folder / "made.jsonl", b"".join(lines))

    def journal_entries(self) -> list[JournalEntry]:
        """Return all entries in order, without a truncated last line: its thing was not made yet."""
        found = []
        with contextlib.suppress(FileNotFoundError):
            for line in read(self.folder / "made.jsonl").splitlines():
                with contextlib.suppress(InvalidContent):
                    found.append(decode_json(line, JournalEntry))
        return found


def check_succeeded(finished: ChildResult, failed: str, hint: str, log: Path | None = None) -> None:
    """Check that a child succeeded. Raises RailwrightError with `failed` and the last lines of its output or log."""
    if finished.returncode != 0:
        lines = finished.output or (log.read_text("utf-8", "replace").splitlines() if log and log.exists() else [])
        raise RailwrightError(f"{failed}: {'; '.join(lines[-3:]) or finished.describe()}", hint=hint)


def require_root() -> None:
    """Check that the user is root, who alone may create namespaces and links. Raises UsageError."""
    if os.geteuid() != 0:
        raise UsageError("a lab requires root to create network namespaces", hint="run it with sudo")


def names() -> list[str]:
    """Return the names of the labs on this machine, complete or not."""
    try:
        return sorted(entry.name for entry in LABS.iterdir() if entry.is_dir())
    except (FileNotFoundError, PermissionError):
        return []


def open_lab(name: str | None) -> Lab:
    """Return the lab of that name, or the only lab if `name` is None. Raises UsageError."""
    existing = names()
    if name is None and len(existing) > 1:
        raise UsageError(f"this machine has {len(existing)} labs", hint=f"give --name {' or '.join(existing[:8])}")
    if name is None and not existing:
        raise UsageError("this machine has no lab", hint=_MAKE_ONE)
    name = check_name(existing[0] if name is None else name)
    if name not in existing:
        missing = UsageError(f"there is no lab {name!r}", hint=_MAKE_ONE)
        raise unknown_name("lab", name, existing) if existing else missing
    return Lab(name=name, folder=LABS / name)


def create(plan: LabPlan) -> Lab:
    """Write the files of a new lab. The caller holds its lock. Raises UsageError if a lab of that name exists."""
    lab = Lab(name=plan.name, folder=LABS / plan.name)
    if (lab.folder / "identity").exists():
        hint = f"end it: railwright lab down --name {plan.name}, or give --name"
        raise UsageError(f"lab {plan.name!r} already exists", hint=hint)
    write_file(lab.folder / "plan.json", msgspec.json.format(msgspec.json.encode(plan)) + b"\n")
    # Written last: this file marks the lab as existing.
    write_file(lab.folder / "identity", secrets.token_hex(3).encode())
    return lab


@contextlib.contextmanager
def lock_lab(name: str) -> Iterator[Path]:
    """Lock the lab against changes by others, and create its folder. Raises UsageError while another holds the lock."""
    folder = LABS / check_name(name)
    lock = _lock(folder)
    try:
        yield folder
    finally:
        os.close(lock)


def _lock(folder: Path) -> int:
    for _ in range(20):
        # Removing the last lab also removes these folders, perhaps concurrently: try again.
        with contextlib.suppress(FileNotFoundError):
            LABS.parent.mkdir(mode=0o755, exist_ok=True)
            LABS.mkdir(mode=0o755, exist_ok=True)
            folder.mkdir(mode=0o700, exist_ok=True)
            with contextlib.suppress(KeyError):
                # FRR's daemons run as their own user, which must reach its node's folder and read nothing else.
                os.chown(folder, 0, grp.getgrnam("frr").gr_gid)
                folder.chmod(0o710)
            lock = open_to_write(folder / "lock", os.O_CREAT | os.O_RDWR)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if os.fstat(lock).st_ino == (folder / "lock").stat().st_ino:
                    return lock
            except BlockingIOError as error:
                os.close(lock)
                hint = "wait until that command ends"
                raise UsageError(f"lab {folder.name} is locked by another railwright", hint=hint) from error
            except FileNotFoundError:
                pass
            os.close(lock)
    raise UsageError(f"lab {folder.name} is being created and removed by other commands", hint="try again")


def read(path: Path) -> bytes:
    """Read a file of the lab, at most 16 MiB."""
    return read_at_most(path, _MAX_FILE_BYTES)

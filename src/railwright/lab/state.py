"""The files that describe a lab. Whoever comes later finds all of the lab by them, also after a SIGKILL.

`/run/railwright/labs/NAME/`:

    lock          held (flock) by who changes the lab; the kernel drops it when its holder ends, however it ends
    plan.json     the LabPlan
    made.jsonl    one line for each thing that lives outside this folder, written before the thing is made
    ready         exists once all routes were there
    faults.json   the faults that are applied now
    nodes/NODE/   configuration, sockets, pid files and logs of the node's daemons

What is not in `made.jsonl` is never touched.
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
from railwright.process import Finished, run

LABS = Path("/run/railwright/labs")
NETNS = Path("/run/netns")
ENTER = (sys.executable, "-I", str(Path(__file__).with_name("enter.py")))
"""What runs `enter.py`; its words follow."""
_MAX_FILE_BYTES = 16 * 2**20

MadeKind = Literal["namespace", "cgroup", "folder"]


class Made(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A thing outside the lab's folder: the name of a network namespace, or the path of a cgroup or of a folder."""

    kind: MadeKind
    name: str


@dataclass(frozen=True)
class Lab:
    """A lab on this machine, finished or not."""

    name: str
    folder: Path

    @cached_property
    def plan(self) -> LabPlan:
        """Raises UsageError where the lab was interrupted before it was written."""
        try:
            return msgspec.json.decode(read(self.folder / "plan.json"), type=LabPlan)
        except (OSError, msgspec.DecodeError) as error:
            hint = f"end what is there: railwright lab down --name {self.name}"
            raise UsageError(f"lab {self.name} has no readable plan", hint=hint) from error

    @cached_property
    def identity(self) -> str:
        """A random word that is part of every name outside the folder."""
        return read(self.folder / "identity").decode("ascii", "replace").strip()

    @property
    def ready(self) -> bool:
        """Whether it came up with all its routes."""
        return (self.folder / "ready").exists()

    def namespace(self, node: str) -> str:
        """The name of the node's network namespace, as `ip netns` shows it. Raises UsageError for an unknown node."""
        return f"rw-{self.name}-{self.identity}-{self.plan.node(node).name}"

    def argv_in(self, node: str, argv: Sequence[str]) -> list[str]:
        """The argument list that runs `argv` in the node's namespace; it becomes that program, without a fork."""
        return ["ip", "netns", "exec", self.namespace(node), *argv]

    def run(self, node: str, argv: Sequence[str], timeout_s: float = 30.0) -> Finished:
        """Run `argv` in the node's namespace to its end."""
        return run(self.argv_in(node, argv), timeout_s=timeout_s)

    def node_folder(self, node: str) -> Path:
        """The folder with the sockets, pid files and logs of a node."""
        return self.folder / "nodes" / self.plan.node(node).name

    def record(self, kind: MadeKind, *names: str) -> None:
        """Write down what is about to be made. Call it before making it."""
        with (self.folder / "made.jsonl").open("ab") as file:
            file.write(b"".join(msgspec.json.encode(Made(kind=kind, name=name)) + b"\n" for name in names))

    def made(self) -> list[Made]:
        """All entries in order. A last line that was cut short is left out: nothing was made for it yet."""
        found = []
        with contextlib.suppress(FileNotFoundError):
            for line in read(self.folder / "made.jsonl").splitlines():
                with contextlib.suppress(msgspec.DecodeError, msgspec.ValidationError):
                    found.append(msgspec.json.decode(line, type=Made))
        return found


def must(finished: Finished, failed: str, hint: str, log: Path | None = None) -> None:
    """Raises RailwrightError if a child failed, with the command and the last line of its output or its log."""
    if finished.returncode != 0:
        lines = finished.output or (log.read_text("utf-8", "replace").splitlines() if log and log.exists() else [])
        raise RailwrightError(f"{failed}: {'; '.join(lines[-3:]) or finished.describe()}", hint=hint)


def require_root() -> None:
    """Raises UsageError for other users: only root may make namespaces and links."""
    if os.geteuid() != 0:
        raise UsageError("a lab needs root: it makes network namespaces", hint="run it with sudo")


def names() -> list[str]:
    """The labs on this machine, finished or not."""
    try:
        return sorted(entry.name for entry in LABS.iterdir() if entry.is_dir())
    except (FileNotFoundError, PermissionError):
        return []


def open_lab(name: str | None) -> Lab:
    """The lab of that name; without a name, the only one. Raises UsageError."""
    there = names()
    if name is None and len(there) > 1:
        raise UsageError(f"there are {len(there)} labs here", hint=f"give --name {' or '.join(there[:8])}")
    if name is None and not there:
        raise UsageError("there is no lab here", hint="make one: railwright lab up hgx-h100 nics=2 --count 4")
    name = check_name(there[0] if name is None else name)
    if name not in there:
        missing = UsageError(f"there is no lab {name!r}", hint="see railwright lab up")
        raise unknown_name("lab", name, there) if there else missing
    return Lab(name=name, folder=LABS / name)


def create(plan: LabPlan) -> Lab:
    """Write a new lab down. Its lock is held. Raises UsageError where one of that name is there."""
    lab = Lab(name=plan.name, folder=LABS / plan.name)
    if (lab.folder / "identity").exists():
        hint = f"end it: railwright lab down --name {plan.name}, or give --name"
        raise UsageError(f"there is a lab {plan.name!r} already", hint=hint)
    write(lab.folder / "plan.json", msgspec.json.format(msgspec.json.encode(plan)) + b"\n")
    # Last, since it says that there is a lab.
    write(lab.folder / "identity", secrets.token_hex(3).encode())
    return lab


@contextlib.contextmanager
def locked(name: str) -> Iterator[Path]:
    """Hold the lab against others who would change it; makes its folder. Raises UsageError while another holds it."""
    folder = LABS / check_name(name)
    lock = _lock(folder)
    try:
        yield folder
    finally:
        os.close(lock)


def _lock(folder: Path) -> int:
    for _ in range(20):
        # Whoever removes the last lab removes these folders too, perhaps just now: then begin again.
        with contextlib.suppress(FileNotFoundError):
            LABS.parent.mkdir(mode=0o755, exist_ok=True)
            LABS.mkdir(mode=0o755, exist_ok=True)
            folder.mkdir(mode=0o700, exist_ok=True)
            with contextlib.suppress(KeyError):
                # FRR's daemons drop to a user of their own, who must reach his node's folder and may read nothing else.
                os.chown(folder, 0, grp.getgrnam("frr").gr_gid)
                folder.chmod(0o710)
            lock = os.open(folder / "lock", os.O_CREAT | os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if os.fstat(lock).st_ino == (folder / "lock").stat().st_ino:
                    return lock
            except BlockingIOError as error:
                os.close(lock)
                hint = "wait until it ends"
                raise UsageError(f"another railwright works on lab {folder.name}", hint=hint) from error
            except FileNotFoundError:
                pass
            os.close(lock)
    raise UsageError(f"lab {folder.name} is being made and removed by others", hint="try again")


def read(path: Path) -> bytes:
    """A file of the lab, bounded."""
    with path.open("rb") as file:
        return file.read(_MAX_FILE_BYTES)


def write(path: Path, content: bytes) -> None:
    """Write a file as a whole: a crash leaves the old one or the new one."""
    part = path.with_name(f".{path.name}")
    part.write_bytes(content)
    part.chmod(0o600)
    part.replace(path)

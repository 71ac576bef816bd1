"""Removes a lab: its processes, namespaces, cgroups and files. Only things in the journal are removed.

A process is found by the namespace it is in, not by a pid file, so a process whose parent was killed before it wrote
one is found too.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import time
from collections.abc import Iterable
from pathlib import Path

from railwright.errors import RailwrightError
from railwright.lab import state
from railwright.lab.faults.cpu import remove_cgroup
from railwright.lab.frr_install import RUN_FOLDER
from railwright.lab.state import Lab
from railwright.process import run
from railwright.writing import write_file

_PROC = Path("/proc")
_CGROUPS = Path("/sys/fs/cgroup")
_WITHIN_S = 30.0
_TIMEOUT_S = 60.0


def down(name: str) -> None:
    """Remove the lab of that name. Raises UsageError if there is none, RailwrightError if anything of it remains."""
    state.require_root()
    state.open_lab(name)
    with state.lock_lab(name) as folder:
        remove(name, folder)


def remove(name: str, folder: Path) -> None:
    """Remove the lab in that folder. The caller holds its lock."""
    (folder / "ready").unlink(missing_ok=True)
    made = Lab(name=name, folder=folder).journal_entries()
    # The names come from the journal; they are still checked against a lab's pattern.
    namespaces = [entry.name for entry in made if entry.kind == "namespace" and _is_ours(entry.name, name)]
    _end_processes(namespaces)
    for entry in made:
        if entry.kind == "cgroup":
            _remove_cgroup(Path(entry.name))
        if entry.kind == "folder" and _is_ours(Path(entry.name).name, name) and Path(entry.name).parent == RUN_FOLDER:
            shutil.rmtree(entry.name, ignore_errors=True)
    _remove_namespaces(folder, namespaces)
    _remove_folder(folder)


def _is_ours(namespace: str, lab: str) -> bool:
    return namespace.startswith(f"rw-{lab}-") and "/" not in namespace and namespace not in (".", "..")


def find_processes(namespaces: Iterable[str]) -> list[int]:
    """Return the processes in these network namespaces, unordered."""
    kept = {_identity(_PROC / "1/ns/net"), _identity(_PROC / "self/ns/net")}
    wanted = {_identity(state.NETNS / name) for name in namespaces} - kept - {None}
    if not wanted:
        return []
    processes = (entry.name for entry in os.scandir(_PROC) if entry.name.isdigit())
    return [int(process) for process in processes if _identity(_PROC / process / "ns/net") in wanted]


def _identity(path: Path) -> tuple[int, int] | None:
    """Return device and inode of a namespace; None if it is gone."""
    with contextlib.suppress(OSError):
        found = path.stat()
        return found.st_dev, found.st_ino
    return None


def _end_processes(namespaces: list[str]) -> None:
    """Kill until two scans in a row find no process: the second finds one that was being forked during the first."""
    deadline = time.monotonic() + _WITHIN_S
    empty = 0
    while empty < 2:
        found = find_processes(namespaces)
        empty = 0 if found else empty + 1
        for process in found:
            with contextlib.suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
        if found and time.monotonic() > deadline:
            hint = f"one may be waiting for a device: ps -o pid,wchan,args -p {found[0]}"
            pids = ", ".join(map(str, found[:8]))
            raise RailwrightError(f"processes did not end after SIGKILL: {pids}", hint=hint)
        time.sleep(0.02)


def _remove_namespaces(folder: Path, names: list[str]) -> None:
    existing = [name for name in names if (state.NETNS / name).exists()]
    if existing:
        file = folder / "remove.batch"
        write_file(file, "".join(f"netns delete {name}\n" for name in existing))
        run(["ip", "-force", "-batch", str(file)], timeout_s=_TIMEOUT_S)
    for name in existing:
        # If `ip netns add` was killed, the namespace may be a plain file, which `ip netns delete` may refuse.
        with contextlib.suppress(FileNotFoundError):
            (state.NETNS / name).unlink()


def _remove_cgroup(path: Path) -> None:
    """Kill the processes of a fault's cgroup and remove it; only below the cgroup file system."""
    if _CGROUPS not in path.parents or ".." in path.parts:
        return
    if not remove_cgroup(path, lambda process: os.kill(int(process), signal.SIGKILL), _WITHIN_S):
        raise RailwrightError(f"{path} cannot be removed", hint=f"end the processes in {path}/cgroup.procs")


def _remove_folder(folder: Path) -> None:
    """Remove the folder, the journal and the lock last: a removal that was killed can then be repeated."""
    for entry in folder.iterdir():
        if entry.name in ("lock", "made.jsonl"):
            continue
        shutil.rmtree(entry) if entry.is_dir() and not entry.is_symlink() else entry.unlink()
    for name in ("made.jsonl", "lock"):
        with contextlib.suppress(FileNotFoundError):
            (folder / name).unlink()
    # Another lab may exist, or one of this name may be under construction.
    for path in (folder, folder.parent, folder.parent.parent):
        with contextlib.suppress(OSError):
            path.rmdir()


def down_all() -> list[str]:
    """Remove every lab and return their names. Raises the first error after trying all."""
    ended, failed = [], None
    for name in state.names():
        try:
            down(name)
            ended.append(name)
        except RailwrightError as error:
            failed = failed or error
    if failed is not None:
        raise failed
    return ended

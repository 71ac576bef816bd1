"""A folder for one launch. Nothing of it stays behind.

MPI launchers and shared-memory transports keep files in /tmp and /dev/shm and leave them there when killed; they are
all pointed here. A lock on the folder is held as long as we live, and the name holds our process id, so that what a
killed parent left can be swept by the next run, and what a living one uses in another container cannot.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

_PREFIX = "railwright-"


def _base() -> Path:
    shared_memory = Path("/dev/shm")  # noqa: S108 - a private folder is made inside
    return shared_memory if os.access(shared_memory, os.W_OK) else Path(tempfile.gettempdir())


@contextlib.contextmanager
def scratch_folder() -> Iterator[Path]:
    """A private (0700) folder in shared memory, removed at the end."""
    sweep()
    folder = Path(tempfile.mkdtemp(prefix=f"{_PREFIX}{os.getpid()}-", dir=_base()))
    lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        os.close(lock)


def sweep() -> None:
    """Remove the folders of our own dead predecessors."""
    for folder in _base().glob(f"{_PREFIX}*-*"):
        pid = folder.name.removeprefix(_PREFIX).partition("-")[0]
        with contextlib.suppress(OSError):
            ours = folder.lstat().st_uid == os.getuid() and folder.is_dir() and not folder.is_symlink()
            if ours and pid.isdecimal() and not Path("/proc", pid).exists() and not _is_locked(folder):
                shutil.rmtree(folder, ignore_errors=True)


def _is_locked(folder: Path) -> bool:
    """Whether a living process holds the folder: a process id says nothing across containers."""
    probe = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC | os.O_NOFOLLOW)
    try:
        fcntl.flock(probe, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(probe)
    return False

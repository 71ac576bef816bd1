"""A temporary folder for one launch.

MPI launchers and shared-memory transports keep files in /tmp and /dev/shm and leave them there when killed, so all of
them are directed to this folder. Its name contains our process id, and we hold a lock on it while we live. So the next
run can remove the folder of a killed parent, but not that of a living one in another container.
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
_SHARED_MEMORY = Path("/dev/shm")  # noqa: S108 - a private folder is made inside
_LEAST_BYTES = 32 * 2**20


def _base() -> Path:
    """Return the folder of scratch folders: shared memory, if it has room for the segments of a few ranks."""
    with contextlib.suppress(OSError):
        found = os.statvfs(_SHARED_MEMORY)
        if found.f_bavail * found.f_frsize >= _LEAST_BYTES and os.access(_SHARED_MEMORY, os.W_OK):
            return _SHARED_MEMORY
    return Path(tempfile.gettempdir())


@contextlib.contextmanager
def scratch_folder() -> Iterator[Path]:
    """Create a private folder (0700) in shared memory, and remove it at the end."""
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
    """Remove the folders of this user's runs that have died."""
    for folder in _base().glob(f"{_PREFIX}*-*"):
        pid = folder.name.removeprefix(_PREFIX).partition("-")[0]
        with contextlib.suppress(OSError):
            ours = folder.lstat().st_uid == os.getuid() and folder.is_dir() and not folder.is_symlink()
            if ours and pid.isdecimal() and not Path("/proc", pid).exists() and not _is_locked(folder):
                shutil.rmtree(folder, ignore_errors=True)


def _is_locked(folder: Path) -> bool:
    """Report whether a living process holds the folder, since process ids are meaningless across containers."""
    probe = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC | os.O_NOFOLLOW)
    try:
        fcntl.flock(probe, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(probe)
    return False

"""Runs a program where udev's database knows the file systems of the drives: for containers without /run/udev.

    udev_record.py PROGRAM ARGUMENTS...

libcufile asks udev for ID_FS_USAGE of the drive that a file lies on, and refuses the file (error 5027) where there is
no answer, in its compatibility mode as well. A container that was not given /run/udev, and a machine where no udevd
runs, have no answer. Here the program gets a mount namespace of its own, with records of what /proc/self/mountinfo
says; outside only an empty /run/udev is seen, where there was none. Needs root.
"""

from __future__ import annotations

import ctypes
import os
import sys
from pathlib import Path

DATABASE = Path("/run/udev")
_CLONE_NEWNS, _MS_REC, _MS_PRIVATE = 0x20000, 0x4000, 1 << 18
_DEVICE, _TYPE = 2, 0
"""Fields of mountinfo: major:minor from the front, the file system's type behind the dash."""


def records(mountinfo: str, sys_block: Path = Path("/sys/dev/block")) -> dict[str, str]:
    """Return udev's record of each mounted drive: its name and text."""
    found = {}
    for line in mountinfo.splitlines():
        front, _, behind = line.partition(" - ")
        device, kind = front.split()[_DEVICE], behind.split()[_TYPE]
        if (sys_block / device).exists():
            found[f"b{device}"] = f"E:ID_FS_TYPE={kind}\nE:ID_FS_USAGE=filesystem\n"
    return found


def missing(mountinfo: str, database: Path = DATABASE) -> list[str]:
    """The mounted drives whose file system udev's database does not tell."""
    told = {path.name for path in database.glob("data/b*") if "E:ID_FS_USAGE=" in path.read_text(errors="replace")}
    return sorted(records(mountinfo).keys() - told)


def lay(mountinfo: str) -> None:
    """Records for this process and its children alone. Raises OSError."""
    libc = ctypes.CDLL(None, use_errno=True)
    DATABASE.mkdir(exist_ok=True)
    _checked(libc.unshare(_CLONE_NEWNS), "a mount namespace of its own")
    _checked(libc.mount(None, b"/", None, ctypes.c_ulong(_MS_REC | _MS_PRIVATE), None), "making mounts private")
    _checked(libc.mount(b"tmpfs", os.fsencode(DATABASE), b"tmpfs", ctypes.c_ulong(0), None), "a tmpfs at /run/udev")
    (DATABASE / "data").mkdir()
    (DATABASE / "control").touch()  # libudev takes the database for one that is in use where this is
    for name, text in records(mountinfo).items():
        (DATABASE / "data" / name).write_text(text)


def _checked(status: int, what: str) -> None:
    if status:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")


if __name__ == "__main__":
    if not sys.argv[1:]:
        sys.exit(f"usage: {sys.argv[0]} PROGRAM ARGUMENTS...")
    try:
        lay(Path("/proc/self/mountinfo").read_text())
    except OSError as error:
        sys.exit(f"no record can be given to udev's readers here: {error}")
    os.execvp(sys.argv[1], sys.argv[1:])

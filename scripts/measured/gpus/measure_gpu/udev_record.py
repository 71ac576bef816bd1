"""Runs a program with a udev database that lists the file systems of the drives, for containers without /run/udev.

    udev_record.py PROGRAM ARGUMENTS...

libcufile reads ID_FS_USAGE of a file's drive from udev and rejects the file (error 5027) without it, in compatibility
mode as well. A container without /run/udev, and a machine without udevd, have no such record. The program therefore
runs in a mount namespace with records derived from /proc/self/mountinfo. Outside it, at most an empty /run/udev is
created. Needs root.
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
    """Return the mounted drives whose file system is missing from udev's database."""
    told = {path.name for path in database.glob("data/b*") if "E:ID_FS_USAGE=" in path.read_text(errors="replace")}
    return sorted(records(mountinfo).keys() - told)


def create_records(mountinfo: str) -> None:
    """Create the records for this process and its children only. Raises OSError."""
    libc = ctypes.CDLL(None, use_errno=True)
    DATABASE.mkdir(exist_ok=True)
    _check_status(libc.unshare(_CLONE_NEWNS), "a mount namespace of its own")
    _check_status(libc.mount(None, b"/", None, ctypes.c_ulong(_MS_REC | _MS_PRIVATE), None), "making mounts private")
    _check_status(
        libc.mount(b"tmpfs", os.fsencode(DATABASE), b"tmpfs", ctypes.c_ulong(0), None), "a tmpfs at /run/udev"
    )
    (DATABASE / "data").mkdir()
    (DATABASE / "control").touch()  # libudev considers a database with this file as in use
    for name, text in records(mountinfo).items():
        (DATABASE / "data" / name).write_text(text)


def _check_status(status: int, what: str) -> None:
    if status:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")


if __name__ == "__main__":
    if not sys.argv[1:]:
        sys.exit(f"usage: {sys.argv[0]} PROGRAM ARGUMENTS...")
    try:
        create_records(Path("/proc/self/mountinfo").read_text())
    except OSError as error:
        sys.exit(f"cannot create udev records: {error}")
    os.execvp(sys.argv[1], sys.argv[1:])

"""Runs a command in the surroundings of a container, with this host's files. Run by path, standard library only.

    python -I enter.py INSIDE.json SIDE COMMAND ...

COMMAND is one line for a shell, as with ssh. On the side `container` it runs in the surroundings that INSIDE.json
describes (`launch.containers.surroundings` writes it). On any other side it runs unchanged.

The host is not changed: namespaces are joined or new, and mounts are made in a private namespace. The command has its
own process-id namespace, so that the kernel kills all its children when it ends or when our parent does.
"""

from __future__ import annotations

import base64
import ctypes
import json
import os
import resource
import signal
import struct
import sys
from typing import Any

_CLONE_NEWNS, _CLONE_NEWPID = 0x00020000, 0x20000000  # linux/sched.h
_MS_REC, _MS_PRIVATE, _MS_SLAVE = 0x4000, 0x40000, 0x80000  # linux/mount.h
_OPEN_TREE, _MOVE_MOUNT = 428, 429  # asm-generic/unistd.h: the same on every architecture
_CLONE_TREE, _AT_RECURSIVE, _FROM_EMPTY_PATH, _AT_FDCWD = 1, 0x8000, 4, -100
_PDEATHSIG, _SET_SECCOMP, _DROP_BOUND, _NO_NEW_PRIVILEGES = 1, 22, 24, 38  # linux/prctl.h
_FILTER_MODE = 2
_CANNOT_ENTER_STATUS = 126
_MAX_OOM_SCORE = b"1000"
_SHM = "/dev/shm"  # noqa: S108 - the container's mount is used

_libc = ctypes.CDLL(None, use_errno=True)


def main() -> None:
    """Become the command, or run it in the container's surroundings and exit with its status."""
    file, side, *words = sys.argv[1:]
    line = " ".join(words)
    if side != "container":
        os.execv("/bin/sh", ["sh", "-c", line])  # noqa: S606 - as ssh passes it to the remote shell
    with open(file, encoding="ascii") as opened:  # noqa: PTH123 - as in lab/enter.py
        inside = json.load(opened)
    try:
        os.environ.update(inside["environment"])
        for name in [name for name in os.environ if name in inside["unset"]]:
            del os.environ[name]
        _join(inside)
        _check(_libc.unshare(_CLONE_NEWPID), "process ids")
        first = os.fork()
        if not first:
            _run_as_init(inside, line)
    except (OSError, ValueError) as error:
        _give_up(error)
    status = os.waitstatus_to_exitcode(os.waitpid(first, 0)[1])
    sys.exit(status if status >= 0 else 128 - status)


def _give_up(error: Exception) -> None:
    message = f"{error.strerror}: {error.filename or ''}".rstrip(": ") if isinstance(error, OSError) else error
    sys.stdout.write(f"the container cannot be entered: {message}\n")
    sys.stdout.flush()
    os._exit(_CANNOT_ENTER_STATUS)


def _join(inside: dict[str, Any]) -> None:
    """Join the container's control groups and namespaces, and take over its /dev and /sys."""
    handles = {name: os.open(f"/proc/{inside['pid']}/ns/{name}", os.O_RDONLY) for name in inside["namespaces"]}
    with open(f"/proc/{inside['pid']}/stat", encoding="utf-8", errors="replace") as stat:  # noqa: PTH123
        if int(stat.read().rpartition(")")[2].split()[19]) != inside["started"]:
            raise OSError(3, "the process has ended")
    for group in inside["cgroups"]:
        _write_file(group, str(os.getpid()).encode())
    # If memory runs short, our processes are killed before the container's own.
    _write_file("/proc/self/oom_score_adj", _MAX_OOM_SCORE)
    _check(_libc.unshare(_CLONE_NEWNS), "mounts")
    _check(_libc.mount(b"none", b"/", None, ctypes.c_ulong(_MS_REC | _MS_SLAVE), None), "mounts")
    ours = os.open("/proc/self/ns/mnt", os.O_RDONLY)
    has_mounts = "mnt" in handles
    if has_mounts:
        _check(_libc.setns(handles.pop("mnt"), _CLONE_NEWNS), "mounts")
        trees = {path: _clone_mounts(path) for path in ("/dev", "/sys")}
        _check(_libc.setns(ours, _CLONE_NEWNS), "mounts")
        for path, tree in trees.items():
            _attach_mounts(tree, path)
    if os.path.realpath(_SHM) != _SHM:
        raise OSError(40, "must not be a symbolic link, which could redirect our files", _SHM)
    for name, handle in handles.items():
        _check(_libc.setns(handle, 0), name)
    if "net" in handles and not has_mounts:  # the present sysfs shows the host's interfaces
        groups = _clone_mounts("/sys/fs/cgroup")
        _check(_libc.mount(b"sysfs", b"/sys", b"sysfs", ctypes.c_ulong(0), None), "/sys")
        _attach_mounts(groups, "/sys/fs/cgroup")


def _clone_mounts(path: str) -> int:
    """Clone the mounts at and below a path. Returns a file descriptor of the detached copy."""
    flags = _CLONE_TREE | os.O_CLOEXEC | _AT_RECURSIVE
    tree: int = _check(_libc.syscall(_OPEN_TREE, _AT_FDCWD, path.encode(), flags), path)
    return tree


def _attach_mounts(tree: int, path: str) -> None:
    _check(_libc.syscall(_MOVE_MOUNT, tree, b"", _AT_FDCWD, path.encode(), _FROM_EMPTY_PATH), path)
    os.close(tree)
    # Later mounts below the path must not appear in the container.
    _check(_libc.mount(None, path.encode(), None, ctypes.c_ulong(_MS_REC | _MS_PRIVATE), None), path)


def _run_as_init(inside: dict[str, Any], line: str) -> None:
    """Run as process 1 of the new process-id namespace, with exactly the rights of the container's process."""
    try:
        _libc.prctl(_PDEATHSIG, signal.SIGKILL)
        # A new proc mount, so that process ids and /proc/self are those of the new namespace.
        _check(_libc.mount(b"proc", b"/proc", b"proc", ctypes.c_ulong(0), None), "/proc")
        for name, pair in inside["limits"].items():
            resource.setrlimit(getattr(resource, name), tuple(pair))
        os.sched_setaffinity(0, inside["cpus"])
        for capability in inside["dropped"]:
            _check(_libc.prctl(_DROP_BOUND, capability, 0, 0, 0), f"capability {capability}")
        for text in inside["filters"]:
            _install_filter(base64.b64decode(text))
        if inside["no_new_privileges"]:
            _check(_libc.prctl(_NO_NEW_PRIVILEGES, 1, 0, 0, 0), "no_new_privs")
        program = os.fork()
        if not program:
            os.execv("/bin/sh", ["sh", "-c", line])  # noqa: S606
    except (OSError, ValueError) as error:
        _give_up(error)
    while True:
        ended, status = os.wait()  # orphans as well, which process 1 inherits
        if ended == program:
            code = os.waitstatus_to_exitcode(status)
            os._exit(code if code >= 0 else 128 - code)


def _install_filter(instructions: bytes) -> None:
    kept = ctypes.create_string_buffer(instructions, len(instructions))
    program = struct.pack("@HP", len(instructions) // 8, ctypes.addressof(kept))  # struct sock_fprog
    _check(_libc.prctl(_SET_SECCOMP, _FILTER_MODE, program, 0, 0), "seccomp")


def _write_file(path: str, content: bytes) -> None:
    handle = os.open(path, os.O_WRONLY)
    try:
        os.write(handle, content)
    except OSError as error:
        raise OSError(error.errno, error.strerror, path) from error
    finally:
        os.close(handle)


def _check(status: int, subject: str) -> int:
    if status < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), subject)
    return status


if __name__ == "__main__":
    main()

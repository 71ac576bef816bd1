"""Runs programs inside the hosts of a lab. Started by its path; uses the standard library only.

    python -I enter.py head NETNS HOSTNAME PROGRAM [ARGUMENT ...]
    python -I enter.py enter NETNS HOSTNAME PROGRAM [ARGUMENT ...]
    python -I enter.py agent HOSTS.json HOST COMMAND ...

`enter` becomes the program, in the network namespace NETNS. It mounts the /sys of that namespace, where UCX looks for
interfaces, and sets a hostname of its own: MPI assumes that processes under one hostname share memory.

`head` does the same, stays, and puts a process-id namespace with its own /proc around the program: CUDA fails (error
304) if /proc shows other ids. When the program, this process or its parent ends, the kernel kills every other process
in that namespace. `mpirun` is started like this, so that none of its daemons and ranks outlives it.

`agent` replaces ssh for `mpirun`. HOSTS.json maps the name of each host to its namespace.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import socket
import sys

_CLONE_NEWNS, _CLONE_NEWUTS, _CLONE_NEWPID, _CLONE_NEWNET = 0x00020000, 0x04000000, 0x20000000, 0x40000000
_MS_REC, _MS_SLAVE = 0x4000, 0x80000  # from linux/mount.h; the flags above are from linux/sched.h
_MNT_DETACH = 2
_PR_SET_PDEATHSIG = 1
_CANNOT = 126  # the exit status of a shell that cannot run a program

_libc = ctypes.CDLL(None, use_errno=True)


def main() -> None:
    """Run the role that the first argument names. `enter` and `agent` never return normally."""
    role, first, second, *words = sys.argv[1:]
    try:
        if role == "head":
            sys.exit(_head(first, second, words))
        if role == "enter":
            _enter_namespaces(first, second)
            os.execvp(words[0], words)  # noqa: S606 - no shell is wanted
        _become_agent(first, second, words)
    except OSError as error:
        sys.stderr.write(f"{second}: {error.strerror}: {error.filename or 'its namespace'}\n")
        sys.exit(_CANNOT)


def _become_agent(hosts: str, host: str, words: list[str]) -> None:
    with open(hosts, encoding="ascii") as file:  # noqa: PTH123 - pathlib alone would double the time to start
        namespaces: dict[str, str] = json.load(file)
    if host not in namespaces:
        sys.stderr.write(f"{host}: not a host of this launch\n")
        sys.exit(_CANNOT)
    _enter_namespaces(namespaces[host], host)
    # Like ssh: mpirun passes one line for the remote shell, with quotes and variables of its own.
    os.execv("/bin/sh", ["sh", "-c", " ".join(words)])  # noqa: S606


def _enter_namespaces(network: str, hostname: str, others: int = 0) -> None:
    """Move this process into the network namespace, and into new mount and UTS namespaces."""
    handle = os.open(network, os.O_RDONLY | os.O_CLOEXEC)
    _check_status(_libc.setns(handle, _CLONE_NEWNET))
    os.close(handle)
    _check_status(_libc.unshare(_CLONE_NEWNS | _CLONE_NEWUTS | others))
    socket.sethostname(hostname)
    # Like `ip netns exec`: later mounts stay private to this process.
    _check_status(_libc.mount(b"none", b"/", None, ctypes.c_ulong(_MS_REC | _MS_SLAVE), None))
    _libc.umount2(b"/sys", _MNT_DETACH)
    _check_status(_libc.mount(b"sysfs", b"/sys", b"sysfs", ctypes.c_ulong(0), None))


def _check_status(status: int) -> None:
    if status:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def _head(network: str, hostname: str, words: list[str]) -> int:
    _enter_namespaces(network, hostname, _CLONE_NEWPID)
    first = os.fork()
    if not first:
        _run_as_init(words)
    status = os.waitstatus_to_exitcode(os.waitpid(first, 0)[1])
    return status if status >= 0 else 128 - status


def _run_as_init(words: list[str]) -> None:
    """Run as process 1 of the new process-id namespace. When it ends, the kernel kills all others in it."""
    _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    # A container may forbid it. Then CUDA alone fails.
    _libc.mount(b"proc", b"/proc", b"proc", ctypes.c_ulong(0), None)
    program = os.fork()
    if not program:
        try:
            os.execvp(words[0], words)  # noqa: S606
        finally:
            os._exit(_CANNOT)
    while True:
        ended, status = os.wait()  # also reaps orphans, which process 1 inherits
        if ended == program:
            code = os.waitstatus_to_exitcode(status)
            os._exit(code if code >= 0 else 128 - code)


if __name__ == "__main__":
    main()

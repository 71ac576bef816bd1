"""Runs programs inside the hosts of a lab. Alone, by path, with the standard library only.

    python -I enter.py head NETNS HOSTNAME PROGRAM [ARGUMENT ...]
    python -I enter.py enter NETNS HOSTNAME PROGRAM [ARGUMENT ...]
    python -I enter.py agent HOSTS.json HOST COMMAND ...

`enter` becomes the program, in the network namespace NETNS, with the /sys of that namespace, in which UCX looks for
interfaces, and under a hostname of its own: MPI takes processes of hosts with one name for neighbours in one memory.

`head` does the same and stays, with a process-id namespace around the program: when the program ends, or this process,
or the one that started it, the kernel kills whatever else was started in there, in whatever session or namespace. That
is how `mpirun` is started, so that none of its daemons and ranks outlives it.

`agent` is what `mpirun` takes for ssh. HOSTS.json holds the namespace of each host by its name.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import socket
import sys

_CLONE_NEWNS, _CLONE_NEWUTS, _CLONE_NEWPID, _CLONE_NEWNET = 0x00020000, 0x04000000, 0x20000000, 0x40000000
_MS_REC, _MS_SLAVE = 0x4000, 0x80000  # linux/mount.h; the ones above are of linux/sched.h
_MNT_DETACH = 2
_PR_SET_PDEATHSIG = 1
_CANNOT = 126  # as shells say that a program could not be run

_libc = ctypes.CDLL(None, use_errno=True)


def main() -> None:
    """Do what the first word says. `enter` and `agent` never return normally."""
    role, first, second, *words = sys.argv[1:]
    try:
        if role == "head":
            sys.exit(_head(first, second, words))
        if role == "enter":
            _go(first, second)
            os.execvp(words[0], words)  # noqa: S606 - no shell is wanted
        _become_agent(first, second, words)
    except OSError as error:
        sys.stderr.write(f"{second}: {error.strerror}: {error.filename or 'its namespace'}\n")
        sys.exit(_CANNOT)


def _become_agent(hosts: str, host: str, words: list[str]) -> None:
    with open(hosts, encoding="ascii") as file:  # noqa: PTH123 - pathlib alone would double the time to start
        namespaces: dict[str, str] = json.load(file)
    if host not in namespaces:
        sys.stderr.write(f"{host}: is no host of this launch\n")
        sys.exit(_CANNOT)
    _go(namespaces[host], host)
    # As ssh does: what mpirun gives is one line for the other side's shell, with quotes and variables of its own.
    os.execv("/bin/sh", ["sh", "-c", " ".join(words)])  # noqa: S606


def _go(network: str, hostname: str, others: int = 0) -> None:
    """Move this process into the network namespace, and into new ones of its own."""
    handle = os.open(network, os.O_RDONLY | os.O_CLOEXEC)
    _must(_libc.setns(handle, _CLONE_NEWNET))
    os.close(handle)
    _must(_libc.unshare(_CLONE_NEWNS | _CLONE_NEWUTS | others))
    socket.sethostname(hostname)
    # As `ip netns exec` does; what is mounted from here on is ours alone.
    _must(_libc.mount(b"none", b"/", None, ctypes.c_ulong(_MS_REC | _MS_SLAVE), None))
    _libc.umount2(b"/sys", _MNT_DETACH)
    _must(_libc.mount(b"sysfs", b"/sys", b"sysfs", ctypes.c_ulong(0), None))


def _must(status: int) -> None:
    if status:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def _head(network: str, hostname: str, words: list[str]) -> int:
    _go(network, hostname, _CLONE_NEWPID)
    first = os.fork()
    if not first:
        _be_first(words)
    status = os.waitstatus_to_exitcode(os.waitpid(first, 0)[1])
    return status if status >= 0 else 128 - status


def _be_first(words: list[str]) -> None:
    """Run as process 1 of the new process-id namespace. Its end ends all others in there."""
    _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    program = os.fork()
    if not program:
        try:
            os.execvp(words[0], words)  # noqa: S606
        finally:
            os._exit(_CANNOT)
    while True:
        ended, status = os.wait()  # also orphans, which become ours
        if ended == program:
            code = os.waitstatus_to_exitcode(status)
            os._exit(code if code >= 0 else 128 - code)


if __name__ == "__main__":
    main()

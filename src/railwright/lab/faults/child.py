"""The background process of a fault. Started by its path in a namespace; uses the standard library only.

    python -I child.py TOKEN '{"role": "flap", ...}'

It exits with status 0 once the child works in the background, else it prints the reason. TOKEN is in the argument list
so that `heal` finds the child even after a crash; `lab down` finds it by its namespace.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import signal
import socket
import struct
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

_SIOCGIFFLAGS, _SIOCSIFFLAGS, _IFF_UP = 0x8913, 0x8914, 1
_SO_SNDBUFFORCE, _SEND_BUFFER_BYTES = 32, 64 << 20
_DISCARD_PORT = 9  # RFC 863
_UDP_IPV6_HEADERS_BYTES = 48
_ETHERNET_BYTES = 14
_FOLLOW_S = 0.1
_CATCH_UP_S = 0.02  # a delayed sender catches up with at most this much at once

Settings = dict[str, Any]


class _Ended(Exception):
    """Raised on SIGTERM."""


def main() -> None:
    """Start the child in the background and report whether it works."""
    settings: Settings = json.loads(sys.argv[2])
    reader, writer = os.pipe()
    if os.fork():
        os.close(writer)
        with os.fdopen(reader) as pipe:
            answer = pipe.read(4096)
        if answer != "ready":
            sys.stdout.write(answer or "the child ended at once")
            sys.exit(1)
        return
    os.close(reader)
    os.setsid()
    nowhere = os.open(os.devnull, os.O_RDWR)
    for number in (0, 1, 2):
        os.dup2(nowhere, number)
    signal.signal(signal.SIGTERM, _end)
    status = 0
    with contextlib.suppress(_Ended):
        try:
            work = {"flap": _flap, "busy": _busy, "follow": _follow}[settings["role"]](settings)
            next(work)
            os.write(writer, b"ready")
            os.close(writer)
            next(work)
        except OSError as error:
            with contextlib.suppress(OSError):
                os.write(writer, str(error).encode())
            status = 1
    os._exit(status)


def _end(_number: int, _frame: object) -> None:
    raise _Ended


# Each role starts its work, yields once it works, and continues until SIGTERM.


def _flap(settings: Settings) -> Iterator[None]:
    control = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
    name = settings["port"].encode()

    def switch(up: bool) -> None:
        request = fcntl.ioctl(control, _SIOCGIFFLAGS, struct.pack("16sh22x", name, 0))
        flags = struct.unpack_from("h", request, 16)[0]
        flags = flags | _IFF_UP if up else flags & ~_IFF_UP
        fcntl.ioctl(control, _SIOCSIFFLAGS, struct.pack("16sh22x", name, flags))

    switch(False)
    yield
    try:
        while True:
            time.sleep(settings["down_s"])
            switch(True)
            time.sleep(settings["up_s"])
            switch(False)
    finally:
        switch(True)


def _busy(settings: Settings) -> Iterator[None]:
    index = socket.if_nametoindex(settings["port"])
    sock = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
    sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_MULTICAST_LOOP, 0)
    sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_MULTICAST_IF, index)
    # With a small buffer the sender would wait for its own packets in the queue, and so yield to other traffic.
    sock.setsockopt(socket.SOL_SOCKET, _SO_SNDBUFFORCE, _SEND_BUFFER_BYTES)
    sock.connect(("ff02::1", _DISCARD_PORT, 0, index))
    data = bytes(settings["packet_bytes"] - _UDP_IPV6_HEADERS_BYTES)
    gap_s = (settings["packet_bytes"] + _ETHERNET_BYTES) * 8 / settings["rate_bits_per_s"]
    yield
    due = time.monotonic()
    while True:
        now = time.monotonic()
        if now < due:
            time.sleep(due - now)
        due = max(due + gap_s, now - _CATCH_UP_S)
        try:
            sock.send(data)
        except OSError:  # the queue is full, or the link is down for now
            time.sleep(0.001)


def _follow(settings: Settings) -> Iterator[None]:
    """Move every process of this namespace into the cgroup, and later ones as they start."""
    members = Path(settings["cgroup"]) / "cgroup.procs"
    namespace = Path("/proc/self/ns/net").readlink()

    def gather() -> None:
        members_now = set(members.read_text().split())
        for entry in Path("/proc").iterdir():
            if not entry.name.isdecimal() or entry.name in members_now or int(entry.name) == os.getpid():
                continue
            with contextlib.suppress(OSError):  # it ended meanwhile
                if (entry / "ns/net").readlink() == namespace:
                    members.write_text(entry.name)

    gather()
    yield
    while True:
        gather()
        time.sleep(_FOLLOW_S)


if __name__ == "__main__":
    main()

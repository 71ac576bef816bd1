"""The addresses of this host, by interface."""

from __future__ import annotations

import contextlib
import fcntl
import socket
import struct
from collections.abc import Iterator
from pathlib import Path

_SIOCGIFADDR = 0x8915  # linux/sockios.h


def list_addresses() -> Iterator[tuple[str, str]]:
    """Yield (interface, address), IPv4 first, without link-local IPv6."""
    with contextlib.closing(socket.socket(socket.AF_INET, socket.SOCK_DGRAM)) as asked:
        for _, name in socket.if_nameindex():
            with contextlib.suppress(OSError):
                request = struct.pack("256s", name.encode()[:15])
                yield name, socket.inet_ntoa(fcntl.ioctl(asked.fileno(), _SIOCGIFADDR, request)[20:24])
    with contextlib.suppress(OSError):
        for line in Path("/proc/net/if_inet6").read_text("ascii").splitlines():
            digits, _, _, scope, _, name = line.split()
            if scope == "00":
                yield name, socket.inet_ntop(socket.AF_INET6, bytes.fromhex(digits))

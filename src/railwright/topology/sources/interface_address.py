"""The IPv4 address of a network interface of this process's own namespace, from the kernel."""

from __future__ import annotations

import contextlib
import fcntl
import ipaddress
import socket
import struct

_SIOCGIFADDR = 0x8915
"""Linux include/uapi/linux/sockios.h; the answer is a `struct ifreq` with a `sockaddr_in` after the name."""
_NAME_BYTES = 15
_REQUEST = struct.Struct("16s24x")
_ADDRESS = slice(20, 24)


def ipv4_address(interface: str) -> str | None:
    """Return the first address of an interface; None if the interface has no address or does not exist."""
    name = interface.encode(errors="replace")
    if not name or len(name) > _NAME_BYTES:
        return None
    with contextlib.suppress(OSError), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as endpoint:
        answer = fcntl.ioctl(endpoint, _SIOCGIFADDR, _REQUEST.pack(name))
        return str(ipaddress.IPv4Address(answer[_ADDRESS]))
    return None

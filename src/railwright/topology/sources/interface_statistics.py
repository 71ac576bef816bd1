"""Statistics that the driver of a network interface keeps, as `ethtool -S` shows them: pauses, discards, symbol errors.

Linux include/uapi/linux/ethtool.h: ETHTOOL_GSSET_INFO, ETHTOOL_GSTRINGS and ETHTOOL_GSTATS by SIOCETHTOOL.
"""

from __future__ import annotations

import ctypes
import fcntl
import socket
import struct

_IOCTL = 0x8946
_COUNT, _NAMES, _VALUES, _STATISTICS = 0x37, 0x1B, 0x1D, 1
_NAME_BYTES = 32
_MAX_STATISTICS = 16384


def read_statistics(interface: str) -> dict[str, int]:
    """Return the statistics of an interface of this network namespace; empty if its driver has none."""
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
            answer = _ask(sock, interface, struct.pack("=IIQI4x", _COUNT, 0, 1 << _STATISTICS, 0))
            mask, count = struct.unpack_from("=QI", answer, 8)
            if not mask or not 0 < count <= _MAX_STATISTICS:
                return {}
            head = struct.pack("=III", _NAMES, _STATISTICS, count)
            names = _ask(sock, interface, head + bytes(count * _NAME_BYTES))[len(head) :]
            values = _ask(sock, interface, struct.pack("=II", _VALUES, count) + bytes(8 * count))
    except OSError:
        return {}
    words = (names[at : at + _NAME_BYTES].partition(b"\0")[0] for at in range(0, len(names), _NAME_BYTES))
    texts = (word.decode("ascii", "replace").strip() for word in words)
    return dict(zip(texts, struct.unpack_from(f"={count}Q", values, 8), strict=True))


def _ask(sock: socket.socket, interface: str, request: bytes) -> bytes:
    """Return the request as the kernel has filled it in. Raises OSError."""
    buffer = ctypes.create_string_buffer(request, len(request))
    fcntl.ioctl(sock, _IOCTL, struct.pack("16sP16x", interface.encode()[:15], ctypes.addressof(buffer)))
    return buffer.raw

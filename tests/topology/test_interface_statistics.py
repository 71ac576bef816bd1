"""The statistics of a driver are read by the calls of ethtool -S."""

from __future__ import annotations

import ctypes
import struct

from railwright.topology.sources import interface_statistics

TOLD = {b"rx_prio3_pause": 12, b"tx_discards_phy": 2**40}


def answer(_sock, number, request):
    """Fill in a request as the kernel does for eth0."""
    name, address = struct.unpack("16sP16x", request)
    if name.rstrip(b"\0") != b"eth0":
        raise OSError
    assert number == 0x8946
    command, count = struct.unpack("=I8xI", ctypes.string_at(address, 16))[0], len(TOLD)
    said = {
        0x37: (16, struct.pack("=I", count)),
        0x1B: (12, b"".join(one.ljust(32, b"\0") for one in TOLD)),
        0x1D: (8, struct.pack("=2Q", *TOLD.values())),
    }
    place, content = said[command]
    ctypes.memmove(address + place, content, len(content))


def test_names_and_values_belong_together_and_other_interfaces_have_none(monkeypatch):
    monkeypatch.setattr(interface_statistics.fcntl, "ioctl", answer)
    assert interface_statistics.read_statistics("eth0") == {"rx_prio3_pause": 12, "tx_discards_phy": 2**40}
    assert interface_statistics.read_statistics("eth9") == {}

"""The part of `net check` inside a pod's network namespace. Started by its path; uses the standard library only.

    python -I inside.py '[{"role": "devices", "interfaces": ["net1"]}, ...]'

Roles: `devices` reads /sys; `ways` asks the kernel for its routes to addresses; `ask` asks neighbours for their MAC
address by ARP and ND; `echo` sends ICMP echo requests that must not be fragmented, and counts answers by size; `notify`
sends datagrams marked as RoCE's congestion notifications; `hear` counts frames that hold a mark, until SIGTERM.
Standard output is a JSON array with an object for each role; the first line of `hear` is `ready`.
"""

from __future__ import annotations

import contextlib
import errno
import ipaddress
import json
import os
import re
import select
import signal
import socket
import struct
import sys
import time
from pathlib import Path
from typing import Any

_IP_MTU_DISCOVER, _IPV6_MTU_DISCOVER, _PMTUDISC_PROBE, _IPV6_DONTFRAG = 10, 23, 3, 62
_SO_RCVBUFFORCE = 33
_IPV6_TCLASS = 67
_ROCE_PORT = 4791
_ETH_P_ALL = 3
_PACKET_OUTGOING = 4
_SOL_PACKET, _PACKET_STATISTICS = 263, 6
_RTM_GETROUTE, _NLM_F_REQUEST, _NLMSG_ERROR, _RTA_DST, _RTA_OIF, _RTN_UNICAST = 26, 1, 2, 1, 4, 1  # linux/rtnetlink.h
_ETHER = struct.Struct("!6s6sH")
_ARP = struct.Struct("!HHBBH6s4s6s4s")
_ECHO = struct.Struct("!BBHHH")
_ICMP = {4: (socket.AF_INET, socket.IPPROTO_ICMP), 6: (socket.AF_INET6, socket.IPPROTO_ICMPV6)}
_ECHO_REQUEST, _ECHO_REPLIES = {4: 8, 6: 128}, (0, 129)
_HEADERS = {4: 20 + _ECHO.size, 6: 40 + _ECHO.size}
_PCI = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")
_PACE_S = 0.001
_QUIET_S = 0.2  # after this silence, all frames that were sent have arrived
_DEADLINE_S = 60.0  # the listener exits after this time if its parent disappears
_SNAP_BYTES = 65_600

Settings = dict[str, Any]


def main() -> None:
    """Run the roles of the first argument in order."""
    records = [_do(settings) for settings in json.loads(sys.argv[1])]
    sys.stdout.write(json.dumps(records) + "\n")


def _do(settings: Settings) -> Settings:
    roles = {"devices": _devices, "ways": _ways, "ask": _ask, "echo": _echo, "notify": _notify, "hear": _hear}
    try:
        return roles[settings["role"]](settings)
    except OSError as error:
        return {"error": error.strerror or "timed out", "errno": errno.errorcode.get(error.errno or 0, "")}


def _devices(settings: Settings) -> Settings:
    def name_of(link: Path) -> str:
        return link.resolve().name if link.exists() else ""

    found = {}
    for name in settings["interfaces"]:
        device = Path("/sys/class/net", name, "device")
        found[name] = {
            "pci": name_of(device) if _PCI.fullmatch(name_of(device)) else "",
            "driver": name_of(device / "driver"),
            "is_vf": (device / "physfn").exists(),
            "rdma": {rdma_device: _rdma_state(rdma_device) for rdma_device in _list_names(str(device / "infiniband"))},
            "gids": {one: _roce_gids(one) for one in _list_names(str(device / "infiniband")) if _is_roce(one)},
        }
    return {
        "interfaces": found,
        "rdma_shared": {"Y": True, "N": False}.get(_read_word("/sys/module/ib_core/parameters/netns_mode")),
        "verbs_files": [name for name in _list_names("/dev/infiniband") if name.startswith("uverbs")],
    }


def _rdma_state(device: str) -> str:
    return _read_word(f"/sys/class/infiniband/{device}/ports/1/state").rpartition(": ")[2]


def _is_roce(device: str) -> bool:
    return _read_word(f"/sys/class/infiniband/{device}/ports/1/link_layer") == "Ethernet"


def _roce_gids(device: str) -> list[str]:
    """Return the GIDs of RoCE v2 as addresses. An IPv4 address is in a GID as ::ffff:a.b.c.d."""
    port = f"/sys/class/infiniband/{device}/ports/1"
    found = []
    for index in _list_names(f"{port}/gid_attrs/types"):
        if _read_word(f"{port}/gid_attrs/types/{index}") == "RoCE v2":
            gid = ipaddress.IPv6Address(_read_word(f"{port}/gids/{index}"))
            found.append(str(gid.ipv4_mapped or gid))
    return found


def _list_names(folder: str) -> list[str]:
    try:
        return sorted(entry.name for entry in Path(folder).iterdir())[:256]
    except OSError:
        return []


def _read_word(path: str) -> str:
    try:
        with Path(path).open(encoding="utf-8", errors="replace") as file:
            return file.read(256).strip()
    except OSError:
        return ""


def _ways(settings: Settings) -> Settings:
    """Return {target: [interface, reason if there is none]} from the kernel, as `ip route get` does."""
    found: dict[str, list[str]] = {}
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0) as sock:
        for target in settings["targets"]:
            family = socket.AF_INET6 if ":" in target else socket.AF_INET
            address = socket.inet_pton(family, target)
            body = struct.pack("=BBBBBBBBI", family, len(address) * 8, 0, 0, 0, 0, 0, 0, 0)
            body += struct.pack("=HH", 4 + len(address), _RTA_DST) + address
            sock.send(struct.pack("=IHHII", 16 + len(body), _RTM_GETROUTE, _NLM_F_REQUEST, 1, 0) + body)
            found[target] = list(_parse_way(sock.recv(_SNAP_BYTES)))
    return {"ways": found}


def _parse_way(message: bytes) -> tuple[str, str]:
    (kind,) = struct.unpack_from("=H", message, 4)
    if kind == _NLMSG_ERROR:
        return "", os.strerror(-struct.unpack_from("=i", message, 16)[0])
    # Next comes struct rtmsg, whose eighth byte is the route's type, then attributes of at least four bytes.
    if message[16 + 7] != _RTN_UNICAST:
        return "", "it is not the address of another host"
    position = 16 + 12
    while position + 4 <= len(message):
        length, attribute = struct.unpack_from("=HH", message, position)
        if attribute == _RTA_OIF:
            return socket.if_indextoname(struct.unpack_from("=I", message, position + 4)[0]), ""
        position += max((length + 3) & ~3, 4)
    return "", "the kernel names no interface"


def _open_raw(interface: str) -> socket.socket:
    sock = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(_ETH_P_ALL))
    with contextlib.suppress(OSError):  # without the capability the kernel's default size is used
        sock.setsockopt(socket.SOL_SOCKET, _SO_RCVBUFFORCE, 1 << 23)
    sock.bind((interface, _ETH_P_ALL))
    return sock


def _ask(settings: Settings) -> Settings:
    """Return {target: MAC address or None} for `targets`, a list of [source, target]."""
    with _open_raw(settings["interface"]) as sock:
        mac = sock.getsockname()[4]
        missing = {target: _build_question(mac, source, target) for source, target in settings["targets"]}
        found: dict[str, str | None] = dict.fromkeys(missing)
        for _ in range(settings["tries"]):
            for frame in missing.values():
                sock.send(frame)
            end = time.monotonic() + settings["wait_s"]
            while missing and (left := end - time.monotonic()) > 0:
                if not select.select([sock], [], [], left)[0]:
                    break
                frame, sender = sock.recvfrom(_SNAP_BYTES)
                target, answer = _parse_answer(frame) if sender[2] != _PACKET_OUTGOING else ("", "")
                if target in missing:
                    found[target] = answer
                    del missing[target]
    return {"answers": found}


def _build_question(mac: bytes, source: str, target: str) -> bytes:
    """Build an ARP request, or a neighbour solicitation to the target's multicast group."""
    if ":" not in target:
        head = _ETHER.pack(b"\xff" * 6, mac, 0x0806)
        return head + _ARP.pack(1, 0x0800, 6, 4, 1, mac, socket.inet_aton(source), bytes(6), socket.inet_aton(target))
    wanted, sender = (socket.inet_pton(socket.AF_INET6, address) for address in (target, source))
    group = socket.inet_pton(socket.AF_INET6, "ff02::1:ff00:0")[:13] + wanted[13:]
    body = struct.pack("!BBHI", 135, 0, 0, 0) + wanted + b"\x01\x01" + mac
    body = _add_checksum(body, sender + group + struct.pack("!II", len(body), 58))
    head = _ETHER.pack(b"\x33\x33" + group[12:], mac, 0x86DD)
    return head + struct.pack("!IHBB", 6 << 28, len(body), 58, 255) + sender + group + body


def _parse_answer(frame: bytes) -> tuple[str, str]:
    """Parse an ARP reply or neighbour advertisement into (target, MAC address). Both are empty for other frames."""
    kind = frame[12:14]
    if kind == b"\x08\x06" and len(frame) >= 42 and frame[20:22] == b"\x00\x02":
        return socket.inet_ntoa(frame[28:32]), frame[22:28].hex(":")
    if kind == b"\x86\xdd" and len(frame) >= 86 and frame[20] == 58 and frame[54] == 136 and frame[78] == 2:
        return socket.inet_ntop(socket.AF_INET6, frame[62:78]), frame[80:86].hex(":")
    return "", ""


def _echo(settings: Settings) -> Settings:
    """Send `packets`, a list of [size, copies], and count the answers by size of the whole IP packet."""
    version = ipaddress.ip_address(settings["target"]).version
    mark = bytes.fromhex(settings["mark"])
    with _echo_socket(version) as sock:
        sock.bind((settings["source"], 0))
        sock.setblocking(False)
        wanted = [size for size, copies in settings["packets"] for _ in range(copies)]
        sent = [0] * len(wanted)
        answered: dict[int, int] = {}
        refused, error = 0, ""
        for number, size in enumerate(wanted):
            room = max(size - _HEADERS[version] - len(mark) - 4, 0)
            body = mark + struct.pack("!I", number) + bytes(room)
            sent[number] = time.monotonic_ns()
            try:
                sock.sendto(_build_echo(version, number, body), (settings["target"], 0))
            except OSError as failure:
                refused, error = refused + 1, failure.strerror or ""
            _collect(sock, mark, sent, answered, _PACE_S)
        end = time.monotonic() + settings["wait_s"]
        while len(answered) + refused < len(wanted) and (left := end - time.monotonic()) > 0:
            _collect(sock, mark, sent, answered, left)
    return {
        "answers": [[size, sum(wanted[number] == size for number in answered)] for size, _ in settings["packets"]],
        "refused": refused,
        "sent": len(wanted) - refused,
        "error": error,
        "round_trip_ns": min(answered.values(), default=None),
    }


def _notify(settings: Settings) -> Settings:
    """Send `copies` datagrams with a DSCP to RoCE's port for `targets`, a list of [source, target]."""
    for source, target in settings["targets"]:
        version = ipaddress.ip_address(target).version
        with socket.socket(_ICMP[version][0], socket.SOCK_DGRAM) as sock:
            option = (socket.IPPROTO_IP, socket.IP_TOS) if version == 4 else (socket.IPPROTO_IPV6, _IPV6_TCLASS)
            sock.setsockopt(*option, settings["dscp"] << 2)
            sock.bind((source, 0))
            for _ in range(settings["copies"]):
                sock.sendto(b"railwright", (target, _ROCE_PORT))
    return {"sent": settings["copies"] * len(settings["targets"])}


def _echo_socket(version: int) -> socket.socket:
    """Open a raw socket or, without permission, the datagram socket that net.ipv4.ping_group_range allows."""
    family, protocol = _ICMP[version]
    try:
        sock = socket.socket(family, socket.SOCK_RAW, protocol)
    except PermissionError:
        sock = socket.socket(family, socket.SOCK_DGRAM, protocol)
    if version == 6:
        sock.setsockopt(socket.IPPROTO_IPV6, _IPV6_MTU_DISCOVER, _PMTUDISC_PROBE)
        sock.setsockopt(socket.IPPROTO_IPV6, _IPV6_DONTFRAG, 1)
    else:
        sock.setsockopt(socket.IPPROTO_IP, _IP_MTU_DISCOVER, _PMTUDISC_PROBE)
    return sock


def _build_echo(version: int, number: int, body: bytes) -> bytes:
    message = _ECHO.pack(_ECHO_REQUEST[version], 0, 0, os.getpid() & 0xFFFF, number & 0xFFFF) + body
    return _add_checksum(message) if version == 4 else message  # the kernel fills in the checksum of ICMPv6


def _add_checksum(message: bytes, pseudo_header: bytes = b"") -> bytes:
    """Fill in the checksum of an ICMP message whose checksum field is zero (RFC 1071; RFC 4443, section 2.3)."""
    data = pseudo_header + message + bytes(len(message) % 2)
    total = sum(struct.unpack(f"!{len(data) // 2}H", data))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return message[:2] + struct.pack("!H", ~total & 0xFFFF) + message[4:]


def _collect(sock: socket.socket, mark: bytes, sent: list[int], answered: dict[int, int], wait_s: float) -> None:
    """Wait for an answer, then add all that have arrived to `answered`: request number to round trip in ns."""
    if not select.select([sock], [], [], wait_s)[0]:
        return
    with contextlib.suppress(BlockingIOError, ConnectionRefusedError):
        while True:
            data = sock.recv(_SNAP_BYTES)
            position = data.find(mark, 0, 128)
            if position < _ECHO.size or data[position - _ECHO.size] not in _ECHO_REPLIES:
                continue
            (number,) = struct.unpack_from("!I", data, position + len(mark))
            if number < len(sent):
                answered.setdefault(number, time.monotonic_ns() - sent[number])


def _hear(settings: Settings) -> Settings:
    """Count the frames with the mark, except those that this interface sends, until SIGTERM and a silence.

    Raises TimeoutError if nobody stops it, since later frames would not be counted.
    """
    stop: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, _frame: stop.append(number))
    mark, frames = bytes.fromhex(settings["mark"]), 0
    with _open_raw(settings["interface"]) as sock:
        sys.stdout.write("ready\n")
        sys.stdout.flush()
        deadline = time.monotonic() + _DEADLINE_S
        while not stop:
            if time.monotonic() > deadline:
                raise TimeoutError
            frames += _count_frame(sock, mark, _QUIET_S) or 0
        end = time.monotonic() + _QUIET_S
        while (left := end - time.monotonic()) > 0:
            if _count_frame(sock, mark, left):
                frames, end = frames + 1, time.monotonic() + _QUIET_S
        # On a busy machine this process may not have run meanwhile. A busy interface is never silent, hence the limit.
        enough_s = time.process_time() + _QUIET_S
        while time.process_time() < enough_s and (counted := _count_frame(sock, mark, 0)) is not None:
            frames += counted
        _, lost = struct.unpack("II", sock.getsockopt(_SOL_PACKET, _PACKET_STATISTICS, 8))
    return {"frames": frames, "lost": lost}


def _count_frame(sock: socket.socket, mark: bytes, wait_s: float) -> int | None:
    """Read a frame and return 1 if another interface sent it and it has the mark, else 0; None if there is none."""
    if not select.select([sock], [], [], wait_s)[0]:
        return None
    frame, sender = sock.recvfrom(_SNAP_BYTES)
    return int(sender[2] != _PACKET_OUTGOING and mark in frame)


if __name__ == "__main__":
    main()

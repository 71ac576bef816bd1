"""An end of a probe's flows, in a rank or alone in a namespace; run by path with the standard library only.

The clock is CLOCK_MONOTONIC, which all namespaces of a machine share, so that one-way delays can be measured. The
source port identifies a flow. Standard output has one JSON object per flow; a receiver first prints `ready`.

Example: python -I flow_end.py '{"role": "receive_udp", ...}'
"""

from __future__ import annotations

import contextlib
import errno
import json
import selectors
import signal
import socket
import struct
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

_STAMP = struct.Struct("!IQ")  # sequence number, when it was sent (ns)
_QUIET_S = 0.3  # a stopped receiver waits until nothing has arrived for this long
_DEADLINE_S = 120.0  # a receiver whose prober died exits by itself
_LEVEL = {socket.AF_INET: socket.IPPROTO_IP, socket.AF_INET6: socket.IPPROTO_IPV6}
# Socket options by family (linux/in.h, linux/in6.h).
_MTU_DISCOVER, _PMTUDISC_PROBE = {socket.AF_INET: 10, socket.AF_INET6: 23}, 3
_RECVERR = {socket.AF_INET: 11, socket.AF_INET6: 25}
_HOP_LIMIT = {socket.AF_INET: socket.IP_TTL, socket.AF_INET6: socket.IPV6_UNICAST_HOPS}
_MSG_ERRQUEUE = 0x2000
_SO_RCVBUFFORCE, _SO_MEMINFO = 33, 55  # asm-generic/socket.h
_MEMINFO = struct.Struct("@9I")  # enum sk_meminfo in linux/sock_diag.h; the last number counts dropped packets
_RECEIVE_BUFFER_BYTES = 1 << 25
_ERROR = struct.Struct("@IBBBBII")  # struct sock_extended_err: errno, origin, type, code, pad, info, data
_ORIGINS_OF_ICMP = {2, 3}  # SO_EE_ORIGIN_ICMP, SO_EE_ORIGIN_ICMP6
_TIME_EXCEEDED = {(socket.AF_INET, 11), (socket.AF_INET6, 3)}
_READ_BYTES = 1 << 18
# tcpi_rtt, tcpi_bytes_acked, tcpi_busy_time and tcpi_rwnd_limited in struct tcp_info (linux/tcp.h), times in us
_RTT_AT, _ACKED_AT, _BUSY_AT, _FULL_AT = 68, 120, 168, 176
STARVED = 0.1
"""The share of a stream's time above which an end that did not run changes its rate."""
_TRACE_WAIT_S = 0.15
_TRACE_TRIES = 5  # so that a lossy link is named as well
_SILENT_HOPS = 2
_REFUSED_PAUSES_S = (0.01, 0.1, 0.5)

Settings = dict[str, Any]
Record = dict[str, Any]


def main() -> None:
    """Run the role that the settings in the first argument name."""
    settings: Settings = json.loads(sys.argv[1])
    role = settings["role"]
    if role.startswith("receive"):
        receive = {"receive_udp": receive_udp, "receive_tcp": receive_tcp}[role]
        records = receive(settings, _stop_on_sigterm(), _report_ready)
    else:
        records = {"send_udp": send_udp, "send_tcp": send_tcp, "trace": trace}[role](settings)
    for record in records:
        sys.stdout.write(json.dumps(record) + "\n")


def _stop_on_sigterm() -> threading.Event:
    """Return an event that SIGTERM sets."""
    asked = threading.Event()
    signal.signal(signal.SIGTERM, lambda _number, _frame: asked.set())
    return asked


def _set_option(sock: socket.socket, option: dict[socket.AddressFamily, int], value: int) -> None:
    sock.setsockopt(_LEVEL[sock.family], option[sock.family], value)


def _report_ready() -> None:
    sys.stdout.write("ready\n")
    sys.stdout.flush()


def _family(settings: Settings) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in settings["destination"] else socket.AF_INET


def receive_udp(settings: Settings, stop: threading.Event, ready: Callable[[], None]) -> list[Record]:
    """Count packets by source port and size until `stop`.

    `unread` counts the packets of all flows that arrived and found the socket's buffer full, because this process did
    not run for too long. Nothing can be said of loss unless it is 0.
    """
    with socket.socket(_family(settings), socket.SOCK_DGRAM) as sock:
        _set_receive_buffer(sock)
        sock.bind((settings["destination"], settings["port"]))
        sock.settimeout(_QUIET_S)
        ready()
        delays: dict[tuple[str, int], dict[tuple[int, int], int]] = {}
        end = time.monotonic() + _DEADLINE_S
        while time.monotonic() < end:
            stopped = stop.is_set()
            try:
                data, peer = sock.recvfrom(65536)
            except TimeoutError:
                if stopped:
                    break  # only now: a call that a signal interrupts times out without looking at what came meanwhile
                continue
            now = time.monotonic_ns()
            if len(data) >= _STAMP.size:
                sequence, sent_ns = _STAMP.unpack_from(data)
                # Keyed by number: a packet that arrives twice counts once.
                delays.setdefault(peer[:2], {})[len(data), sequence] = now - sent_ns
        unread = _count_unread(sock)
    found = []
    for (address, port), by_number in delays.items():
        ordered = sorted(by_number.values())
        sizes = Counter(size for size, _ in by_number)
        record = {"source_address": address, "source_port": port, "received": len(ordered), "sizes": sizes}
        record["unread"] = unread
        found.append(record | {"delay_median_s": ordered[len(ordered) // 2] / 1e9, "delay_max_s": ordered[-1] / 1e9})
    return found


def _set_receive_buffer(sock: socket.socket) -> None:
    """Set a buffer that outlasts a busy machine; without CAP_NET_ADMIN, the kernel limits it to net.core.rmem_max."""
    try:
        sock.setsockopt(socket.SOL_SOCKET, _SO_RCVBUFFORCE, _RECEIVE_BUFFER_BYTES)
    except PermissionError:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _RECEIVE_BUFFER_BYTES)


def _count_unread(sock: socket.socket) -> int:
    """Return the number of packets that found the buffer full."""
    return int(_MEMINFO.unpack(sock.getsockopt(socket.SOL_SOCKET, _SO_MEMINFO, _MEMINFO.size))[-1])


def _udp_sockets(settings: Settings) -> list[socket.socket]:
    sockets = []
    for port in settings["source_ports"]:
        sock = socket.socket(_family(settings), socket.SOCK_DGRAM)
        _set_option(sock, _MTU_DISCOVER, _PMTUDISC_PROBE)
        sock.bind((settings["source"], port))
        # Without a route it stays unconnected, and every packet is refused.
        with contextlib.suppress(OSError):
            sock.connect((settings["destination"], settings["port"]))
        sockets.append(sock)
    return sockets


def send_udp(settings: Settings) -> list[Record]:
    """Send evenly spaced packets from each source port.

    A process that did not run for a while goes on from there: a burst of the packets that were due would overflow the
    queues of a path without a fault.
    """
    sockets = _udp_sockets(settings)
    padding = bytes(max(settings["size_bytes"] - _STAMP.size, 0))
    refused = [0] * len(sockets)
    gap_s = settings["interval_s"] / len(sockets)  # the flows take turns at even intervals
    due = time.monotonic()
    for sequence in range(settings["packets"]):
        for flow, sock in enumerate(sockets):
            now = time.monotonic()
            if now < due:
                time.sleep(due - now)
            due = max(due + gap_s, now)
            try:
                sock.send(_STAMP.pack(sequence, time.monotonic_ns()) + padding)
            except OSError as error:
                refused[flow] += error.errno != errno.ECONNREFUSED  # the error answers an earlier packet
    ports = [sock.getsockname()[1] for sock in sockets]
    for sock in sockets:
        sock.close()
    return [
        {"source_port": port, "sent": settings["packets"], "refused": refused[flow]} for flow, port in enumerate(ports)
    ]


def receive_tcp(settings: Settings, stop: threading.Event, ready: Callable[[], None]) -> list[Record]:
    """Measure bytes and rate from each source port until `stop`."""
    seen: dict[tuple[str, int], list[int]] = {}
    buffer = bytearray(_READ_BYTES)
    with socket.socket(_family(settings), socket.SOCK_STREAM) as listener, selectors.DefaultSelector() as selector:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((settings["destination"], settings["port"]))
        listener.listen(512)
        listener.setblocking(False)
        selector.register(listener, selectors.EVENT_READ)
        ready()
        waited_s = _run_delay_s()
        end = time.monotonic() + _DEADLINE_S
        while time.monotonic() < end:
            stopped = stop.is_set()
            events = selector.select(0 if stopped else _QUIET_S)
            if stopped and not events:
                break  # only now: on a busy machine this thread may not have run while the streams were sent
            for key, _ in events:
                if key.fileobj is listener:
                    with contextlib.suppress(BlockingIOError):
                        sock, peer = listener.accept()
                        sock.setblocking(False)
                        selector.register(sock, selectors.EVENT_READ, peer[:2])
                        seen[peer[:2]] = [0, time.monotonic_ns(), 0]
                    continue
                assert isinstance(key.fileobj, socket.socket)
                if not (length := _read(key.fileobj, buffer)):
                    selector.unregister(key.fileobj)
                    key.fileobj.close()
                    continue
                flow = seen[key.data]
                flow[0], flow[2] = flow[0] + length, time.monotonic_ns()
        for key in list(selector.get_map().values()):
            if isinstance(key.fileobj, socket.socket) and key.fileobj is not listener:
                key.fileobj.close()
    waited_s = _run_delay_s() - waited_s
    found = []
    for (address, port), (received, first_ns, last_ns) in seen.items():
        took_s = max((last_ns - first_ns) / 1e9, settings["duration_s"])
        record = {"source_address": address, "source_port": port, "received_bytes": received, "waited_s": waited_s}
        found.append(record | {"bandwidth_bytes_per_s": received / took_s})
    return found


def _run_delay_s() -> float:
    """Return how long this thread was ready to run and did not; 0 if the kernel does not tell."""
    try:
        return int(Path("/proc/thread-self/schedstat").read_text(encoding="ascii").split()[1]) / 1e9
    except (OSError, IndexError, ValueError):
        return 0.0


def _read(sock: socket.socket, buffer: bytearray) -> int:
    try:
        return sock.recv_into(buffer)
    except OSError:  # the sender resets its connections at the end of the time
        return 0


def send_tcp(settings: Settings) -> list[Record]:
    """Send from each source port at full rate; records the reason if there is no connection."""
    data = bytes(_READ_BYTES)
    connected, found = [], []
    for port in settings["source_ports"]:
        round_trips_s = []
        try:
            for _ in range(settings.get("connections_before", 0)):
                with _connect(settings, port) as sock:
                    round_trips_s.append(_round_trip_s(sock))
            sock = _connect(settings, port)
        except OSError as error:
            found.append({"source_port": port, "error": error.strerror or "timed out"})
            continue
        round_trips_s.append(_round_trip_s(sock))
        sock.setblocking(False)
        connected.append(sock)
        found.append({"source_port": port, "round_trip_s": min(round_trips_s)})
    began = time.monotonic()
    with selectors.DefaultSelector() as selector:
        for sock in connected:
            selector.register(sock, selectors.EVENT_WRITE)
        end = began + settings["duration_s"]
        while (left := end - time.monotonic()) > 0 and selector.get_map():
            for key, _ in selector.select(left):
                assert isinstance(key.fileobj, socket.socket)
                try:
                    key.fileobj.send(data)
                except BlockingIOError:
                    continue
                except OSError:
                    selector.unregister(key.fileobj)
    for sock, record in zip(connected, (record for record in found if "error" not in record), strict=True):
        record["stream"] = _describe_stream(sock, time.monotonic() - began)
        sock.close()
    return found


def _describe_stream(sock: socket.socket, lasted_s: float) -> Record:
    """Return how long the kernel had data to send and the receiver no room, by TCP_INFO, if that is worth telling."""
    info = sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _FULL_AT + 8)
    if len(info) < _FULL_AT + 8:
        return {}  # Linux before 4.10
    (acked,), (busy_us, full_us) = struct.unpack_from("=Q", info, _ACKED_AT), struct.unpack_from("=QQ", info, _BUSY_AT)
    if busy_us - full_us > (1 - STARVED) * lasted_s * 1e6:
        return {}
    return {"acked_bytes": acked, "busy_s": busy_us / 1e6, "full_s": full_us / 1e6, "lasted_s": lasted_s}


def _connect(settings: Settings, port: int) -> socket.socket:
    """Connect from a port. Repeats a refused connection, because a SYN that overtakes the last packets of the port's
    connection before it makes Linux reset both (tcp_check_req); without a listener every attempt is refused. On a busy
    machine those packets may wait for a CPU, so there is a pause before each repetition.
    """
    for pause_s in _REFUSED_PAUSES_S:
        with contextlib.suppress(ConnectionRefusedError):
            return _try_connect(settings, port)
        time.sleep(pause_s)
    return _try_connect(settings, port)


def _try_connect(settings: Settings, port: int) -> socket.socket:
    sock = socket.socket(_family(settings), socket.SOCK_STREAM)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    # Reset at close: queued data must neither delay the next probe nor leave TIME_WAIT on its ports.
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    sock.settimeout(settings["connect_timeout_s"])
    try:
        sock.bind((settings["source"], port))
        sock.connect((settings["destination"], settings["port"]))
    except OSError:
        sock.close()
        raise
    return sock


def _round_trip_s(sock: socket.socket) -> float:
    """Return the round trip of a new connection: the kernels' answer to its first packet, without a process."""
    info = sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _RTT_AT + 4)
    return float(struct.unpack_from("=I", info, _RTT_AT)[0]) / 1e6


def trace(settings: Settings) -> list[Record]:
    """Trace all flows at once, hop by hop; a flow ends when its destination answers, or after two silent hops."""
    hops: dict[socket.socket, list[str | None]] = {sock: [] for sock in _udp_sockets(settings)}
    going = set(hops)
    for sock in hops:
        _set_option(sock, _RECVERR, 1)
    for ttl in range(1, settings["max_hops"] + 1):
        answers = _ask_hop(going, ttl)
        for sock in list(going):
            address, last = answers.get(sock, (None, False))
            hops[sock].append(address)
            if last or hops[sock][-_SILENT_HOPS:] == [None] * _SILENT_HOPS:
                going.discard(sock)
    found = [{"source_port": sock.getsockname()[1], "hops": addresses} for sock, addresses in hops.items()]
    for sock in hops:
        sock.close()
    return found


def _ask_hop(sockets: set[socket.socket], ttl: int) -> dict[socket.socket, tuple[str, bool]]:
    """Return the hosts that answer a packet with this hop limit and whether the path ends there; omits silent ones."""
    mark = struct.pack("!B", ttl)
    found: dict[socket.socket, tuple[str, bool]] = {}
    for _ in range(_TRACE_TRIES):
        silent = sockets - found.keys()
        for sock in silent:
            _set_option(sock, _HOP_LIMIT, ttl)
            for _ in range(2):  # a pending error of an earlier packet is reported instead of sending
                with contextlib.suppress(OSError):
                    sock.send(mark)
                    break
        end = time.monotonic() + _TRACE_WAIT_S
        while silent and time.monotonic() < end:
            for sock in list(silent):
                if (answer := _read_answer(sock, mark)) is not None:
                    found[sock] = answer
                    silent.discard(sock)
            time.sleep(0.001)
        if len(found) == len(sockets):
            break
    return found


def _read_answer(sock: socket.socket, mark: bytes) -> tuple[str, bool] | None:
    expected = _LEVEL[sock.family], _RECVERR[sock.family]
    try:
        data, extra, _, _ = sock.recvmsg(64, 512, _MSG_ERRQUEUE | socket.MSG_DONTWAIT)
    except OSError:
        return None
    for level, kind, body in extra:
        if (level, kind) != expected or len(body) < _ERROR.size + 8 or data[:1] != mark:
            continue
        _, origin, icmp_type, _, _, _, _ = _ERROR.unpack_from(body)
        if origin in _ORIGINS_OF_ICMP:
            return _offender(body[_ERROR.size :]), (sock.family, icmp_type) not in _TIME_EXCEEDED
    return None


def _offender(body: bytes) -> str:
    """Return the address in a struct sockaddr_in or sockaddr_in6."""
    if struct.unpack_from("@H", body)[0] == socket.AF_INET6:
        return socket.inet_ntop(socket.AF_INET6, body[8:24])
    return socket.inet_ntop(socket.AF_INET, body[4:8])


if __name__ == "__main__":
    main()

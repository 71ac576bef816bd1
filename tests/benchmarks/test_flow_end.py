"""The ends of a probe's flows."""

from __future__ import annotations

import json
import signal
import socket
import struct
import subprocess
import sys
import threading
import time

import pytest
from tests.conftest import running

from railwright.benchmarks.sockets import flow_end

SETTINGS = {"source": "127.0.0.1", "destination": "127.0.0.1", "connect_timeout_s": 3.0, "duration_s": 0.01}


def test_a_refused_connection_is_repeated_and_told_if_nobody_listens(monkeypatch):
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        settings = SETTINGS | {"port": listener.getsockname()[1], "source_ports": [0]}
        assert flow_end.send_tcp(settings) == [{"source_port": 0, "error": "Connection refused"}]
        connect, refused = flow_end._try_connect, [ConnectionRefusedError(111, "Connection refused")] * 2

        def connect_later(*words):
            if refused:
                raise refused.pop()
            return connect(*words)

        monkeypatch.setattr(flow_end, "_try_connect", connect_later)
        listener.listen()
        (found,) = flow_end.send_tcp(settings)
    assert "error" not in found


def test_a_receiver_that_did_not_run_reads_what_came_before_it_was_stopped():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    stop, sent = threading.Event(), []

    def send_before_anything_is_read() -> None:
        sent.append(socket.create_connection(("127.0.0.1", port)))
        sent[0].sendall(bytes(1000))
        sent[0].close()
        stop.set()

    (found,) = flow_end.receive_tcp(SETTINGS | {"port": port}, stop, send_before_anything_is_read)
    assert found["received_bytes"] == 1000


def test_packets_that_a_full_buffer_drops_are_counted_apart(monkeypatch):
    def set_small(sock: socket.socket) -> None:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)

    with socket.socket(type=socket.SOCK_DGRAM) as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    settings = SETTINGS | {"port": port, "source_ports": [0], "packets": 50, "size_bytes": 1000, "interval_s": 0.0}
    stop = threading.Event()

    def send_before_anything_is_read() -> None:
        flow_end.send_udp(settings)
        stop.set()

    (found,) = flow_end.receive_udp(settings, stop, send_before_anything_is_read)
    assert (found["received"], found["unread"]) == (50, 0)
    stop.clear()
    monkeypatch.setattr(flow_end, "_set_receive_buffer", set_small)
    (found,) = flow_end.receive_udp(settings, stop, send_before_anything_is_read)
    assert 0 < found["received"] < 50
    assert found["received"] + found["unread"] == 50


def argv_of(settings: dict[str, object]) -> list[str]:
    return [sys.executable, "-I", flow_end.__file__, json.dumps(settings)]


@pytest.mark.machine
def test_a_sender_that_did_not_run_sends_no_burst_afterwards():
    packets, interval_s = 60, 0.005
    with socket.socket(type=socket.SOCK_DGRAM) as sock:
        flow_end._set_receive_buffer(sock)
        sock.bind(("127.0.0.1", 0))
        train = {"packets": packets, "size_bytes": 100, "interval_s": interval_s, "source_ports": [0]}
        with running(argv_of(SETTINGS | train | {"role": "send_udp", "port": sock.getsockname()[1]})) as sender:
            read = [sock.recv(100)]
            sender.send_signal(signal.SIGSTOP)
            time.sleep(packets * interval_s)
            sender.send_signal(signal.SIGCONT)
            assert sender.wait(60) == 0
        read += [sock.recv(100) for _ in range(packets - 1)]
    sent_s = [flow_end._STAMP.unpack_from(packet)[1] / 1e9 for packet in read]
    # Each packet that is late brings one more at once.
    assert all(later - sooner >= 3 * interval_s for sooner, later in zip(sent_s, sent_s[10:], strict=False))


@pytest.mark.machine
def test_a_receiver_that_did_not_run_counts_what_came_before_it_was_stopped():
    with socket.socket(type=socket.SOCK_DGRAM) as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    argv = argv_of(SETTINGS | {"role": "receive_udp", "port": port})
    with running(argv, stdout=subprocess.PIPE) as receiver:
        assert receiver.stdout is not None
        assert receiver.stdout.readline() == b"ready\n"
        receiver.send_signal(signal.SIGSTOP)
        train = {"port": port, "packets": 20, "size_bytes": 1000, "interval_s": 0.0, "source_ports": [0]}
        flow_end.send_udp(SETTINGS | train)
        time.sleep(1.2 * flow_end._QUIET_S)  # the time of its call is over, which it has not seen
        receiver.send_signal(signal.SIGTERM)
        receiver.send_signal(signal.SIGCONT)
        (found,) = map(json.loads, receiver.stdout)
    assert (found["received"], found["unread"]) == (20, 0)


@pytest.mark.parametrize(("busy_s", "full_s", "told"), [(2.0, 0.0, False), (2.0, 1.0, True), (1.0, 0.0, True)])
def test_a_stream_that_was_not_sent_and_read_all_the_time_tells_how_long_it_was(busy_s, full_s, told):
    class Stream:
        def getsockopt(self, _level: int, _option: int, length: int) -> bytes:
            info = bytearray(256)
            struct.pack_into("=Q", info, 120, 100)
            struct.pack_into("=QQ", info, 168, int(busy_s * 1e6), int(full_s * 1e6))
            return bytes(info[:length])

    found = flow_end._describe_stream(Stream(), 2.0)
    assert found == ({"acked_bytes": 100, "busy_s": busy_s, "full_s": full_s, "lasted_s": 2.0} if told else {})


def test_a_sender_that_stops_in_between_is_told_by_the_kernel():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        with socket.create_connection(listener.getsockname()) as sender, listener.accept()[0] as receiver:
            sender.sendall(bytes(1000))
            assert len(receiver.recv(1000, socket.MSG_WAITALL)) == 1000
            found = flow_end._describe_stream(sender, 1000.0)
    assert found["busy_s"] < 100
    assert (found["acked_bytes"] >= 0, found["full_s"]) == (True, 0.0)

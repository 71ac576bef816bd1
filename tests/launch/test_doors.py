"""Access to a launch's socket: real connections, some of them by strangers."""

from __future__ import annotations

import os
import socket
import stat
import threading
from pathlib import Path

import msgspec
import pytest

from railwright.errors import CannotJudge
from railwright.launch.doors import connect, open_local_endpoint, open_network_endpoint
from railwright.launch.stream import Bye, Hello, Listener, Lost, Sender, Step

JOB = b'{"some": "job"}'


def heard(listener: Listener, least: int) -> list:
    found: list = []
    for _ in range(50):
        found += listener.wait(0.1)
        if len(found) >= least:
            break
    return found


def open_to_network() -> Listener:
    return Listener(open_network_endpoint(("127.0.0.1", "::1"), JOB))


def port_of(listener: Listener) -> int:
    return int(listener.address.split(":")[1])


def test_a_rank_with_the_token_gets_the_job_and_is_heard() -> None:
    with open_to_network() as listener:
        found: list[Sender] = []
        rank = threading.Thread(target=lambda: found.append(Sender(listener.address)))
        rank.start()
        while rank.is_alive():
            assert list(listener.wait(0.05)) == []
        (sender,) = found
        assert msgspec.json.decode(sender.job) == {"some": "job"}
        sender.send(Hello(3, "host9", 77))
        sender.send(Step("works"))
        assert heard(listener, 2) == [(3, Hello(3, "host9", 77)), (3, Step("works"))]
        sender._socket.close()
        assert heard(listener, 1) == [(3, Lost(3))]


@pytest.mark.parametrize("said", [b"x" * 48 + b"\n", b"x" * 5000, b'{"type":"hello"}\n{}\n', b"\n", b"\xff\x00\n"])
def test_nothing_of_a_stranger_is_read_and_he_is_sent_away(said: bytes) -> None:
    with open_to_network() as listener, socket.create_connection(("127.0.0.1", port_of(listener))) as stranger:
        stranger.sendall(said)
        assert [message for _ in range(5) for message in listener.wait(0.05)] == []
        stranger.settimeout(5)
        try:
            answer = stranger.recv(1000)
        except ConnectionResetError:
            answer = b""
        assert answer == b""


def test_a_token_is_not_a_rank_of_another_launch() -> None:
    with open_to_network() as one, open_to_network() as other:
        wrong = f"tcp:{port_of(one)}:{other.address.split(':')[2]}:127.0.0.1"
        said: list[str] = []

        def try_it() -> None:
            try:
                Sender(wrong)
            except CannotJudge as error:
                said.append(error.message)

        rank = threading.Thread(target=try_it)
        rank.start()
        while rank.is_alive():
            assert list(one.wait(0.05)) == []
        assert "rejected the token of this launch" in said[0]


def test_a_rank_says_that_nobody_answers_and_tries_every_address() -> None:
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))  # bound, but not listening
        port = silent.getsockname()[1]
        with pytest.raises(CannotJudge, match=rf"cannot reach the command on port {port}: 127.0.0.1: .*; ::1: "):
            connect(f"tcp:{port}:token:127.0.0.1,::1")


def test_a_rank_that_came_and_went_is_heard_in_one_wait() -> None:
    with Listener(open_local_endpoint()) as listener:
        for rank in range(3):
            sender = Sender(listener.address)
            sender.send(Hello(rank, "host0", 5))
            sender._socket.close()
        assert [number for number, message in listener.wait(0.0) if isinstance(message, Hello)] == [0]
        assert {number for number, _ in heard(listener, 5)} == {0, 1, 2}


def test_a_file_is_for_our_own_user_and_tells_who_comes(tmp_path: Path) -> None:
    path = tmp_path / "stream"
    with Listener(open_local_endpoint(path)) as listener:
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        sender = Sender(listener.address)
        assert sender.job is None
        sender.send(Hello(0, "host0", 5))  # its process id in its own namespace
        sender.send(Bye())
        assert heard(listener, 2) == [(0, Hello(0, "host0", os.getpid())), (0, Bye())]
        sender._socket.close()

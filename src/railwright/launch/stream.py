"""The stream from ranks to the parent: one JSON line per message, over a socket of its own for each rank.

Standard output is not used, because launchers cut and mix the lines of several ranks.
The end of a rank's socket without `Bye` is how its death is noticed, at once and whoever killed it.

What the socket is and who may come is for `doors`.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import shutil
import signal
import socket
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from railwright.errors import CannotJudge, RailwrightError
from railwright.launch.doors import Endpoint, connect, open_local_endpoint
from railwright.results.records import Result

_MAX_LINE_BYTES = 64 * 2**20
_MOST_TOKEN_BYTES = 256
_PROVE_WITHIN_S = 10.0
_MOST_UNPROVEN = 1024
_DAEMON_ENDS_S = 2.0
_GO = b"\n"
_SAY_WITHIN_S = 0.3
"""Launchers kill what has not ended a second after they asked."""


class Hello(msgspec.Struct, frozen=True, tag="hello"):
    """A rank has started."""

    rank: int
    host: str
    pid: int


class Step(msgspec.Struct, frozen=True, tag="step"):
    """What a rank is about to do."""

    text: str


class Emitted(msgspec.Struct, frozen=True, tag="emitted"):
    """A measurement."""

    result: Result


class Failure(msgspec.Struct, frozen=True, tag="failure"):
    """The rank cannot go on; it ends by itself."""

    message: str


class Meet(msgspec.Struct, frozen=True, tag="meet"):
    """The rank waits until all ranks do."""


class Asked(msgspec.Struct, frozen=True, tag="asked"):
    """The rank was asked to end, and does: it is not the one that ended first."""


class Bye(msgspec.Struct, frozen=True, tag="bye"):
    """The rank has done all it had to do."""


Message = Hello | Step | Emitted | Failure | Meet | Asked | Bye

_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(Message)


class Sender:
    """A rank's side of the stream. Raises CannotJudge if the address does not answer."""

    def __init__(self, address: str) -> None:
        self._socket, self.job = connect(address)
        """The job as JSON if it comes over the stream. None if it is in the scratch folder."""
        self._sending = threading.Lock()
        self._released: threading.Semaphore | None = None
        """Where a thread listens for the parent's words; None: whoever waits does."""

    def send(self, message: Message) -> None:
        """Send one message; blocks until the kernel has taken it."""
        with self._sending:
            self._socket.sendall(_encoder.encode(message) + b"\n")

    def _say_asked(self) -> None:
        """Unless another thread is in the middle of a message that nobody takes."""
        if self._sending.acquire(timeout=_SAY_WITHIN_S):
            with contextlib.suppress(OSError):
                self._socket.settimeout(_SAY_WITHIN_S)
                self._socket.sendall(_encoder.encode(Asked()) + b"\n")

    def meet(self) -> None:
        """Wait, asleep, until all ranks of the launch wait here. Raises CannotJudge if the parent is gone."""
        self.send(Meet())
        if self._released is not None:
            self._released.acquire()
        elif not self._socket.recv(1):
            raise CannotJudge("the command has ended")

    def end_with_parent(self, scratch: Path) -> None:
        """End this process and its folder when the other end is gone or SIGTERM comes.

        On another host no death signal of the parent's arrives, and a launcher's SIGTERM would leave the folder behind.
        When the other end is gone so is the launch, and the launcher's daemon that started us is ended too: of a host
        that is cut off it would wait for minutes. The two threads sleep in one system call each until then, and so
        take nothing from what is timed.
        """
        daemon = _launcher_daemon()
        released = self._released = threading.Semaphore(0)

        def until_silent() -> None:
            with contextlib.suppress(OSError):
                while self._socket.recv(1):
                    released.release()
            shutil.rmtree(scratch, ignore_errors=True)
            for number in (signal.SIGTERM, signal.SIGKILL):
                if os.getppid() == daemon:
                    os.kill(daemon, number)
                    time.sleep(_DAEMON_ENDS_S)  # its end is ours: see `process.die_with_parent`
            os._exit(1)

        def until_asked() -> None:
            signal.sigwait({signal.SIGTERM})
            self._say_asked()
            shutil.rmtree(scratch, ignore_errors=True)
            os._exit(1)

        # Threads that come later inherit it, so that the signal finds the one that waits for it.
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
        for wait in (until_silent, until_asked):
            threading.Thread(target=wait, daemon=True).start()


def _launcher_daemon() -> int | None:
    """The process that started us, if it may be ended with the launch: mpirun's daemon, but not Slurm's."""
    daemon = os.getppid()
    with contextlib.suppress(OSError):
        if Path(f"/proc/{daemon}/comm").read_text("utf-8", "replace").startswith("slurmstepd"):
            return None
    return daemon


class Lost(msgspec.Struct, frozen=True):
    """A rank's socket closed without `Bye` (rank None: it had not said hello)."""

    rank: int | None


@dataclass
class _Peer:
    """A connection, and what is known of who is at its other end."""

    process: int
    """As we number it; 0 on another host."""
    proves_until: float | None
    """When its token has to be here; None once it was, or where none is asked for."""
    buffer: bytearray = field(default_factory=bytearray)
    rank: int | None = None
    has_ended: bool = False


class Listener:
    """The parent's side of the stream: yields (rank, message) and `Lost` as they arrive, and closes the door."""

    def __init__(self, door: Endpoint | None = None) -> None:
        self._door = door or open_local_endpoint()
        self.address = self._door.address
        self.is_here = not self._door.token
        """Whether the ranks run on this machine."""
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._door.listening, selectors.EVENT_READ)
        self._peers: dict[socket.socket, _Peer] = {}

    def __enter__(self) -> Listener:
        return self

    def __exit__(self, *_: object) -> None:
        for connection in self._peers:
            connection.close()
        self._selector.close()
        self._door.listening.close()

    def release(self) -> None:
        """Let all ranks go on that wait for each other."""
        for connection, peer in self._peers.items():
            if peer.rank is not None and not peer.has_ended:
                with contextlib.suppress(OSError):  # one that is gone is noticed where it is read
                    connection.sendall(_GO)

    def wait(self, timeout_s: float) -> Iterator[tuple[int | None, Message | Lost]]:
        """The messages that arrive within `timeout_s`, if any."""
        for key, _ in self._selector.select(timeout_s):
            if key.fileobj is self._door.listening:
                self._accept()
            elif isinstance(key.fileobj, socket.socket) and key.fileobj in self._peers:
                yield from self._receive(key.fileobj, self._peers[key.fileobj])
        now = time.monotonic()
        for connection, peer in list(self._peers.items()):
            if peer.proves_until is not None and peer.proves_until < now:
                self._drop(connection)

    def _accept(self) -> None:
        connection, _ = self._door.listening.accept()
        process = self._door.admit(connection)
        unproven = sum(peer.proves_until is not None for peer in self._peers.values())
        if process is None or unproven >= _MOST_UNPROVEN:
            connection.close()
            return
        self._peers[connection] = _Peer(process, time.monotonic() + _PROVE_WITHIN_S if self._door.token else None)
        self._selector.register(connection, selectors.EVENT_READ)

    def _drop(self, connection: socket.socket) -> None:
        self._selector.unregister(connection)
        del self._peers[connection]
        connection.close()

    def _receive(self, connection: socket.socket, peer: _Peer) -> Iterator[tuple[int | None, Message | Lost]]:
        unproven = peer.proves_until is not None
        try:
            data = connection.recv(_MOST_TOKEN_BYTES if unproven else 1 << 20)
        except OSError:
            data = b""
        if not data:
            self._drop(connection)
            if not peer.has_ended and not unproven:
                yield peer.rank, Lost(peer.rank)
            return
        peer.buffer += data
        if unproven:
            self._prove(connection, peer)
            return
        if len(peer.buffer) > _MAX_LINE_BYTES:
            raise RailwrightError(f"a rank sent a line of more than {_MAX_LINE_BYTES} bytes")
        *lines, peer.buffer = peer.buffer.split(b"\n")
        for line in lines:
            yield self._read(peer, line)

    def _prove(self, connection: socket.socket, peer: _Peer) -> None:
        """Check the first line, which must be the token. Nothing of an unknown sender is decoded."""
        line, end, rest = bytes(peer.buffer).partition(b"\n")
        if not end and len(peer.buffer) < _MOST_TOKEN_BYTES:
            return
        if not end or rest or not self._door.greet(connection, line):
            self._drop(connection)
            return
        peer.proves_until = None
        peer.buffer.clear()

    @staticmethod
    def _read(peer: _Peer, line: bytearray) -> tuple[int | None, Message | Lost]:
        message = _decoder.decode(line)
        if isinstance(message, Hello):
            peer.rank = message.rank
            # The number that we know the process by: in a namespace of its own it knows another.
            message = Hello(message.rank, message.host, peer.process or message.pid)
        peer.has_ended = peer.has_ended or isinstance(message, Bye)
        return peer.rank, message

"""The stream from ranks to the parent: one JSON line per message, over a separate socket for each rank.

Standard output is not used, because launchers split and interleave the lines of several ranks.
A socket that closes without `Bye` reveals the death of its rank at once, whatever the cause.

`doors` opens the socket and decides who may connect.
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
_MAX_TOKEN_BYTES = 256
_PROVE_WITHIN_S = 10.0
_MAX_UNPROVEN = 1024
_DAEMON_ENDS_S = 2.0
_FOLLOW_UP_S = 1.0
"""The time limit for following up connections that send no message, so that a flood of them cannot stall the parent."""
_GO = b"\n"
_SAY_WITHIN_S = 0.3
"""The time limit for sending `Asked`: launchers kill ranks that still run one second after SIGTERM."""


class Hello(msgspec.Struct, frozen=True, tag="hello"):
    """A rank has started."""

    rank: int
    host: str
    pid: int


class Step(msgspec.Struct, frozen=True, tag="step"):
    """The next step of a rank."""

    text: str


class Emitted(msgspec.Struct, frozen=True, tag="emitted"):
    """A measurement."""

    result: Result


class Failure(msgspec.Struct, frozen=True, tag="failure"):
    """The rank failed and will exit."""

    message: str


class Meet(msgspec.Struct, frozen=True, tag="meet"):
    """The rank waits for all others."""


class Asked(msgspec.Struct, frozen=True, tag="asked"):
    """The rank received SIGTERM and will exit, so it is not the one that ended first."""


class Bye(msgspec.Struct, frozen=True, tag="bye"):
    """The rank has finished its job."""


Message = Hello | Step | Emitted | Failure | Meet | Asked | Bye

_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(Message)


class Sender:
    """The rank's side of the stream. Raises CannotJudge if the address does not answer."""

    def __init__(self, address: str) -> None:
        self._socket, self.job = connect(address)
        """The job as JSON if the parent sends it over the stream. None if it is in the scratch folder."""
        self._sending = threading.Lock()
        self._released: threading.Semaphore | None = None
        """Released by the thread that reads from the parent. None if the waiting thread reads itself."""

    def send(self, message: Message) -> None:
        """Send one message. Blocks until the kernel has accepted it."""
        with self._sending:
            self._socket.sendall(_encoder.encode(message) + b"\n")

    def _say_asked(self) -> None:
        """Send `Asked`, unless another thread is blocked in a message that the parent does not read."""
        if self._sending.acquire(timeout=_SAY_WITHIN_S):
            with contextlib.suppress(OSError):
                self._socket.settimeout(_SAY_WITHIN_S)
                self._socket.sendall(_encoder.encode(Asked()) + b"\n")

    def meet(self) -> None:
        """Sleep until all ranks of the launch have called this. Raises CannotJudge if the parent is gone."""
        self.send(Meet())
        if self._released is not None:
            self._released.acquire()
        elif not self._socket.recv(1):
            raise CannotJudge("the parent has exited")

    def end_with_parent(self, scratch: Path) -> None:
        """Make this process exit and remove its folder when the parent is gone or SIGTERM arrives.

        On another host the parent's death causes no signal, and a launcher's SIGTERM would leave the folder behind.
        When the parent is gone, so is the launch, and the launcher's daemon that started us is ended too: on a host
        that is cut off it would wait for minutes. The two threads sleep in one system call each, so they do not
        disturb timings.
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
                    time.sleep(_DAEMON_ENDS_S)  # we die with it: see `process.die_with_parent`
            os._exit(1)

        def until_asked() -> None:
            signal.sigwait({signal.SIGTERM})
            self._say_asked()
            shutil.rmtree(scratch, ignore_errors=True)
            os._exit(1)

        # Later threads inherit the mask, so that only the thread in sigwait receives the signal.
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
        for wait in (until_silent, until_asked):
            threading.Thread(target=wait, daemon=True).start()


def _launcher_daemon() -> int | None:
    """Return our parent process if it may be ended with the launch: mpirun's daemon, but not Slurm's."""
    daemon = os.getppid()
    with contextlib.suppress(OSError):
        if Path(f"/proc/{daemon}/comm").read_text("utf-8", "replace").startswith("slurmstepd"):
            return None
    return daemon


class Lost(msgspec.Struct, frozen=True):
    """A rank's socket closed without `Bye`. `rank` is None if it closed before `Hello`."""

    rank: int | None


@dataclass
class _Peer:
    """A connection and the state of its peer."""

    process: int
    """The peer's process id in our namespace. 0 on another host."""
    proves_until: float | None
    """The deadline for the token. None if the token has arrived or is not required."""
    buffer: bytearray = field(default_factory=bytearray)
    rank: int | None = None
    has_ended: bool = False


class Listener:
    """The parent's side of the stream. It yields (rank, message) and `Lost` as they arrive, and owns the socket."""

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
        """Release all ranks that wait in `meet`."""
        for connection, peer in self._peers.items():
            if peer.rank is not None and not peer.has_ended:
                with contextlib.suppress(OSError):  # the loss of a rank is detected when its socket is read
                    connection.sendall(_GO)

    def wait(self, timeout_s: float) -> Iterator[tuple[int | None, Message | Lost]]:
        """Wait at most `timeout_s` for messages, and yield those that have arrived, each with the rank that sent it.

        Follows up a new connection or a part of a message, so that nothing yielded means that nothing has arrived.
        A rank is None if its connection was lost before `Hello`.
        """
        any_message = False
        until = time.monotonic() + max(timeout_s, _FOLLOW_UP_S)
        while not any_message and time.monotonic() <= until and (ready := self._selector.select(timeout_s)):
            timeout_s = 0.0
            for key, _ in ready:
                if key.fileobj is self._door.listening:
                    self._accept()
                elif isinstance(key.fileobj, socket.socket) and key.fileobj in self._peers:
                    for received in self._receive(key.fileobj, self._peers[key.fileobj]):
                        any_message = True
                        yield received
        now = time.monotonic()
        for connection, peer in list(self._peers.items()):
            if peer.proves_until is not None and peer.proves_until < now:
                self._drop(connection)

    def _accept(self) -> None:
        connection, _ = self._door.listening.accept()
        process = self._door.admit(connection)
        unproven = sum(peer.proves_until is not None for peer in self._peers.values())
        if process is None or unproven >= _MAX_UNPROVEN:
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
            data = connection.recv(_MAX_TOKEN_BYTES if unproven else 1 << 20)
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
            raise RailwrightError(f"a rank's message must be at most {_MAX_LINE_BYTES} bytes, got a longer line")
        *lines, peer.buffer = peer.buffer.split(b"\n")
        for line in lines:
            yield self._read(peer, line)

    def _prove(self, connection: socket.socket, peer: _Peer) -> None:
        """Check the first line, which must be the token. No message is decoded before that."""
        line, end, rest = bytes(peer.buffer).partition(b"\n")
        if not end and len(peer.buffer) < _MAX_TOKEN_BYTES:
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
            # Use the process id in our namespace: the rank may be in another one.
            message = Hello(message.rank, message.host, peer.process or message.pid)
        peer.has_ended = peer.has_ended or isinstance(message, Bye)
        return peer.rank, message

"""The stream from ranks to the parent: one JSON line per message, over a socket of its own for each rank.

Standard output is not used, because launchers cut and mix the lines of several ranks.
The end of a rank's socket without `Bye` is how its death is noticed, at once and whoever killed it.

The socket lives in Linux's abstract namespace, so that no file is left behind whatever happens; a peer is accepted
only if it runs under our own user id (SO_PEERCRED).
"""

from __future__ import annotations

import os
import secrets
import selectors
import socket
import struct
from collections.abc import Iterator
from types import TracebackType

import msgspec

from railwright.errors import RailwrightError
from railwright.results.model import Result

_MAX_LINE_BYTES = 64 * 2**20
_UCRED = struct.Struct("iII")


class Hello(msgspec.Struct, frozen=True, tag="hello"):
    """A rank is there."""

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


class Bye(msgspec.Struct, frozen=True, tag="bye"):
    """The rank has done all it had to do."""


Message = Hello | Step | Emitted | Failure | Bye

_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(Message)


class Sender:
    """A rank's end."""

    def __init__(self, address: str) -> None:
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._socket.connect("\0" + address)

    def send(self, message: Message) -> None:
        """Send one message; blocks until the kernel has taken it."""
        self._socket.sendall(_encoder.encode(message) + b"\n")


class Lost(msgspec.Struct, frozen=True):
    """A rank's socket closed without `Bye` (rank None: it had not said hello)."""

    rank: int | None


class Listener:
    """The parent's end: yields (rank, message) and `Lost` as they come."""

    def __init__(self) -> None:
        self.address = f"railwright-{os.getpid()}-{secrets.token_hex(8)}"
        self._listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._listening.bind("\0" + self.address)
        self._listening.listen(512)
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._listening, selectors.EVENT_READ)
        self._pending: dict[socket.socket, bytearray] = {}
        self._rank: dict[socket.socket, int] = {}
        self._ended: set[socket.socket] = set()

    def __enter__(self) -> Listener:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        for connection in list(self._pending):
            connection.close()
        self._selector.close()
        self._listening.close()

    def wait(self, timeout_s: float) -> Iterator[tuple[int | None, Message | Lost]]:
        """What arrived within `timeout_s`; may be nothing."""
        for key, _ in self._selector.select(timeout_s):
            if key.fileobj is self._listening:
                self._accept()
            elif isinstance(key.fileobj, socket.socket):
                yield from self._receive(key.fileobj)

    def _accept(self) -> None:
        connection, _ = self._listening.accept()
        credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _UCRED.size)
        if _UCRED.unpack(credentials)[1] != os.getuid():
            connection.close()
            return
        self._pending[connection] = bytearray()
        self._selector.register(connection, selectors.EVENT_READ)

    def _receive(self, connection: socket.socket) -> Iterator[tuple[int | None, Message | Lost]]:
        try:
            data = connection.recv(1 << 20)
        except ConnectionError:
            data = b""
        if not data:
            self._selector.unregister(connection)
            del self._pending[connection]
            connection.close()
            if connection not in self._ended:
                rank = self._rank.get(connection)
                yield rank, Lost(rank)
            return
        buffer = self._pending[connection]
        buffer += data
        if len(buffer) > _MAX_LINE_BYTES:
            raise RailwrightError(f"a rank sent a line of more than {_MAX_LINE_BYTES} bytes")
        *lines, rest = bytes(buffer).split(b"\n")
        self._pending[connection] = bytearray(rest)
        for line in lines:
            message = _decoder.decode(line)
            if isinstance(message, Hello):
                self._rank[connection] = message.rank
            if isinstance(message, Bye):
                self._ended.add(connection)
            yield self._rank.get(connection), message

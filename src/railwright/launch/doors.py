"""Where ranks knock: the socket that a launch listens at, what it asks of who comes, and how a rank finds it.

    abstract:NAME               ranks of this host; no file is left behind whatever happens
    file:PATH                   ranks in other network namespaces of this machine, where abstract names do not reach
    tcp:PORT:TOKEN:ADDRESS,...  ranks on other hosts, which have no files of ours either: the job comes over the socket

A peer on the first two is accepted only if it runs under our own user id (SO_PEERCRED). A peer on the third must say
the token before anything that it sends is read; the token is random, new for each launch, and in no argument list.
"""

from __future__ import annotations

import contextlib
import hmac
import os
import secrets
import socket
import struct
from pathlib import Path

from railwright.benchmarks.host_name import host_name
from railwright.errors import CannotJudge

_UCRED = struct.Struct("iII")
_TOKEN_BYTES = 24
_BACKLOG = 512
_CONNECT_S = 5.0
_GREET_S = 20.0
_MAX_JOB_BYTES = 64 * 2**20
# A peer whose host is gone is noticed within 25 s.
_KEEPALIVE = ((socket.TCP_KEEPIDLE, 10), (socket.TCP_KEEPINTVL, 5), (socket.TCP_KEEPCNT, 3))
_UNANSWERED_MS = 25_000


class Endpoint:
    """A listening socket and its rules; `address` is what a rank is given, in one of the forms above."""

    def __init__(self, listening: socket.socket, address: str, token: str = "", job: bytes = b"") -> None:
        self.listening = listening
        self.address = address
        self.token = token
        """Where the peers run on other hosts, what their first line must be; it is answered with the job."""
        self._job = job

    def admit(self, connection: socket.socket) -> int | None:
        """The process id of a peer on this machine as we see it, whatever namespace it is in; None for another user's.

        0 for a peer elsewhere: every one may connect, and its first line must prove that it is a rank.
        """
        if self.token:
            _notice_silence(connection)
            return 0
        credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _UCRED.size)
        pid, user, _ = _UCRED.unpack(credentials)
        return pid if user == os.getuid() else None

    def greet(self, connection: socket.socket, said: bytes) -> bool:
        """Check the first line, and answer it with the job as one line."""
        if not hmac.compare_digest(said, self.token.encode()):
            return False
        connection.settimeout(_GREET_S)
        try:
            connection.sendall(self._job + b"\n")
        except OSError:
            return False
        connection.settimeout(None)
        return True


def open_local_endpoint(path: Path | None = None) -> Endpoint:
    """For ranks of this machine: an abstract name, or a file in a private folder where a path is given."""
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    if path is None:
        name = f"railwright-{os.getpid()}-{secrets.token_hex(8)}"
        listening.bind("\0" + name)
    else:
        listening.bind(str(path))
        path.chmod(0o600)
    listening.listen(_BACKLOG)
    return Endpoint(listening, f"abstract:{name}" if path is None else f"file:{path}")


def open_network_endpoint(addresses: tuple[str, ...], job: bytes) -> Endpoint:
    """For ranks on other hosts, which reach us at one of `addresses`."""
    both = socket.has_dualstack_ipv6()
    family = socket.AF_INET6 if both else socket.AF_INET
    listening = socket.create_server(("", 0), family=family, dualstack_ipv6=both, backlog=_BACKLOG)
    token = secrets.token_hex(_TOKEN_BYTES)
    return Endpoint(listening, f"tcp:{listening.getsockname()[1]}:{token}:{','.join(addresses)}", token, job)


def connect(address: str) -> tuple[socket.socket, bytes | None]:
    """A rank's end of the stream, and the job where it comes over it. Raises CannotJudge where nobody answers."""
    kind, _, rest = address.partition(":")
    if kind != "tcp":
        stream = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        stream.connect("\0" + rest if kind == "abstract" else rest)
        return stream, None
    port, token, addresses = rest.split(":", 2)
    troubles = []
    for host in addresses.split(","):
        try:
            stream = socket.create_connection((host, int(port)), timeout=_CONNECT_S)
        except OSError as error:
            troubles.append(f"{host}: {error.strerror or error}")
            continue
        _notice_silence(stream)
        stream.settimeout(_GREET_S)
        with contextlib.suppress(OSError):
            stream.sendall(token.encode() + b"\n")
            job = _line(stream)
            stream.settimeout(None)
            return stream, job
        troubles.append(f"{host}: it does not know this launch")
        stream.close()
    reason = f"{host_name()} cannot reach the command on port {port}: {'; '.join(troubles)}"
    raise CannotJudge(reason, hint="a firewall between the hosts must let it pass")


def _line(stream: socket.socket) -> bytes:
    """Read one line and no byte after it. Raises OSError if the other side leaves first."""
    found = bytearray()
    while not found.endswith(b"\n"):
        data = stream.recv(1 << 16)
        if not data or len(found) > _MAX_JOB_BYTES:
            raise OSError("no job came")
        found += data
    return bytes(found)


def _notice_silence(connection: socket.socket) -> None:
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in _KEEPALIVE:
        connection.setsockopt(socket.IPPROTO_TCP, name, value)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, _UNANSWERED_MS)

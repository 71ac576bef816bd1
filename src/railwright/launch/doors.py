"""The socket that ranks connect to: its address, its access rules, and the rank's side of the connection.

    abstract:NAME               ranks of this host; no file is left behind whatever happens
    file:PATH                   ranks in other network namespaces of this machine, which abstract names do not reach
    tcp:PORT:TOKEN:ADDRESS,...  ranks on other hosts, which cannot read our files: the job comes over the socket

A peer on the first two is accepted only if it runs under our own user id (SO_PEERCRED). A peer on the third must send
the token first. The token is random, new for each launch, and never in an argument list.
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
# A peer whose host is gone is detected within 25 s.
_KEEPALIVE = ((socket.TCP_KEEPIDLE, 10), (socket.TCP_KEEPINTVL, 5), (socket.TCP_KEEPCNT, 3))
_UNANSWERED_MS = 25_000


class Endpoint:
    """A listening socket with its access rules. `address` is passed to ranks, in one of the forms above."""

    def __init__(self, listening: socket.socket, address: str, token: str = "", job: bytes = b"") -> None:
        self.listening = listening
        self.address = address
        self.token = token
        """The first line that a peer on another host must send. The job is sent in reply. Empty for local peers."""
        self._job = job

    def admit(self, connection: socket.socket) -> int | None:
        """Return the process id of a local peer, in our namespace. None if the peer belongs to another user.

        Returns 0 for a peer on another host. Any such peer may connect, and its first line must be the token.
        """
        if self.token:
            _notice_silence(connection)
            return 0
        credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _UCRED.size)
        pid, user, _ = _UCRED.unpack(credentials)
        return pid if user == os.getuid() else None

    def greet(self, connection: socket.socket, line: bytes) -> bool:
        """Check a peer's first line, and answer with the job as one line.

        Returns False if the line is not the token or the job cannot be sent.
        """
        if not hmac.compare_digest(line, self.token.encode()):
            return False
        connection.settimeout(_GREET_S)
        try:
            connection.sendall(self._job + b"\n")
        except OSError:
            return False
        connection.settimeout(None)
        return True


def open_local_endpoint(path: Path | None = None) -> Endpoint:
    """Open a socket for ranks of this machine, at a path in a private folder or else at an abstract name."""
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
    """Open a socket for ranks on other hosts, which reach us at one of `addresses`."""
    both = socket.has_dualstack_ipv6()
    family = socket.AF_INET6 if both else socket.AF_INET
    listening = socket.create_server(("", 0), family=family, dualstack_ipv6=both, backlog=_BACKLOG)
    token = secrets.token_hex(_TOKEN_BYTES)
    return Endpoint(listening, f"tcp:{listening.getsockname()[1]}:{token}:{','.join(addresses)}", token, job)


def connect(address: str) -> tuple[socket.socket, bytes | None]:
    """Connect a rank to its launch. Returns the stream, and the job if it comes over the stream.

    Raises CannotJudge if no address answers.
    """
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
            job = _read_line(stream)
            stream.settimeout(None)
            return stream, job
        troubles.append(f"{host}: rejected the token of this launch")
        stream.close()
    reason = f"{host_name()} cannot reach the command on port {port}: {'; '.join(troubles)}"
    raise CannotJudge(reason, hint="open that port in any firewall between the hosts")


def _read_line(stream: socket.socket) -> bytes:
    """Read the job's line, the only data that is sent before the rank's first message.

    Raises OSError if the peer disconnects first, or if the line is too long.
    """
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

"""Services that NIXL works with, by their addresses: an etcd, an S3 store."""

from __future__ import annotations

import socket
import urllib.parse
from typing import NamedTuple

from railwright.benchmarks.options import word_or
from railwright.errors import UsageError

_REACH_S = 2.0
_MOST_URL_CHARACTERS = 200


class Service(NamedTuple):
    """Where a service listens."""

    scheme: str
    host: str
    port: int
    path: str

    @property
    def url(self) -> str:
        """Scheme, host and port."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.scheme}://{host}:{self.port}"


def parse_service(text: str) -> Service:
    """`http://127.0.0.1:2379`, with or without a path. Raises UsageError; never shows a password."""
    hint = "write http://HOST:PORT"
    if not text or len(text) > _MOST_URL_CHARACTERS or not text.isascii() or not text.isprintable() or " " in text:
        raise UsageError("not the address of a service: give 1 to 200 plain characters", hint=hint)
    try:
        parts = urllib.parse.urlsplit(text)
        host, port = parts.hostname, parts.port
    except ValueError as error:
        raise UsageError(f"not the address of a service: {error}", hint=hint) from None
    if parts.username is not None or parts.password is not None:
        raise UsageError("an address with a user or a password would be kept in the records", hint=hint)
    if parts.scheme not in ("http", "https") or not host or parts.query or parts.fragment:
        raise UsageError(f"not the address of a service: {text[:60]!r}", hint=hint)
    return Service(parts.scheme, host, port or (443 if parts.scheme == "https" else 80), parts.path.strip("/"))


def _etcd(text: str) -> Service:
    """The option's etcd. Raises UsageError."""
    service = parse_service(text)
    if service.path:
        raise UsageError(f"an etcd has no path, {service.path[:40]!r} was given", hint="write http://HOST:PORT")
    return service


def _bucket(text: str) -> Service:
    """`http://127.0.0.1:9000/bucket`, the path being the bucket's name. Raises UsageError."""
    service = parse_service(text)
    allowed = all(letter.isalnum() or letter in ".-" for letter in service.path)
    if not 3 <= len(service.path) <= 63 or not allowed:
        raise UsageError(
            f"not the name of a bucket: {service.path[:70]!r}", hint="write http://HOST:PORT/BUCKET, 3 to 63 letters"
        )
    return service


etcd_address = word_or("", None, _etcd)
bucket_address = word_or("", None, _bucket)


def unreachable(service: Service) -> str:
    """Why nothing listens there, or an empty string."""
    try:
        with socket.create_connection((service.host, service.port), timeout=_REACH_S):
            return ""
    except OSError as error:
        return f"{service.url}: {error.strerror or error}"

"""The addresses of services that NIXL uses: etcd and S3."""

from __future__ import annotations

import socket
import urllib.parse
from typing import NamedTuple

from railwright.benchmarks.options import word_or
from railwright.errors import UsageError

_REACH_S = 2.0
_MOST_URL_CHARACTERS = 200


class Service(NamedTuple):
    """The address of a service."""

    scheme: str
    host: str
    port: int
    path: str

    @property
    def url(self) -> str:
        """The scheme, host and port."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.scheme}://{host}:{self.port}"


def parse_service(text: str) -> Service:
    """Parse `http://127.0.0.1:2379`, with or without a path. Raises UsageError, whose message never has a password."""
    hint = "write http://HOST:PORT"
    if not text or len(text) > _MOST_URL_CHARACTERS or not text.isascii() or not text.isprintable() or " " in text:
        raise UsageError("address must be 1 to 200 printable ASCII characters without spaces", hint=hint)
    try:
        parts = urllib.parse.urlsplit(text)
        host, port = parts.hostname, parts.port
    except ValueError as error:
        raise UsageError(f"invalid address: {error}", hint=hint) from None
    if parts.username is not None or parts.password is not None:
        raise UsageError("address must have no user or password, because records keep it", hint=hint)
    if parts.scheme not in ("http", "https") or not host or parts.query or parts.fragment:
        raise UsageError(f"address must be http://HOST:PORT, got {text[:60]!r}", hint=hint)
    return Service(parts.scheme, host, port or (443 if parts.scheme == "https" else 80), parts.path.strip("/"))


def _parse_etcd(text: str) -> Service:
    """Parse an etcd address. Raises UsageError."""
    service = parse_service(text)
    if service.path:
        raise UsageError(f"an etcd address must have no path, got {service.path[:40]!r}", hint="write http://HOST:PORT")
    return service


def _parse_bucket(text: str) -> Service:
    """Parse `http://127.0.0.1:9000/bucket`, whose path is the bucket's name. Raises UsageError."""
    service = parse_service(text)
    allowed = all(letter.isalnum() or letter in ".-" for letter in service.path)
    if not 3 <= len(service.path) <= 63 or not allowed:
        raise UsageError(
            f"must be a bucket name of 3 to 63 characters, got {service.path[:70]!r}",
            hint="write http://HOST:PORT/BUCKET, with a bucket of letters, digits, dots and hyphens",
        )
    return service


etcd_address = word_or("", None, _parse_etcd)
bucket_address = word_or("", None, _parse_bucket)


def explain_unreachable(service: Service) -> str:
    """Return the reason why nothing listens at the address, or an empty string."""
    try:
        with socket.create_connection((service.host, service.port), timeout=_REACH_S):
            return ""
    except OSError as error:
        return f"{service.url}: {error.strerror or error}"

"""A record as a line of JSON."""

from __future__ import annotations

import msgspec

from railwright.checks.finding import Place
from railwright.terminal import escape_json


def json_line(record: object) -> str:
    """Encode a record as JSON, without a line end and safe to print on a terminal."""
    return escape_json(_encoder.encode(record).decode())


def _encode_place(place: object) -> str:
    """Encode the place of a finding as its text."""
    if not isinstance(place, Place):
        raise NotImplementedError(f"{type(place)} is not part of any record")
    return str(place)


_encoder = msgspec.json.Encoder(enc_hook=_encode_place)

"""A record as a line of JSON."""

from __future__ import annotations

import msgspec

from railwright.checks.finding import Place


def json_line(record: object) -> str:
    """A record as JSON, without a line end."""
    return _encoder.encode(record).decode()


def _words(place: object) -> str:
    """What a finding points at is its words in every record."""
    if not isinstance(place, Place):
        raise NotImplementedError(f"{type(place)} is in no record")
    return str(place)


_encoder = msgspec.json.Encoder(enc_hook=_words)

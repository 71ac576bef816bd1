"""A hypothesis that was fitted to a measured curve."""

from __future__ import annotations

import msgspec

ALIKE = "the curve does not tell"
"""The beginning of the doubt about several causes; other doubts are about the table's sizes."""


class Fitted(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """A hypothesis, fitted to the measured curve."""

    fault: str
    says: str
    distance: float
    """The typical factor between measured and predicted: 1.0 means equal, 2.0 twice or half."""
    predicted: tuple[tuple[int, float], ...]
    """(size in bytes, algbw or bandwidth in bytes/s); for copies the row number replaces the size."""
    tell_apart: str = ""

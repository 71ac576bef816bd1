"""Railwright measures every data path of a machine and compares it with the limit that its hardware sets."""

from __future__ import annotations

__version__ = "0.2.0.dev0"

"""Railwright proves every data path of a machine against the limit that its own hardware sets."""

from __future__ import annotations

__version__ = "0.1.0"

"""What was typed, for verbs with more options than a signature holds well."""

from __future__ import annotations

from types import SimpleNamespace


class Arguments(SimpleNamespace):
    """A field for each parameter of the command, by click's name and of click's type."""

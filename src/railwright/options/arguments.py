"""The parsed arguments of a verb that has too many options for a signature."""

from __future__ import annotations

from types import SimpleNamespace


class Arguments(SimpleNamespace):
    """The parsed arguments: a field for each parameter of the command, with click's name and type."""

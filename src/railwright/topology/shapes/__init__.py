"""Machines that can be named: what they are made of, as data, each part with its source.

A shape is what one published machine of that kind has; anything that differs is a change (`hgx-h100 nics=2`).
"""

from __future__ import annotations

import difflib

from railwright.errors import UsageError, unknown_name
from railwright.topology.shapes import amd, aws, azure, gcp, grace, laptop, nvidia, oci, pcie
from railwright.topology.shapes.parts import Shape

_FAMILIES = (nvidia, aws, azure, gcp, oci, grace, amd, pcie, laptop)

SHAPES: dict[str, Shape] = {name: shape for family in _FAMILIES for name, shape in family.SHAPES.items()}
"""By canonical name, which is in lower case."""
ALIASES: dict[str, str] = {alias: name for name, shape in SHAPES.items() for alias in shape.aliases}
"""The vendors' own names, as they write them, to the canonical name."""

_CANONICAL = {name.lower(): name for name in SHAPES} | {alias.lower(): name for alias, name in ALIASES.items()}
_SPELLING = {name.lower(): name for name in (*SHAPES, *ALIASES)}
_MAX_NAME = 80
_NEAR = 0.6


def canonical_name(name: str) -> str | None:
    """The name in SHAPES, from that name or a vendor's in upper or lower case; None for an unknown name."""
    return _CANONICAL.get(name.lower())


def unknown_shape(name: str, kind: str = "shape") -> UsageError:
    """The error for an unknown name, with the nearest names or else all canonical ones."""
    near = difflib.get_close_matches(name[:_MAX_NAME].lower(), _SPELLING, n=3, cutoff=_NEAR)
    if not near:
        return unknown_name(kind, name, SHAPES)
    hint = f"did you mean {', '.join(_SPELLING[match] for match in near)}?"
    return UsageError(f"there is no {kind} named {name[:_MAX_NAME]!r}", hint=hint)

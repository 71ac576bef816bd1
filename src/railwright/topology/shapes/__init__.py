"""Named machines as data: each shape has the parts of a published machine, with a source for every fact.

A machine that differs from its shape is written as the shape with changes: `hgx-h100 nics=2`.
"""

from __future__ import annotations

from railwright.errors import UsageError
from railwright.topology.shapes.catalogue import CATALOGUE
from railwright.topology.shapes.names import MAX_NAME, NamedShape, Names
from railwright.topology.shapes.parts import Shape
from railwright.units import format_count

SHAPES: dict[str, Shape] = {name: CATALOGUE.complete(CATALOGUE.shapes[name]) for name in CATALOGUE.names.shapes}
"""Shapes by canonical name, in lower case."""
_NAMES = Names(SHAPES, CATALOGUE.names)
ALIASES = _NAMES.aliases
"""The vendors' own names, as they write them, to the canonical names."""


def canonical_name(name: str) -> str | None:
    """Return the name in SHAPES for any spelling of it or of a vendor's name; None for an unknown name."""
    found = _NAMES.find(name)
    return found.shape if found else None


def split_name(words: list[str]) -> tuple[str, list[str]] | None:
    """Return (the name in SHAPES, the changes after it) if the first words name a shape: `GB200 NVL72 nics=2`.

    A number of GPUs in the name becomes a change, `4x L40S` is `pcie-8gpu`, `gpus=4`, or means a board of its own.
    """
    named = next((place for place, word in enumerate(words) if "=" in word), len(words))
    for count in range(named, 0, -1):
        found = _NAMES.find(" ".join(words[:count]))
        if found is not None:
            return _apply_gpus(found, " ".join(words[:count]), words[count:])
    return None


def _apply_gpus(found: NamedShape, name: str, changes: list[str]) -> tuple[str, list[str]]:
    """Return the shape and its changes, with the number of GPUs in the name as one unless a change gives it."""
    given = next((word.partition("=")[2] for word in changes if word.partition("=")[0].lower() == "gpus"), None)
    if given is None:
        return found.shape, [*([f"gpus={found.gpus}"] if found.gpus is not None else []), *changes]
    board = _NAMES.find_board(name, given)
    if board is None or board in CATALOGUE.names.boards.get(found.shape, {}).values():
        return found.shape, changes  # a board of the shape itself is chosen where the shape is expanded
    return board, [word for word in changes if word.partition("=")[0].lower() != "gpus"]


def nearest_names(name: str) -> tuple[str, ...]:
    """Return the shapes that an unknown name may mean."""
    return _NAMES.suggest(name)


def means_hosts(name: str) -> bool:
    """Report whether a name can only mean several hosts: `16xH100`."""
    return _NAMES.find_hosts(name) is not None


def unknown_shape(name: str, kind: str = "shape") -> UsageError:
    """Return the error for an unknown name, with the nearest names: of all its words, or of the first ones."""
    several = _NAMES.find_hosts(name)
    if several is not None:
        message = f"{name[:MAX_NAME]!r} is {format_count(several[1], 'host')}, but a shape is one host"
        return UsageError(message, hint=f"did you mean {several[0]} with --count {several[1]}?")
    if why := _NAMES.why_unmodelled(name):
        hint = "capture one: railwright topo capture FILE.jsonl, then --host FILE.jsonl"
        return UsageError(f"{name[:MAX_NAME]!r} {why}", hint=hint)
    words = name[:MAX_NAME].split()
    parts = (" ".join(words[:count]) for count in range(len(words), 0, -1))
    near = next(filter(None, map(nearest_names, parts)), ())
    hint = f"did you mean {', '.join(near)}?" if near else f"list all {len(SHAPES)} shapes with: railwright shapes"
    return UsageError(f"there is no {kind} named {name[:MAX_NAME]!r}", hint=hint)

"""Paths as rows of `limits` and `whatif`: each row is large transfers over a path, with bounds from `expect`."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from railwright.expected.expect import expect
from railwright.expected.machine import Machine
from railwright.limits.limit import Expected, Limit, NoLimit
from railwright.results.workload import Crossing
from railwright.topology.devices import Path, PathKind
from railwright.topology.routes import count_nearest


class PathLimit(msgspec.Struct, frozen=True, kw_only=True, tag="limit", tag_field="record", omit_defaults=True,
                forbid_unknown_fields=True):  # fmt: skip
    """A path with its limit and band in each direction."""

    path: str
    kind: PathKind
    devices: tuple[str, ...]
    limit: Limit | NoLimit
    expected: Expected | None = None


def list_host_rows(machine: Machine, texts: Iterable[str]) -> tuple[PathLimit, ...]:
    """Return the row of each `source>target` of a host. Raises UsageError for an unknown path."""
    return tuple(_build_row(machine.inside(text), text, machine) for text in texts)


def list_network_rows(machine: Machine, text: str) -> tuple[PathLimit, ...]:
    """Return the row of `gpu0:gpu0@2`, and of the same over all NICs that are equally near. Raises UsageError."""
    path = machine.between(text)
    row = _build_row(path, text, machine)
    nics = count_nearest(machine.graph, path) if path.kind == "NET" and isinstance(row.limit, Limit) else 1
    return (row, _build_row(path, text, machine, nics)) if nics > 1 else (row,)


def _build_row(path: Path, text: str, machine: Machine, nics: int = 1) -> PathLimit:
    limit, band = expect(Crossing(path=text, nics=nics), machine)
    name = f"{path.id} over {nics} NICs" if nics > 1 else path.id
    return PathLimit(path=name, kind=path.kind, devices=path.devices, limit=limit, expected=band)

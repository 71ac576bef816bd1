"""The protocols that UCX chose, from its log with `UCX_PROTO_INFO=y` (seen with UCX 1.20 and 1.23).

Each table has a line that names the configuration (`i intra-node cfg#1`; `self` is the agent talking to itself), one
that names the operation (`remote memory write by ucp_put*(multi) from cuda/GPU0 to host`), and a row per range of
sizes.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Literal, NamedTuple

from railwright.errors import UsageError
from railwright.units import parse_size

Operation = Literal["put", "get"]
Memories = tuple[str, str]
"""The local memory and the remote one, as UCX calls their kinds: `host`, `cuda`, `rocm` ..."""

EMULATION = "software emulation"
"""How UCX describes a transfer that no transport can make: active messages whose pieces the CPUs copy."""

_OPERATION = re.compile(
    r"remote memory (?:write|read) by ucp_(put|get)\*(?:\(([^)]*)\))?"
    r"(?: (?:from|into) ([\w-]+)(?:/\S+)?(?: memory)? (?:to|from) ([\w-]+))?"
)
_RANGE = re.compile(r"(\w+)(?:\.\.(\w+))?$")
_UNBOUNDED = 2**63
_MOST_TITLE_CHARACTERS = 500


class Protocol(NamedTuple):
    """What UCX does with transfers of a range of sizes between this process and another one, or within this one."""

    operation: Operation
    first_bytes: int
    last_bytes: int
    description: str
    """`zero-copy`, `multi-frag copy-in`, `software emulation` ..."""
    transport: str
    """`cma/memory`, `cuda_ipc/cuda`, `tcp/lo`, `rc_mlx5/mlx5_0:1` ..."""
    memories: Memories = ("host", "host")
    to_self: bool = False
    multi: bool = False
    """Whether it is for many transfers at once, as NIXL needs them; UCX makes others for its own use."""


class _Table(NamedTuple):
    """What the lines above a row say of the row."""

    to_self: bool = False
    operation: Operation | None = None
    memories: Memories = ("host", "host")
    multi: bool = False


def read(lines: Iterable[str]) -> tuple[Protocol, ...]:
    """All put and get protocols, in the order of the log; unreadable rows are left out."""
    protocols: list[Protocol] = []
    table: _Table | None = None
    for line in lines:
        cells = [cell.strip() for cell in line.partition("|")[2].rstrip().rstrip("|").split("|")]
        if "cfg#" in cells[0]:
            table = _Table(to_self=" self " in f" {cells[0]} ")
            if len(cells) == 2:  # both in one line, as UCX 1.23 and later may print them
                table = _named(table, cells[1])
        elif len(cells) == 1 and cells[0] and table is not None:
            table = _named(table, cells[0])
        elif len(cells) == 3 and table is not None and table.operation is not None:
            sizes = _range(cells[0])
            if sizes is not None:
                row = (*sizes, cells[1], cells[2], table.memories, table.to_self, table.multi)
                protocols.append(Protocol(table.operation, *row))
    return tuple(protocols)


def _named(table: _Table, title: str) -> _Table:
    found = _OPERATION.search(title[:_MOST_TITLE_CHARACTERS])
    if found is None:
        return _Table(table.to_self)
    memories = (found.group(3) or "host", found.group(4) or "host")
    multi = "multi" in (found.group(2) or "")
    return _Table(table.to_self, "put" if found.group(1) == "put" else "get", memories, multi)


def chosen(
    protocols: Iterable[Protocol],
    operation: Operation,
    size_bytes: int,
    memories: Memories = ("host", "host"),
    *,
    to_self: bool = False,
) -> Protocol | None:
    """The protocol for one size; the last table counts, since UCX chooses anew when an endpoint changes.

    Tables for many transfers go before the others, where there are any.
    """
    wanted = (operation, memories, to_self)
    fitting = [
        one
        for one in protocols
        if (one.operation, one.memories, one.to_self) == wanted and one.first_bytes <= size_bytes <= one.last_bytes
    ]
    many = [one for one in fitting if one.multi]
    return (many or fitting)[-1] if fitting else None


def _range(text: str) -> tuple[int, int] | None:
    found = _RANGE.fullmatch(text)
    if found is None:
        return None
    first, last = found.group(1), found.group(2) or found.group(1)
    try:
        return parse_size(first), _UNBOUNDED if last == "inf" else parse_size(last)
    except UsageError:
        return None

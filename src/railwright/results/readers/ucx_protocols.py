"""UCX's own account of the protocols it chose, as `UCX_PROTO_INFO=y` logs it (seen with UCX 1.20 and 1.23).

Each table has a line that names the configuration (`i intra-node cfg#1`; `self` is the agent talking to itself), one
that names the operation (`remote memory write by ucp_put* from host memory to host`), and a row per range of sizes.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Literal, NamedTuple

from railwright.errors import UsageError
from railwright.units import parse_size

Operation = Literal["put", "get"]

_OPERATION = re.compile(r"remote memory (?:write|read) by ucp_(put|get)\*")
_RANGE = re.compile(r"(\w+)(?:\.\.(\w+))?$")
_UNBOUNDED = 2**63


class Protocol(NamedTuple):
    """What UCX does with transfers of a range of sizes between this process and another one."""

    operation: Operation
    first_bytes: int
    last_bytes: int
    description: str
    """`zero-copy`, `multi-frag copy-in` ..."""
    transport: str
    """`cma/memory`, `tcp/lo`, `rc_mlx5/mlx5_0:1` ..."""


def read(lines: Iterable[str]) -> tuple[Protocol, ...]:
    """All put and get protocols to peers, in the order of the log; unreadable rows are left out."""
    protocols: list[Protocol] = []
    to_peer, operation = False, ""
    for line in lines:
        cells = [cell.strip() for cell in line.partition("|")[2].rstrip().rstrip("|").split("|")]
        if len(cells) == 1 and "cfg#" in cells[0]:
            to_peer, operation = " self " not in f" {cells[0]} ", ""
        elif len(cells) == 1 and cells[0]:
            found = _OPERATION.search(cells[0])
            operation = found.group(1) if found else ""
        elif len(cells) == 3 and to_peer and operation in ("put", "get"):
            sizes = _range(cells[0])
            if sizes is not None:
                protocols.append(Protocol("put" if operation == "put" else "get", *sizes, cells[1], cells[2]))
    return tuple(protocols)


def chosen(protocols: Iterable[Protocol], operation: Operation, size_bytes: int) -> Protocol | None:
    """The protocol for one size; the last table counts, since UCX chooses anew when an endpoint changes."""
    fitting = [p for p in protocols if p.operation == operation and p.first_bytes <= size_bytes <= p.last_bytes]
    return fitting[-1] if fitting else None


def _range(text: str) -> tuple[int, int] | None:
    found = _RANGE.fullmatch(text)
    if found is None:
        return None
    first, last = found.group(1), found.group(2) or found.group(1)
    try:
        return parse_size(first), _UNBOUNDED if last == "inf" else parse_size(last)
    except UsageError:
        return None

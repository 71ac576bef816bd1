"""The protocols that UCX chose, from its log with `UCX_PROTO_INFO=y` (seen with UCX 1.20 and 1.23).

Each table has a line that names the configuration (`i intra-node cfg#1`; `self` means the agent itself), one that names
the operation (`remote memory write by ucp_put*(multi) from cuda/GPU0 to host`), and a row per size range.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Literal, NamedTuple

from railwright.errors import UsageError
from railwright.units import parse_size

Operation = Literal["put", "get", "tag"]
Memories = tuple[str, str]
"""The local and the remote memory, by UCX's names: `host`, `cuda`, `rocm` ... A message knows the local one only."""
_Heading = tuple[Operation, Memories, bool]
"""The heading of a table: the operation, the memories, and whether it covers many transfers at once."""

EMULATION = "software emulation"
"""UCX's description of a transfer that no transport supports: active messages whose pieces the CPUs copy."""

_OPERATION = re.compile(
    r"remote memory (?:write|read) by ucp_(put|get)\*(?:\(([^)]*)\))?"
    r"(?: (?:from|into) ([\w-]+)(?:/\S+)?(?: memory)? (?:to|from) ([\w-]+))?"
)
_MESSAGE = re.compile(r"tagged message by ucp_tag_send\*(?:\(([^)]*)\))? from ([\w-]+)")
_RANGE = re.compile(r"(\w+)(?:\.\.(\w+))?$")
_UNBOUNDED = 2**63
_MOST_TITLE_CHARACTERS = 500


class Protocol(NamedTuple):
    """The protocol that UCX uses for a range of sizes, between this process and another one or within this one."""

    operation: Operation
    first_bytes: int
    last_bytes: int
    description: str
    """The protocol's name, such as `zero-copy`, `multi-frag copy-in` or `software emulation`."""
    transport: str
    """The transport and its device, such as `cma/memory`, `cuda_ipc/cuda`, `tcp/lo` or `rc_mlx5/mlx5_0:1`."""
    memories: Memories = ("host", "host")
    to_self: bool = False
    multi: bool = False
    """Whether it is for many transfers at once, as NIXL needs; UCX also chooses protocols for its own transfers."""


def read(lines: Iterable[str]) -> tuple[Protocol, ...]:
    """Read all put and get protocols, in the order of the log. Unreadable rows are skipped."""
    protocols: list[Protocol] = []
    to_self: bool | None = None
    heading: _Heading | None = None
    for line in lines:
        cells = [cell.strip() for cell in line.partition("|")[2].rstrip().rstrip("|").split("|")]
        if "cfg#" in cells[0]:
            to_self = " self " in f" {cells[0]} "
            # UCX 1.23 and later may print both on one line.
            heading = _parse_heading(cells[1]) if len(cells) == 2 else None
        elif len(cells) == 1 and cells[0] and to_self is not None:
            heading = _parse_heading(cells[0])
        elif len(cells) == 3 and to_self is not None and heading and (sizes := _parse_range(cells[0])):
            operation, memories, multi = heading
            protocols.append(Protocol(operation, *sizes, cells[1], cells[2], memories, to_self, multi))
    return tuple(protocols)


def _parse_heading(title: str) -> _Heading | None:
    if message := _MESSAGE.match(title[:_MOST_TITLE_CHARACTERS]):
        kinds, local = message.groups()
        return "tag", (local, local), "multi" in (kinds or "")
    found = _OPERATION.search(title[:_MOST_TITLE_CHARACTERS])
    if found is None:
        return None
    way, kinds, local, remote = found.groups()
    return "put" if way == "put" else "get", (local or "host", remote or "host"), "multi" in (kinds or "")


def find_protocol(
    protocols: Iterable[Protocol],
    operation: Operation,
    size_bytes: int,
    memories: Memories = ("host", "host"),
    *,
    to_self: bool = False,
) -> Protocol | None:
    """Return the protocol for a size, or None if the log has none.

    The last table counts, because UCX chooses again when an endpoint changes. Tables for many transfers take precedence
    over the others.
    """
    wanted = (operation, memories, to_self)
    alike = [one for one in protocols if (one.operation, one.memories, one.to_self) == wanted]
    fitting = [one for one in alike if one.first_bytes <= size_bytes <= one.last_bytes]
    many = [one for one in fitting if one.multi]
    return (many or fitting)[-1] if fitting else None


def _parse_range(text: str) -> tuple[int, int] | None:
    if (found := _RANGE.fullmatch(text)) is None:
        return None
    first, last = found[1], found[2] or found[1]
    try:
        return parse_size(first), _UNBOUNDED if last == "inf" else parse_size(last)
    except UsageError:
        return None

"""The leaf of each host by Slurm's topology.conf: topology.conf(5), plugin topology/tree.

Lines are `SwitchName=leaf0 Nodes=node[0-31]` and `SwitchName=spine Switches=leaf[0-3]`. Option names are
case-insensitive, `#` starts a comment, and a backslash at the end continues a line. A file of blocks (topology/block)
does not name switches.
"""

from __future__ import annotations

import re

from railwright.errors import UsageError
from railwright.locate.switch_tree import SwitchTree
from railwright.results.host_list import parse_host_list

MAX_BYTES = 16 * 2**20
_MAX_SWITCHES = 100_000
_MAX_HOSTS = 1_000_000
_HINT = "give Slurm's topology.conf: lines like SwitchName=leaf0 Nodes=node[0-31]"
_KNOWN = ("switchname", "nodes", "switches", "linkspeed")
_NAME = re.compile(r"[A-Za-z0-9_.-]{1,255}")


def parse_topology(text: str) -> SwitchTree:
    """Parse topology.conf. Raises UsageError for a file in another format, and for a host below two leaves."""
    leaf_of: dict[str, str] = {}
    above: dict[str, None] = {}
    leaves: set[str] = set()
    for number, line in enumerate(re.sub(r"\\\n", " ", text).splitlines(), 1):
        given = _parse_options(line.partition("#")[0], number)
        if not given:
            continue
        name = given["switchname"]
        if "nodes" not in given:
            above[name] = None
        else:
            leaves.add(name)
            _add_hosts(leaf_of, name, given["nodes"], number)
        if len(above) + len(leaves) > _MAX_SWITCHES:
            raise UsageError(f"line {number}: more than {_MAX_SWITCHES} switches", hint=_HINT)
    if not leaf_of:
        raise UsageError("the file has no switch with hosts", hint=_HINT)
    return SwitchTree(leaf_of, tuple(name for name in above if name not in leaves))


def _parse_options(line: str, number: int) -> dict[str, str]:
    """Parse a line into options by lower-case name; empty for a blank line. Raises UsageError."""
    given: dict[str, str] = {}
    for word in line.split():
        name, equals, value = word.partition("=")
        if not equals or name.lower() not in _KNOWN:
            is_block = name.lower() in ("blockname", "blocksizes")
            reason = "blocks have no switches" if is_block else "not an option of topology.conf"
            raise UsageError(f"line {number}: {word[:60]!r}: {reason}", hint=_HINT)
        given[name.lower()] = value
    if given and not _NAME.fullmatch(given.get("switchname", "")):
        raise UsageError(f"line {number}: SwitchName must be letters, digits, '.', '_' and '-'", hint=_HINT)
    return given


def _add_hosts(leaf_of: dict[str, str], leaf: str, nodes: str, number: int) -> None:
    names = parse_host_list(nodes)
    if not names:
        raise UsageError(
            f"line {number}: Nodes must be a list of hosts, got {nodes[:60]!r}", hint="write node[0-31],login"
        )
    if len(leaf_of) + len(names) > _MAX_HOSTS:
        raise UsageError(f"line {number}: more than {_MAX_HOSTS} hosts", hint=_HINT)
    for name in names:
        if leaf_of.setdefault(name, leaf) != leaf:
            raise UsageError(f"line {number}: {name[:60]} is below {leaf_of[name][:60]} and {leaf[:60]}",
                             hint="a search uses one port of each host: give a file of one fabric")  # fmt: skip

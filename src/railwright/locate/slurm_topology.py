"""Which switch each host hangs on, as Slurm's topology.conf says it: topology.conf(5), plugin topology/tree.

Lines are `SwitchName=leaf0 Nodes=node[0-31]` and `SwitchName=spine Switches=leaf[0-3]`; names of options are in any
case, `#` begins a comment, and a backslash at its end continues a line. A file of blocks (topology/block) says nothing
of switches.
"""

from __future__ import annotations

import re

from railwright.errors import UsageError
from railwright.locate.switch_tree import SwitchTree
from railwright.results.host_list import parse_host_list

MOST_BYTES = 16 * 2**20
_MOST_SWITCHES = 100_000
_MOST_HOSTS = 1_000_000
_HINT = "give Slurm's topology.conf: lines like SwitchName=leaf0 Nodes=node[0-31]"
_KNOWN = ("switchname", "nodes", "switches", "linkspeed")
_NAME = re.compile(r"[A-Za-z0-9_.-]{1,255}")


def switch_tree_of(text: str) -> SwitchTree:
    """What the file says. Raises UsageError for another file, and for a host below two leaves."""
    leaf_of: dict[str, str] = {}
    above: dict[str, None] = {}
    leaves: set[str] = set()
    for number, line in enumerate(re.sub(r"\\\n", " ", text).splitlines(), 1):
        given = _options(line.partition("#")[0], number)
        if not given:
            continue
        name = given["switchname"]
        if "nodes" not in given:
            above[name] = None
        else:
            leaves.add(name)
            _hang(leaf_of, name, given["nodes"], number)
        if len(above) + len(leaves) > _MOST_SWITCHES:
            raise UsageError(f"line {number}: more than {_MOST_SWITCHES} switches", hint=_HINT)
    if not leaf_of:
        raise UsageError("no switch with hosts is in it", hint=_HINT)
    return SwitchTree(leaf_of, tuple(name for name in above if name not in leaves))


def _options(line: str, number: int) -> dict[str, str]:
    """The options of a line by their names in small letters; none of an empty one. Raises UsageError."""
    given: dict[str, str] = {}
    for word in line.split():
        name, equals, value = word.partition("=")
        if not equals or name.lower() not in _KNOWN:
            said = "blocks have no switches" if name.lower() in ("blockname", "blocksizes") else "not of topology.conf"
            raise UsageError(f"line {number}: {word[:60]!r}: {said}", hint=_HINT)
        given[name.lower()] = value
    if given and not _NAME.fullmatch(given.get("switchname", "")):
        raise UsageError(f"line {number}: no SwitchName of letters, digits, '.', '_' and '-'", hint=_HINT)
    return given


def _hang(leaf_of: dict[str, str], leaf: str, nodes: str, number: int) -> None:
    names = parse_host_list(nodes)
    if not names:
        raise UsageError(f"line {number}: not a list of hosts: {nodes[:60]!r}", hint="write node[0-31],login")
    if len(leaf_of) + len(names) > _MOST_HOSTS:
        raise UsageError(f"line {number}: more than {_MOST_HOSTS} hosts", hint=_HINT)
    for name in names:
        if leaf_of.setdefault(name, leaf) != leaf:
            raise UsageError(f"line {number}: {name[:60]} is below {leaf_of[name][:60]} and {leaf[:60]}",
                             hint="one port of each host is searched: give a file of one fabric")  # fmt: skip

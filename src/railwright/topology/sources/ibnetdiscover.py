"""The cables of an InfiniBand fabric, as `ibnetdiscover` prints them.

A node begins with a line like `Switch 8 "S-0002c9..." # "leaf0" ...` or `Ca 1 "H-0002c9..." # "host0 mlx5_0"`; a line
of it like `[3] "S-0002c9..."[4] # "spine0" ...` is a port that has a cable. The manual page is ibnetdiscover(8) of
rdma-core. Node descriptions are set by whoever runs the node, so that they are only names here.
"""

from __future__ import annotations

import re

from railwright.errors import UsageError
from railwright.topology.cabling import Cable, Cabling, Port
from railwright.topology.sources.root import printable

MOST_BYTES = 256 * 2**20
NODE = re.compile(r'(Switch|Ca)\s+\d{1,5}\s+"([^"]{1,40})"\s*#\s*"([^"]{0,200})"')
_PORT = re.compile(r'\[(\d{1,5})\]\S{0,40}\s+"([^"]{1,40})"\[(\d{1,5})\]')


def cabling_of(text: str) -> Cabling:
    """All nodes and cables. Raises UsageError for text that is something else, and for two nodes of one name."""
    names: dict[str, tuple[str, str]] = {}
    rows: list[tuple[str, str, str, str]] = []
    node = ""
    for line in text.splitlines():
        if begun := NODE.match(line):
            node = begun[2]
            names[node] = named(begun[1], begun[3], node)
        elif node and (port := _PORT.match(line)):
            rows.append((node, port[1], port[2], port[3]))
        elif not line.strip():
            node = ""
    if not names:
        raise UsageError("no switch and no host is in it", hint="give what ibnetdiscover prints, without options")
    refuse_twins(names)
    cables = dict[frozenset[Port], Cable]()
    for here, port_here, peer, port_there in rows:
        if peer in names:
            cable = _port(names[here], port_here), _port(names[peer], port_there)
            cables.setdefault(frozenset(cable), cable)
    return Cabling(tuple(cables.values()), frozenset(name for name, _ in names.values()))


def named(kind: str, description: str, guid: str) -> tuple[str, str]:
    """The name of a node, and of its adapter: `host0 mlx5_0` is adapter mlx5_0 of host0; a switch has none.

    Managed switches of NVIDIA call themselves `MF0;leaf0:MQM8700/U1`.
    """
    text = printable(description.encode("utf-8", "replace")).strip()
    if kind == "Switch":
        inner = text.partition(";")[2].partition(":")[0]
        return (inner or text or guid), ""
    name, _, adapter = text.partition(" ")
    return (name or guid), adapter.strip()


def _port(name: tuple[str, str], number: str) -> Port:
    """A host's port is called as its adapter, which mostly has one; without an adapter's name it is the number."""
    end, adapter = name
    if not adapter:
        return Port(end, number)
    return Port(end, adapter if number == "1" else f"{adapter}/{number}")


def refuse_twins(names: dict[str, tuple[str, str]]) -> None:
    """Raises UsageError for two nodes of one name and adapter; `names` are by GUID."""
    first: dict[tuple[str, str], str] = {}
    for guid, name in names.items():
        if name in first:
            what = f"{first[name]} and {guid} are both called {' '.join(name).strip()[:80]!r}"
            raise UsageError(what, hint="give nodes descriptions of their own, or name them: --node-name-map")
        first[name] = guid

"""The cables of an InfiniBand fabric, from the output of `ibnetdiscover`.

A node begins with a line like `Switch 8 "S-0002c9..." # "leaf0" ...` or `Ca 1 "H-0002c9..." # "host0 mlx5_0"`; a line
like `[3] "S-0002c9..."[4] # "spine0" ...` is a port of it with a cable. The manual page is ibnetdiscover(8) of
rdma-core. The owner of a node sets its description, so it is only a name here.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from railwright.errors import UsageError
from railwright.topology.cabling import Cable, Cabling, Port
from railwright.topology.sources.root import printable
from railwright.topology.subnet import Node

MOST_BYTES = 256 * 2**20
_NODE = re.compile(r'(Switch|Ca)\s+\d{1,5}\s+"([^"]{1,40})"\s*#\s*"([^"]{0,200})"')
_PORT = re.compile(r'\[(\d{1,5})\]\S{0,40}\s+"([^"]{1,40})"\[(\d{1,5})\](.{0,400})')


class Row(NamedTuple):
    """A port with a cable."""

    node: str
    """The GUID of the node."""
    port: str
    peer: str
    peer_port: str
    rest: str
    """The rest of the line, with LIDs and the rate."""


def parse_cabling(text: str) -> Cabling:
    """Parse all nodes and cables. Raises UsageError for other text, and for two nodes with the same name."""
    nodes, rows = read_nodes(text)
    if not nodes:
        raise UsageError("the file has no switch and no host", hint="give the output of ibnetdiscover without options")
    cables = dict[frozenset[Port], Cable]()
    for row in rows:
        if row.peer in nodes:
            cable = (
                Port(nodes[row.node].name, nodes[row.node].port_name(row.port)),
                Port(nodes[row.peer].name, nodes[row.peer].port_name(row.peer_port)),
            )
            cables.setdefault(frozenset(cable), cable)
    return Cabling(tuple(cables.values()), frozenset(node.name for node in nodes.values()))


def read_nodes(text: str) -> tuple[dict[str, Node], list[Row]]:
    """Parse all nodes by GUID, and their ports with a cable. Raises UsageError for two nodes with the same name."""
    nodes: dict[str, Node] = {}
    rows: list[Row] = []
    node = ""
    for line in text.splitlines():
        if begun := _NODE.match(line):
            node = begun[2]
            nodes[node] = Node(*_split_description(begun[1], begun[3], node), begun[1] == "Switch")
        elif node and (port := _PORT.match(line)):
            rows.append(Row(node, *port.groups()))
        elif not line.strip():
            node = ""
    _check_unique(nodes)
    return nodes, rows


def _split_description(kind: str, description: str, guid: str) -> tuple[str, str]:
    """Return the names of a node and its adapter: `host0 mlx5_0` is adapter mlx5_0 of host0; a switch has none.

    Managed NVIDIA switches call themselves `MF0;leaf0:MQM8700/U1`.
    """
    text = printable(description.encode("utf-8", "replace")).strip()
    if kind == "Switch":
        inner = text.partition(";")[2].partition(":")[0]
        return (inner or text or guid), ""
    name, _, adapter = text.partition(" ")
    return (name or guid), adapter.strip()


def _check_unique(nodes: dict[str, Node]) -> None:
    first: dict[tuple[str, str], str] = {}
    for guid, node in nodes.items():
        name = node.name, node.adapter
        if name in first:
            message = f"{first[name]} and {guid} are both called {' '.join(name).strip()[:80]!r}"
            raise UsageError(message, hint="give each node its own description, or name them: --node-name-map")
        first[name] = guid

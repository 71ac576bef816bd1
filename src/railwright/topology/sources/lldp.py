"""The cables of an Ethernet fabric, from lldpd's `lldpctl -f json`, which prints the neighbours at each port.

Each node has a file with its name: `host0.json`, `leaf0.json`. The format is that of lldpd 1.0: one interface is
an object, several are a list of objects of one key. Names come from the neighbours, so they are only names here.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from railwright.errors import UsageError
from railwright.reading import InvalidContent, decode_json
from railwright.topology.cabling import Cable, Cabling, Port
from railwright.topology.sources.root import printable

MOST_BYTES = 16 * 2**20
MOST_FILES = 20_000
_MAX_NAME = 80


def parse_lldp_cabling(texts: Mapping[str, str]) -> Cabling:
    """Parse all cables, each once, from the text of each node by name.

    Raises UsageError for other text, and if two neighbours are heard at one port.
    """
    peers: dict[Port, Port] = {}
    for node, text in texts.items():
        for port, peer in _parse_neighbours(node, text):
            if peers.setdefault(port, peer) != peer:
                message = f"{node[:_MAX_NAME]}: {port} hears {peers[port]} and {peer}"
                raise UsageError(message, hint="a switch without LLDP forwards it: list its cables by hand")
    cables: dict[frozenset[Port], Cable] = {}
    for port, peer in peers.items():
        if peers.get(peer, port) == port:
            cables.setdefault(frozenset((port, peer)), (port, peer))
    return Cabling(tuple(cables.values()), frozenset(texts))


def _parse_neighbours(node: str, text: str) -> Iterator[tuple[Port, Port]]:
    try:
        interfaces = decode_json(text, dict[str, Any])["lldp"].get("interface", {})
    except (InvalidContent, KeyError, TypeError, AttributeError) as error:
        raise UsageError(
            f"{node[:_MAX_NAME]}: not the output of lldpctl", hint="write it with: lldpctl -f json > NAME.json"
        ) from error
    for name, heard in _list_members(interfaces):
        if not isinstance(heard, dict) or heard.get("via", "LLDP") != "LLDP":
            continue
        chassis = next(
            (end for end, entry in _list_members(heard.get("chassis")) if isinstance(entry, dict) and end != "id"), ""
        )
        port = heard.get("port")
        peer = _port_name(port) if isinstance(port, dict) else ""
        if chassis and peer:
            yield Port(node, _clean(name)), Port(_clean(chassis), peer)


def _port_name(port: Mapping[str, Any]) -> str:
    """Return the name of a port: its interface, or its description if the neighbour names the port by an address."""
    name = port.get("id")
    identity: Mapping[str, Any] = name if isinstance(name, dict) else {}
    name = identity.get("value") if identity.get("type") in ("ifname", "local") else port.get("descr")
    return _clean(str(name or identity.get("value") or ""))


def _list_members(given: object) -> Iterable[tuple[str, Any]]:
    """Yield the members of an object, or of a list of objects."""
    for item in given if isinstance(given, list) else [given]:
        if isinstance(item, dict):
            yield from item.items()


def _clean(name: str) -> str:
    return printable(name.encode("utf-8", "replace")).strip()[:_MAX_NAME]

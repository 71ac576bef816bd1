"""The cables of an Ethernet fabric, as `lldpctl -f json` of lldpd prints what each node hears at its ports.

One file for each node, called by its name: `host0.json`, `leaf0.json`. The form is that of lldpd 1.0: one interface is
an object, several are a list of objects of one key. Names come from the neighbours, so that they are only names here.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import msgspec

from railwright.errors import UsageError
from railwright.topology.cabling import Cable, Cabling, Port
from railwright.topology.sources.root import printable

MOST_BYTES = 16 * 2**20
MOST_FILES = 20_000
_MOST_NAME = 80


def cabling_of_lldp(texts: Mapping[str, str]) -> Cabling:
    """All cables, each once, by the name of the node that each text is of.

    Raises UsageError for text that is something else, and where two neighbours are heard at one port.
    """
    peers: dict[Port, Port] = {}
    for node, text in texts.items():
        for port, peer in _heard(node, text):
            if peers.setdefault(port, peer) != peer:
                what = f"{node[:_MOST_NAME]}: {port} hears {peers[port]} and {peer}"
                raise UsageError(what, hint="a switch that does not speak LLDP passes it on: name its cables by hand")
    cables: dict[frozenset[Port], Cable] = {}
    for port, peer in peers.items():
        if peers.get(peer, port) == port:
            cables.setdefault(frozenset((port, peer)), (port, peer))
    return Cabling(tuple(cables.values()), frozenset(texts))


def _heard(node: str, text: str) -> Iterator[tuple[Port, Port]]:
    try:
        interfaces = msgspec.json.decode(text.encode())["lldp"].get("interface", {})
    except (msgspec.DecodeError, KeyError, TypeError, AttributeError) as error:
        raise UsageError(f"{node[:_MOST_NAME]}: not what lldpctl prints", hint="lldpctl -f json > NAME.json") from error
    for name, heard in _pairs(interfaces):
        if not isinstance(heard, dict) or heard.get("via", "LLDP") != "LLDP":
            continue
        chassis = next(
            (end for end, told in _pairs(heard.get("chassis")) if isinstance(told, dict) and end != "id"), ""
        )
        port = heard.get("port")
        peer = _port_name(port) if isinstance(port, dict) else ""
        if chassis and peer:
            yield Port(node, _clean(name)), Port(_clean(chassis), peer)


def _port_name(port: Mapping[str, Any]) -> str:
    """By the interface's name, where the neighbour calls its port by an address also by its description."""
    told = port.get("id")
    identity: Mapping[str, Any] = told if isinstance(told, dict) else {}
    name = identity.get("value") if identity.get("type") in ("ifname", "local") else port.get("descr")
    return _clean(str(name or identity.get("value") or ""))


def _pairs(given: object) -> Iterable[tuple[str, Any]]:
    """The members of an object, or of a list of objects."""
    for one in given if isinstance(given, list) else [given]:
        if isinstance(one, dict):
            yield from one.items()


def _clean(name: str) -> str:
    return printable(name.encode("utf-8", "replace")).strip()[:_MOST_NAME]

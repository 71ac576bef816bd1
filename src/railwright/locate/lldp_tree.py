"""Which switch each host hangs on, as the nodes' LLDP tells it. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from railwright.errors import UsageError
from railwright.locate.switch_tree import SwitchTree
from railwright.topology.cabling import Cabling


def tree_of_lldp(cabling: Cabling, hosts: Iterable[str], interface: str = "") -> SwitchTree:
    """The leaf that each host hears, at one of its interfaces where it hears several.

    Hosts are called by their names or by the first part of them. What lies above the leaves is not told: a host on
    several rails is heard by as many leaves as a spine.
    Raises UsageError for a host that hears no switch, or more than one.
    """
    heard: dict[str, dict[str, str]] = {}
    for one, other in cabling.cables:
        heard.setdefault(one.end, {})[one.port] = other.end
        heard.setdefault(other.end, {})[other.port] = one.end
    return SwitchTree({host: _leaf(host, heard, interface) for host in hosts}, ())


def _leaf(host: str, heard: Mapping[str, Mapping[str, str]], interface: str) -> str:
    peers = heard.get(host) or heard.get(_short(host)) or {}
    if not peers:
        raise UsageError(
            f"{host[:60]} hears no switch, and none hears it",
            hint="run lldpd there, and give what it hears as NAME.json with the host's name: lldpctl -f json",
        )
    if interface and interface not in peers:
        raise UsageError(
            f"{host[:60]} hears nobody at {interface[:40]}",
            hint=f"it hears switches at {', '.join(sorted(peers))[:200]}",
        )
    chosen = [peers[interface]] if interface else list(dict.fromkeys(peers.values()))
    if len(chosen) > 1:
        ports = ", ".join(f"{switch} at {port}" for port, switch in sorted(peers.items()))
        raise UsageError(
            f"{host[:60]} hears several switches: {ports[:200]}",
            hint="one port of each host is searched: name it with --interfaces",
        )
    return chosen[0]


def _short(host: str) -> str:
    return host.partition(".")[0]

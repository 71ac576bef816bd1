"""The leaf of each host by LLDP. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from railwright.errors import UsageError
from railwright.locate.switch_tree import SwitchTree
from railwright.topology.cabling import Cabling


def build_lldp_tree(cabling: Cabling, hosts: Iterable[str], interface: str = "") -> SwitchTree:
    """Return the leaf that each host hears by LLDP, at `interface` if it hears several.

    Hosts match by their full name or its first label. Switches above the leaves stay unknown: LLDP alone does not tell
    a spine from a host on several rails, since as many leaves hear either.
    Raises UsageError for a host that hears no switch, or several.
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
            f"{host[:60]} has no LLDP neighbour",
            hint="run lldpd there, and save the output of lldpctl -f json as NAME.json with the host's name",
        )
    if interface and interface not in peers:
        raise UsageError(
            f"{host[:60]} has no LLDP neighbour at {interface[:40]}",
            hint=f"it has neighbours at {', '.join(sorted(peers))[:200]}",
        )
    chosen = [peers[interface]] if interface else list(dict.fromkeys(peers.values()))
    if len(chosen) > 1:
        ports = ", ".join(f"{switch} at {port}" for port, switch in sorted(peers.items()))
        raise UsageError(
            f"{host[:60]} has several switches as LLDP neighbours: {ports[:200]}",
            hint="a search uses one port of each host: name it with --interfaces",
        )
    return chosen[0]


def _short(host: str) -> str:
    return host.partition(".")[0]

"""The FRR configuration of every node, as text, and the argument lists that start its daemons. Pure.

BGP unnumbered: sessions use the link-local IPv6 addresses of each cable, which router advertisements make known; IPv4
routes have IPv6 next hops (RFC 8950). Every route to and from a neighbour passes a route map that permits only the
lab's prefixes, so a mistake in a lab cannot announce anything else.

A host announces the addresses of rail r through the port of rail r only, so that traffic to them arrives there. It
prefers that port for the rail-r addresses of other hosts, so that traffic to them leaves there; the other ports remain
as alternatives. Loopbacks are announced through every port.
"""

from __future__ import annotations

from collections.abc import Sequence

from railwright.lab.nodes import LabPlan, Node, host_route
from railwright.lab.plan import PREFIX_V4, PREFIX_V6

KEEPALIVE_S, HOLD_S = 3, 9
"""A link that goes down ends its session at once; the hold time matters only for a silent link.
On two cores with full links, daemons could miss a shorter hold time, which would look like a fault of the fabric."""
MAXIMUM_PATHS = 64
_PREFERRED = 200  # above BGP's default local preference of 100
_ADVERTISE_EVERY_S = 1
"""The interval of router advertisements. A session starts with the first one received after both daemons run."""


def zebra_text(plan: LabPlan, node: Node) -> str:
    """Return `zebra.conf`. FRR 10's zebra ignores interfaces in its file and keeps its own interval of ten seconds."""
    # A nexthop group in the kernel loses a hop when its link goes down, and zebra never restores it.
    lines = [f"hostname {node.name}", "no zebra nexthop kernel enable"]
    ports = [] if node.frr == "10" else [cable.port_of(node.name) for cable in plan.cables_of(node.name)]
    for port in ports:
        lines += [f"interface {port}", " no ipv6 nd suppress-ra", f" ipv6 nd ra-interval {_ADVERTISE_EVERY_S}"]
    return "\n".join([*lines, ""])


def bgpd_text(plan: LabPlan, node: Node) -> str:
    """Return `bgpd.conf`."""
    ports = [cable.port_of(node.name) for cable in plan.cables_of(node.name)]
    lines = [f"hostname {node.name}", *_policies(node)]
    lines += [
        f"router bgp {node.asn}",
        f" bgp router-id {node.router_id}",
        " no bgp default ipv4-unicast",
        " bgp bestpath as-path multipath-relax",
        " neighbor FABRIC peer-group",
        " neighbor FABRIC remote-as external",
        " neighbor FABRIC advertisement-interval 0",
        f" neighbor FABRIC timers {KEEPALIVE_S} {HOLD_S}",
        " neighbor FABRIC timers connect 1",
        " neighbor FABRIC capability extended-nexthop",
    ]
    lines += [f" neighbor {port} interface peer-group FABRIC" for port in ports]
    for family in ("ipv6",) if plan.ipv6_only else ("ipv4", "ipv6"):
        networks = [host_route(address) for address in node.addresses if (":" in address) == (family == "ipv6")]
        lines += _family(family, node, ports, networks)
    return "\n".join([*lines, ""])


def _family(family: str, node: Node, ports: Sequence[str], networks: Sequence[str]) -> list[str]:
    lines = [f" address-family {family} unicast", *(f"  network {network}" for network in networks)]
    lines.append("  neighbor FABRIC activate")
    for port in ports:
        name = port.upper() if node.kind == "host" else "LAB"
        lines += [f"  neighbor {port} route-map {name}-IN in", f"  neighbor {port} route-map {name}-OUT out"]
    return [*lines, f"  maximum-paths {MAXIMUM_PATHS}", " exit-address-family"]


def _policies(node: Node) -> list[str]:
    """Return prefix lists and route maps: a pair for all neighbours of a switch, or for each rail of a host."""
    lines = [_allow("LAB", f"{PREFIX_V4} ge 32"), _allow("LAB", f"{PREFIX_V6} ge 128")]
    if node.kind != "host":
        for direction in ("IN", "OUT"):
            lines += _permit(f"LAB-{direction}", 10, "LAB")
        return lines
    for rail in node.rails:
        name = rail.port.upper()
        # A prefix list has a single family; IPv4 comes first.
        addresses = sorted((*rail.addresses, *node.loopbacks), key=lambda address: ":" in address)
        lines += [_allow(f"{name}-OWN", host_route(address)) for address in addresses]
        lines += _permit(f"{name}-OUT", 10, f"{name}-OWN")
        # The addresses of this rail on all hosts, as numbered by `lab.plan`.
        lines += [_allow(name, _cover_prefix(address)) for address in rail.addresses]
        lines += _permit(f"{name}-IN", 10, name, f" set local-preference {_PREFERRED}")
        lines += _permit(f"{name}-IN", 30, "LAB")
    return lines


def _allow(prefix_list: str, prefix: str) -> str:
    return f"{'ipv6' if ':' in prefix else 'ip'} prefix-list {prefix_list} permit {prefix}"


def _cover_prefix(address: str) -> str:
    """Return the prefix of all host routes of a rail: their addresses differ only in the last number."""
    if ":" in address:
        return f"{address.rpartition('::')[0]}::/64 ge 128"
    return f"{address.rpartition('.')[0]}.0/24 ge 32"


def _permit(route_map: str, number: int, prefix_list: str, *actions: str) -> list[str]:
    """Return a permit entry each for IPv4 and IPv6. FRR denies everything else."""
    lines = []
    for entry, family in ((number, "ip"), (number + 10, "ipv6")):
        lines += [f"route-map {route_map} permit {entry}", f" match {family} address prefix-list {prefix_list}"]
        lines += actions
    return [*lines, "exit"]


def start_argv(program: Sequence[str], daemon: str, folder: str, pathspace: str | None) -> list[str]:
    """Return the argument list that starts a daemon in the background.

    Its files are in `folder`; for FRR 10 also in the folder of the pathspace.
    """
    words = [
        *program, "-d", "-u", "frr", "-g", "frr", "--vty_socket", folder, "-z", f"{folder}/zserv.api",
        "-i", f"{folder}/{daemon}.pid", "-P", "0", "--log", f"file:{folder}/{daemon}.log",
    ]  # fmt: skip
    # The management daemon does not read a configuration file.
    words += ["-f", f"{folder}/{daemon}.conf"] if daemon != "mgmtd" else []
    return [*words, "-N", pathspace] if pathspace is not None else words

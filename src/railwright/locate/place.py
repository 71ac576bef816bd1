"""The place of a search: a fabric, the address of each of its ports, and the reach to its hosts."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from railwright.diagnosis.localise.fabric import Fabric
from railwright.diagnosis.localise.prescribed import fabric_of_subnet, find_ports
from railwright.errors import UsageError
from railwright.lab.nodes import LabPlan
from railwright.lab.reach import LabReach
from railwright.lab.state import Lab
from railwright.launch.hosts import Hosts, Reach
from railwright.locate.host_fabric import build_host_fabric
from railwright.locate.lab_fabric import build_lab_fabric, nic_rate_bits_per_s
from railwright.locate.switch_tree import SwitchTree
from railwright.topology.subnet import Subnet
from railwright.units import format_count

_WATCH_S = 0.5
_UNKNOWN_TOPOLOGY = "links between switches, and routes: the cabling of the switches is unknown"
_LEAVES_ALONE = "the links above a leaf one by one, and routes: only the leaf of each host is known"
_ADAPTIVE = "a single path: adaptive routing spreads a flow over many, so that only its rate and its spread are visible"


def _observe_nothing(_classes: Iterable[int]) -> dict[int, float]:
    return {}


@dataclass(frozen=True)
class Place:
    """A fabric to search, with addresses, reach and facts about its routing. Immutable."""

    fabric: Fabric
    described: str
    routing: str
    reach: Reach
    addresses: tuple[str, ...]
    """The address of each NIC port."""
    names: dict[str, str]
    """The switch or host of every address that may answer a trace; empty if paths are not traced."""
    rate_bits_per_s: float | None
    """The rate of a NIC port; None compares flows with the fastest."""
    mtu_bytes: int | None
    """The MTU of the fabric; None if unknown."""
    busy: Callable[[Iterable[int]], dict[int, float]] = _observe_nothing
    """Returns, for each class whose counters can be read, the share of its rate that other traffic takes.

    It must be called while no probe runs.
    """
    cannot_tell: tuple[str, ...] = ()
    """Questions that no search can answer here, each with the reason."""
    uplinks_assumed: bool = False
    """Whether the rate of a leaf's uplinks is unknown and derived from the number of its hosts."""


def make_lab_place(lab: Lab, hosts: Sequence[str] = ()) -> Place:
    """Return the place of these hosts of a lab, or of all. Raises UsageError for a lab without rates."""
    plan, fabric = lab.plan, build_lab_fabric(lab.plan, hosts)
    ports = [
        plan.node(fabric.hosts[host]).rail(rail)
        for host, rail in zip(fabric.nic_host, _rails(plan, fabric), strict=True)
    ]
    return Place(
        fabric=fabric,
        described=f"lab {lab.name}: {plan.summary()}",
        routing="BGP with ECMP by addresses and ports",
        reach=LabReach(fabric.hosts, lab),
        addresses=tuple((port.addresses_v4 or port.addresses_v6)[0] for port in ports),
        names={address: node.name for node in plan.nodes for address in (*node.addresses, node.router_id)},
        rate_bits_per_s=nic_rate_bits_per_s(plan),
        mtu_bytes=plan.cables[0].mtu_bytes,
        busy=lambda classes: _measure_load(lab, fabric, classes),
    )


def _rails(plan: LabPlan, fabric: Fabric) -> list[int]:
    of_port = {(host.name, port.port): port.rail for host in plan.of_kind("host") for port in host.rails}
    names = (fabric.hosts[host] for host in fabric.nic_host)
    return [of_port[name, port] for name, port in zip(names, fabric.nic_port, strict=True)]


def make_subnet_place(
    hosts: Hosts, subnet: Subnet, routing: str = "unknown", adapter: str = "", *, rdma: bool = False
) -> Place:
    """Return the place that consists of one port of each host in an InfiniBand subnet, reached by IP over InfiniBand.

    With `rdma` it is reached by RDMA over that port, whatever addresses the host has. Packets follow the subnet's
    forwarding tables.

    Raises CannotJudge, UsageError.
    """
    ports = find_ports(subnet, hosts.names, adapter)
    unnamed = next((host for host, port in ports if port.isdecimal()), "") if rdma else ""
    if unnamed:
        raise UsageError(f"the subnet does not name the RDMA device of {unnamed[:60]}",
                         hint="name ports with --ports, without --cabling")  # fmt: skip
    fabric = fabric_of_subnet(subnet, ports)
    if not hosts.reach.shares_files:
        hosts.reach.check()
    return Place(
        fabric=fabric,
        described=f"{len(hosts.names)} hosts by {hosts.reach.name}, {len(fabric.switches)} switches by their tables",
        routing=routing,
        reach=hosts.reach,
        addresses=_name_hosts(fabric) if rdma else hosts.reach.find_addresses(hosts.used_interfaces),
        names={},
        rate_bits_per_s=None,
        mtu_bytes=None,
        cannot_tell=(_ADAPTIVE,) if routing == "adaptive" else (),
    )


def make_hosts_place(
    hosts: Hosts,
    routing: str = "unknown",
    tree: SwitchTree | None = None,
    oversubscription: float = 1.0,
    gpus: int = 0,
    rdma: Sequence[str] | Mapping[str, Sequence[str]] = (),
) -> Place:
    """Return the place of a port, `gpus` GPUs or the `rdma` ports of each host, on one switch or below known leaves.

    `rdma` has ports that all hosts have, or maps each host to its own.
    The network above the leaves counts as a single switch; a leaf's uplink has the rate of all its hosts over the
    oversubscription. Raises CannotJudge, UsageError.
    """
    reach = hosts.reach
    if isinstance(reach, LabReach) and not gpus and not rdma:
        raise UsageError("--hosts must not name hosts of a lab", hint="search the lab: railwright locate --lab NAME")
    port = hosts.used_interfaces[0] if hosts.used_interfaces else "port"
    ports = tuple(f"gpu{number}" for number in range(gpus)) or rdma or (port,)
    fabric = build_host_fabric(hosts.names, ports, tree, oversubscription)
    if not reach.shares_files:
        reach.check()
    leaves = len(fabric.switches) - 1
    known, unknown = (
        (f"below {leaves} leaves", _LEAVES_ALONE) if leaves else ("their network unknown", _UNKNOWN_TOPOLOGY)
    )
    return Place(
        fabric=fabric,
        described=f"{len(hosts.names)} hosts by {reach.name}, {known}"
        + (f", {format_count(gpus, 'GPU')} of each" if gpus else "")
        + (", all near RDMA ports of each" if isinstance(rdma, Mapping) else "")
        + (f", {format_count(len(rdma), 'RDMA port')} of each" if rdma and not isinstance(rdma, Mapping) else ""),
        routing=routing,
        reach=reach,
        addresses=_name_hosts(fabric) if gpus or rdma else reach.find_addresses(hosts.used_interfaces),
        names={},
        rate_bits_per_s=None,
        mtu_bytes=None,
        cannot_tell=(unknown, _ADAPTIVE) if routing == "adaptive" else (unknown,),
        uplinks_assumed=leaves > 0,
    )


def _name_hosts(fabric: Fabric) -> tuple[str, ...]:
    """Return names in place of addresses, like `node1:gpu0`: GPUs and ports are found by their ranks."""
    return tuple(fabric.node_name(nic) for nic in range(fabric.nics))


def _measure_load(lab: Lab, fabric: Fabric, classes: Iterable[int]) -> dict[int, float]:
    """Return the load of each class, from the byte counters of its sending port."""
    ports = {}
    for number in classes:
        cable, down = divmod(number, 2)
        end = fabric.upper[cable] if down else fabric.lower[cable]
        name = fabric.node_name(end) if end >= fabric.nics else fabric.hosts[fabric.nic_host[end]]
        ports[number] = name, fabric.ports[cable][down]
    before = {number: _sent_bytes(lab, *port) for number, port in ports.items()}
    begun = time.monotonic()
    time.sleep(_WATCH_S)
    after = {number: _sent_bytes(lab, *port) for number, port in ports.items()}
    took_s = time.monotonic() - begun
    rates = _rates(lab.plan)
    found = {}
    for number, port in ports.items():
        first, last = before[number], after[number]
        if first is not None and last is not None:
            found[number] = (last - first) * 8 / took_s / rates[port]
    return found


def _rates(plan: LabPlan) -> dict[tuple[str, str], float]:
    """Return the rate of each port, in bit/s."""
    rates: dict[tuple[str, str], float] = {}
    for cable in plan.cables:
        for end in ((cable.a, cable.a_port), (cable.b, cable.b_port)):
            rates[end] = cable.rate_bits_per_s or 1e12
    return rates


def _sent_bytes(lab: Lab, node: str, port: str) -> int | None:
    ended = lab.run(node, ["cat", f"/sys/class/net/{port}/statistics/tx_bytes"])
    text = "".join(ended.output).strip()
    return int(text) if ended.returncode == 0 and text.isdecimal() else None

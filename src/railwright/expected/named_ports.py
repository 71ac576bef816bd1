"""Messages by verbs: over each named port by its own path, over several as their sum, with the headers of the run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace as change

from msgspec.structs import replace

from railwright.expected.bands import scale_band
from railwright.expected.machine import Machine
from railwright.expected.rails import sum_port_rates
from railwright.limits.limit import Bounds, Limit
from railwright.results.declarations import no_limit
from railwright.results.workload import Message
from railwright.topology.devices import NetworkLink, Topology
from railwright.topology.near_nics import name_nic

_MAX_NAMED = 64


def expect_over_named(workload: Message, machine: Machine, bound: Callable[[Message, Machine], Bounds]) -> Bounds:
    """Return the bounds of messages over the ports that a workload names.

    `bound` gives those of messages over the nearest port of a machine that has no other.
    """
    if not workload.nics:
        return bound(workload, machine)
    names = list(dict.fromkeys(workload.nics.split("+")))[:_MAX_NAMED]
    absent = [name for name in names if not _find_nics(machine.host, [name])]
    if absent:
        return no_limit(workload, f"the topology has no RDMA port {absent[0][:64]}")
    unnamed = replace(workload, nics="")
    each = [_expect_over_port(unnamed, _keep_ports(machine, [name]), name, bound) for name in names]
    limits = [limit for limit, _ in each if isinstance(limit, Limit)]
    if len(each) == 1 or len(limits) < len(each):
        return next((one for one in each if not isinstance(one[0], Limit)), each[0])
    band, together = each[0][1], _keep_ports(machine, names).host
    ways = 1 + workload.both_ways
    total = sum(limit.value for limit in limits)
    if max(_count_bonded(machine.host, name) for name in names) == 1:
        total = min(total, ways * sum_port_rates(together))
    share = total / limits[0].value
    because = f"{len(names)} ports at once, each: {limits[0].because}"
    return replace(limits[0], value=total, because=because), scale_band(
        band, share, share
    ) if band is not None else None


def _expect_over_port(
    workload: Message, machine: Machine, name: str, bound: Callable[[Message, Machine], Bounds]
) -> Bounds:
    """Return the bounds over a port. With RoCE LAG it stands for a bond, over whose ports queue pairs are spread.

    A queue pair stays on one port, and several may share it (NVIDIA, RoCE over LAG), so only the upper ends rise.
    """
    limit, band = bound(workload, machine)
    ports = min(_count_bonded(machine.host, name), workload.queue_pairs)
    if ports == 1 or not isinstance(limit, Limit):
        return limit, band
    because = f"{limit.because}, on {ports} ports of a bond"
    return replace(limit, value=ports * limit.value, because=because), band and scale_band(band, 1, ports)


def _count_bonded(host: Topology, name: str) -> int:
    """Return the number of ports in the bond of an RDMA port, or 1."""
    nics = (nic for nic, _ in host.ports_out if name_nic(nic) == name)
    return next((len(str(nic.facts["bond_ports"]).split()) for nic in nics if "bond_ports" in nic.facts), 1) or 1


def _find_nics(host: Topology, names: list[str]) -> set[str]:
    return {nic.id for nic, _ in host.ports_out if name_nic(nic) in names}


def _keep_ports(machine: Machine, names: list[str]) -> Machine:
    """Return the machine without the network links of all other ports."""
    kept = _find_nics(machine.host, names)

    def reduce(host: Topology) -> Topology:
        links = [link for link in host.links if not isinstance(link.protocol, NetworkLink) or {link.a, link.b} & kept]
        return replace(host, links=tuple(links))

    case = machine.case
    cluster = replace(machine.cluster, host=reduce(machine.cluster.host))
    if case is not None:
        case = replace(case, cluster=replace(case.cluster, host=reduce(case.cluster.host)))
    return change(machine, cluster=cluster, case=case)

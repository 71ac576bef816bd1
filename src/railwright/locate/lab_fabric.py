"""The fabric of a search in a lab, from the lab's plan. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from railwright.diagnosis.localise.fabric import CableSpec, Fabric, Path, build_fabric
from railwright.errors import UsageError
from railwright.lab.nodes import LabPlan


def build_lab_fabric(plan: LabPlan, hosts: Sequence[str] = ()) -> Fabric:
    """Return the fabric of these hosts, or of all, with switches and cables.

    Raises UsageError for a lab without rates, in which no link can be called slow.
    """
    rate = nic_rate_bits_per_s(plan)
    chosen = [plan.node(name) for name in hosts] or plan.of_kind("host")
    nics = [(host.name, port.port, port.rail) for host in chosen for port in host.rails]
    left_out = {host.name for host in plan.of_kind("host")} - {host.name for host in chosen}
    switches = [node.name for kind in ("leaf", "spine", "superspine") for node in plan.of_kind(kind)]
    cables = [
        CableSpec(cable.a, cable.a_port, cable.b, cable.b_port, (cable.rate_bits_per_s or rate) / rate)
        for cable in plan.cables
        if cable.a not in left_out
    ]
    return build_fabric(nics, switches, cables)


def nic_rate_bits_per_s(plan: LabPlan) -> float:
    """Return the rate of a NIC's port. Raises UsageError if ports have none."""
    rate = plan.cables[0].rate_bits_per_s
    if rate is None:
        raise UsageError(f"the ports of lab {plan.name} have no rate", hint="make the lab with --rate 100Mb/s")
    return rate


def find_path(fabric: Fabric, source: int, destination: int, nodes: tuple[str, ...]) -> Path | None:
    """Return the classes that a flow crosses, given its traced nodes; None if the path is incomplete."""
    numbers = {name: fabric.nics + number for number, name in enumerate(fabric.switches)}
    switches = [numbers.get(name) for name in nodes[:-1]]
    host = fabric.hosts[fabric.nic_host[destination]]
    if not switches or None in switches or nodes[-1] != host or len(switches) % 2 == 0:
        return None
    known = [number for number in switches if number is not None]
    top = len(known) // 2
    if known[0] != fabric.leaf_of(source) or known[-1] != fabric.leaf_of(destination):
        return None
    up, down = known[: top + 1], known[top:][::-1]
    cables: list[int] = []
    for chain in (up, down):
        for lower, upper in pairwise(chain):
            cables_between = fabric.joining.get((lower, upper))
            if cables_between is None:
                return None
            cables.append(cables_between[0])
    ups, downs = cables[:top], cables[top:]
    return (
        2 * source,
        *(2 * cable for cable in ups),
        *(2 * cable + 1 for cable in reversed(downs)),
        2 * destination + 1,
    )

"""A lab's state, and the paths of probe packets in it, as plain lines."""

from __future__ import annotations

from collections.abc import Iterator

from railwright.lab.status import LabStatus
from railwright.lab.traffic import Probe
from railwright.units import format_duration


def status_lines(seen: LabStatus) -> Iterator[str]:
    """Yield the lab's state, a line for each node with its routes, and the ssh command if the hosts have an sshd."""
    yield f"lab {seen.name}: {seen.state}"
    for node in seen.nodes:
        routes = f"{node.routes_expected - node.routes_incomplete} of {node.routes_expected} routes"
        lacking = f", missing through {', '.join(node.ports_lacking[:6])}" if node.ports_lacking else ""
        addresses = " ".join(node.addresses)
        yield f"  {node.name:<12} AS {node.asn}  {node.processes} processes  {routes}{lacking}  {addresses}"
    if seen.ssh_config is not None:
        yield f"  from host to host: ssh -F {seen.ssh_config} {seen.nodes[0].name}"


def probe_lines(seen: Probe) -> Iterator[str]:
    """Yield the two ends, each path that packets took between them, and the TCP rate over all paths."""
    route = seen.route
    yield f"{route.source} {route.source_address} to {route.destination} {route.destination_address}, rail {route.rail}"
    for way in seen.ways:
        delay = "nothing arrived"
        if way.delay_median_s is not None and way.delay_max_s is not None:
            delay = f"one way {format_duration(way.delay_median_s)}, at most {format_duration(way.delay_max_s)}"
        flows = f"{len(way.source_ports)} flow{'' if len(way.source_ports) == 1 else 's'}"
        rate = f"TCP {way.bandwidth_bytes_per_s * 8 / 1e6:.3g} Mb/s"
        if way.failed_flows:
            rate += f" ({way.failed_flows} without a connection)"
        yield f"  {' '.join(way.nodes)}: {flows}, {way.lost} of {way.sent} packets lost, {delay}, {rate}"
    yield f"  TCP in all {seen.bandwidth_bytes_per_s * 8 / 1e6:.3g} Mb/s"

"""A lab's state, and what packets met in it, as plain lines."""

from __future__ import annotations

from collections.abc import Iterator

from railwright.lab.status import LabStatus
from railwright.lab.traffic import Probe
from railwright.units import format_duration


def status_lines(seen: LabStatus) -> Iterator[str]:
    """The lab, its nodes with what each lacks, and the way from host to host."""
    yield f"lab {seen.name}: {seen.state}"
    for node in seen.nodes:
        routes = f"{node.routes_expected - node.routes_incomplete} of {node.routes_expected} routes"
        lacking = f", missing through {', '.join(node.ports_lacking[:6])}" if node.ports_lacking else ""
        addresses = " ".join(node.addresses)
        yield f"  {node.name:<12} AS {node.asn}  {node.processes} processes  {routes}{lacking}  {addresses}"
    if seen.ssh_config is not None:
        yield f"  from host to host: ssh -F {seen.ssh_config} {seen.nodes[0].name}"


def probe_lines(seen: Probe) -> Iterator[str]:
    """The two ends, and each way between them that packets took."""
    way = seen.route
    yield f"{way.source} {way.source_address} to {way.destination} {way.destination_address}, rail {way.rail}"
    for one in seen.ways:
        delay = "nothing arrived"
        if one.delay_median_s is not None and one.delay_max_s is not None:
            delay = f"one way {format_duration(one.delay_median_s)}, at most {format_duration(one.delay_max_s)}"
        flows = f"{len(one.source_ports)} flow{'' if len(one.source_ports) == 1 else 's'}"
        rate = f"TCP {one.bandwidth_bytes_per_s * 8 / 1e6:.3g} Mb/s"
        if one.failed_flows:
            rate += f" ({one.failed_flows} without a connection)"
        yield f"  {' '.join(one.nodes)}: {flows}, {one.lost} of {one.sent} packets lost, {delay}, {rate}"
    yield f"  TCP in all {seen.bandwidth_bytes_per_s * 8 / 1e6:.3g} Mb/s"

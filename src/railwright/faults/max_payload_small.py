"""PCIe packets with a smaller payload than every port between a device and the CPU supports.

The lowest capability in a tree decides (Linux drivers/pci/probe.c, `pcie_bus_config`), so a device is compared with
the lowest capability on its path and not with its own.
"""

from __future__ import annotations

from functools import partial

from msgspec.structs import replace

from railwright.checks import needs
from railwright.checks.check import Facts, Findings
from railwright.checks.host_settings import is_virtual
from railwright.checks.parts import find_uplink, list_pcie_uplinks
from railwright.faults.cases import gpus_use_pcie, replace_host
from railwright.faults.fault import Fault, Hypotheses
from railwright.limits.case import Case
from railwright.limits.pcie import MAX_PAYLOAD_RANGE, payload_rate
from railwright.topology.changes import change_pcie
from railwright.topology.devices import DeviceKind, Link, PcieLink, Topology
from railwright.topology.gpus import format_runs

_KINDS: tuple[DeviceKind, ...] = ("gpu", "nic", "drive")
_USUAL_BYTES = 256
"""The usual payload of servers; a smaller one loses more than 7 % of a link's rate."""


def _signs(facts: Facts) -> Findings:
    topology = facts.topology
    found: dict[tuple[int, int], dict[str, None]] = {}
    for device in topology.of_kind(*_KINDS):
        links = _list_links_to_cpu(topology, device.id)
        sizes = [link.protocol.max_payload_bytes for link in links if isinstance(link.protocol, PcieLink)]
        able = [link.protocol.max_payload_supported_bytes for link in links if isinstance(link.protocol, PcieLink)]
        now, best = (min((size for size in some if size), default=0) for some in (sizes, able))
        if sizes and None not in able and 0 < now < best:
            found.setdefault((now, best), {})[device.id] = None
    for (now, best), devices in found.items():
        certain = now < _USUAL_BYTES and not is_virtual(topology)
        lost = 1 - payload_rate(1.0, now) / payload_rate(1.0, best)
        yield FAULT.finding(
            devices,
            f"PCIe packets of {format_runs(devices)} carry {now} bytes, but all ports on the path support {best}",
            ("MaxPayload", f"{now} B", "PCIe Device Control register"),
            certainty="seen" if certain else "possible",
            costs=f"{lost:.1%} of the link in headers (limits of PCIe, TLP overhead)",
        )


def _list_links_to_cpu(topology: Topology, device_id: str) -> list[Link]:
    """Return the links between a device and its CPU, nearest first."""
    links: list[Link] = []
    while (link := find_uplink(topology, device_id)) is not None and link not in links:
        links.append(link)
        device_id = link.a
    return links


def _build_with_and_without(topology: Topology) -> tuple[Topology, Topology]:
    """Raise every link to the payload that all ports support."""
    able = (link.protocol.max_payload_supported_bytes for link in topology.links if isinstance(link.protocol, PcieLink))
    minimum = min((size for size in able if size), default=0)

    def change(link: PcieLink) -> PcieLink:
        return replace(link, max_payload_bytes=max(link.max_payload_bytes or 0, minimum) or None)

    return topology, change_pcie(topology, [link.id for link in topology.links], change)


def _explain_unread(topology: Topology) -> str:
    links = [(link.id, link.protocol) for link in topology.links if isinstance(link.protocol, PcieLink)]
    blind = [name for name, pcie in links if pcie.max_payload_bytes is None or pcie.max_payload_supported_bytes is None]
    return f"MaxPayload of {len(blind)} PCIe links cannot be read (root may read it)" if blind else ""


def _hypotheses(case: Case) -> Hypotheses:
    """Yield small payloads as a hypothesis if GPUs of one host use PCIe; the loss at NICs is within their bands."""
    if not gpus_use_pcie(case) or case.cluster.hosts > 1:
        return
    links = list_pcie_uplinks(case.cluster.host, case.cluster.host.of_kind("gpu"))
    large = [link.id for link in links if isinstance(link.protocol, PcieLink)
             and (link.protocol.max_payload_bytes or _USUAL_BYTES) >= _USUAL_BYTES]  # fmt: skip
    if large:
        small = partial(replace, max_payload_bytes=int(MAX_PAYLOAD_RANGE[0].value))
        yield FAULT.supposed(
            f"PCIe packets of the GPUs carry {MAX_PAYLOAD_RANGE[0].value:.0f} bytes",
            replace_host(case, change_pcie(case.cluster.host, large, small)),
            "as root: lspci -vv -s ADDRESS | grep -A1 DevCtl (MaxPayload of the GPU and every port above it)",
        )


FAULT = Fault(
    name="max_payload_small",
    summary="PCIe packets are smaller than all ports on the path support",
    right="PCIe packets are as large as all ports on the path support",
    remedy="pci=pcie_bus_perf on the kernel's command line, or MaxPayload in the BIOS; check with lspci -vv -s"
    " ADDRESS | grep -A1 DevCtl",
    signs=_signs,
    needs=(needs.settings, needs.pcie_link),
    asks=(_explain_unread,),
    mend=_build_with_and_without,
    ways=_hypotheses,
)

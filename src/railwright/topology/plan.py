"""Checked changes of a named shape by the user."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TypeVar

from msgspec.structs import replace

from railwright.errors import UsageError, unknown_name
from railwright.topology.devices import (
    ETHERNET_MTU,
    GT_PER_S,
    INFINIBAND_MTU,
    EfaLink,
    EthernetLink,
    InfinibandLink,
    NetworkLink,
)
from railwright.topology.shapes.parts import CpuPart, DrivePart, Layout, NvlinkPart, Pcie, Shape
from railwright.units import format_line_rate, parse_line_rate

_T = TypeVar("_T")
_LAYOUT_COUNTS: dict[str, tuple[int, ...]] = {
    "gpus": tuple(range(17)),
    "gpus-per-switch": tuple(range(9)),
    "nics": tuple(range(33)),
    "drives": tuple(range(33)),
    "sockets": (1, 2, 4, 8),
    "numa-per-socket": (1, 2, 4),
}
"""The counts of a `Layout` that can be changed; its field names have an underscore for each dash."""
_COUNTS = {
    **_LAYOUT_COUNTS, "pcie": tuple(GT_PER_S), "drive-pcie": tuple(GT_PER_S), "nvlink": tuple(range(19)),
    "max-payload": (128, 256, 512, 1024, 2048, 4096),
}  # fmt: skip
_GENERATIONS = ("pcie", "drive-pcie")
_MEMORY = re.compile(r"([1-9]\d?)x([1-9]\d{2,4})", re.ASCII | re.IGNORECASE)
"""Memory channels of a socket, and MT/s of each: `8x4800`."""
_IB_MTUS_BYTES = (256, 512, 1024, 2048, 4096)
_MIN_MTU_BYTES = 1280
"""The smallest MTU of IPv6 (RFC 8200)."""
_MAX_MTU_BYTES = {EthernetLink: 9978, EfaLink: 9001}
"""The largest MTU of ConnectX (maxmtu in `ip -d link`), and the largest in EC2."""
_PORTS: dict[str, NetworkLink] = {
    "ethernet": EthernetLink(mtu_bytes=9000, rdma=True, assumed=ETHERNET_MTU),
    "infiniband": InfinibandLink(mtu_bytes=4096, assumed=INFINIBAND_MTU),
    "efa": EfaLink(mtu_bytes=9001),
}
"""The port that replaces one of another protocol; it keeps its line rate."""
NIC_PROTOCOLS = {
    **{name: name for name in _PORTS},
    **dict.fromkeys(("ib", "infini-band"), "infiniband"),
    **dict.fromkeys(("roce", "rocev2", "roce-v2", "roce2", "eth"), "ethernet"),
}
"""The accepted spellings of a port's protocol, each with its key in `_PORTS`."""
_RATE_BITS_PER_S = (1e8, 3.2e12)
DRIVE_LANES = 4
"""The lanes of NVMe drives in U.2, U.3, E1.S and M.2."""
_ON_OFF = {"on": True, "off": False}
_SWITCHES = ("p2p", "gpudirect", "mnnvl")
_PLACES = {"switch": False, "cpu": True}
_NCCL_PROTOCOLS = {"ll": "LL", "ll128": "LL128", "simple": "Simple"}
CHANGES = (*_COUNTS, "memory", "nic-rate", "nic-protocol", "mtu", "nics-at", "protocol", *_SWITCHES)


def apply_changes(shape: Shape, name: str, changes: Mapping[str, str]) -> Shape:
    """Return the shape with the changes. Raises UsageError for an unknown or invalid change."""
    changes = _canonical_changes(changes)
    counts = {key: parse_count(key, changes[key]) for key in _COUNTS if key in changes}
    nic, gpu, nvlink = replace(shape.nic, port=change_port(shape.nic.port, changes)), shape.gpu, shape.nvlink
    if (
        not isinstance(nic.port, EthernetLink) or nic.port.rdma
    ):  # only ports without RDMA use TCP that bypasses the kernel
        nic = replace(nic, gpudirect_tcp=False)
    layout = replace(shape.layout, **{key.replace("-", "_"): counts[key] for key in _LAYOUT_COUNTS if key in counts})
    if "pcie" in counts:
        layout = replace(layout, uplink_generation=counts["pcie"], uplink_assumed=False)
        nic = replace(nic, pcie=replace(nic.pcie, generation=counts["pcie"], assumed=False))
        gpu = replace(gpu, pcie=replace(gpu.pcie, generation=counts["pcie"], assumed=False)) if gpu else None
    _check_gpus(shape, layout, name)
    links = counts.get("nvlink", nvlink.links if nvlink else 0)
    _check_nvlink(nvlink, links, layout.gpus, name)
    if nvlink and links != nvlink.links:
        nvlink = replace(nvlink, links=links, max_links=nvlink.links) if links else None
    if layout.drives and shape.drive is None:
        message = f"the drives of {name} are not published, so drives={layout.drives} cannot be modelled"
        raise UsageError(message, hint="leave drives out")
    drive = _change_drive(shape.drive, counts, name)
    shape = replace(
        shape, layout=layout, drive=drive, nic=nic, gpu=gpu, nvlink=nvlink, cpu=_change_memory(shape.cpu, changes)
    )
    if "max-payload" in counts:
        shape = replace(shape, max_payload_bytes=counts["max-payload"], payload_assumed=False)
    return _apply_switches(shape, changes, name)


def _change_memory(cpu: CpuPart, changes: Mapping[str, str]) -> CpuPart:
    """Return the CPU with the memory channels of a socket as given. Raises UsageError."""
    if "memory" not in changes:
        return cpu
    found = _MEMORY.fullmatch(changes["memory"])
    if found is None:
        raise _invalid_value("memory", changes["memory"], "channels of a socket x MT/s, like 8x4800")
    channels, rate = map(int, found.groups())
    return replace(cpu, memory=replace(cpu.memory, channels=channels, mt_per_s=rate, assumed=False))


def _change_drive(drive: DrivePart | None, counts: Mapping[str, int], name: str) -> DrivePart | None:
    """Return the drive with its PCIe generation as given. Raises UsageError if the shape has no drives."""
    if "drive-pcie" not in counts:
        return drive
    if drive is None:
        raise UsageError(f"the drives of {name} are not published", hint="leave drive-pcie out")
    width = drive.pcie.width or DRIVE_LANES
    return replace(drive, pcie=Pcie(counts["drive-pcie"], width))


def _canonical_changes(changes: Mapping[str, str]) -> dict[str, str]:
    """Return the changes by canonical key, in lower case and with `-` for `_`. Raises UsageError for an unknown or
    repeated change.
    """
    found: dict[str, str] = {}
    for written, value in changes.items():
        key = written.lower().replace("_", "-")
        if key not in CHANGES:
            raise unknown_name("change", key, CHANGES)
        if key in found:
            raise UsageError(f"{key} is given twice, as {found[key][:40]} and {value[:40]}", hint="leave one out")
        found[key] = value
    return found


def _apply_switches(shape: Shape, changes: Mapping[str, str], name: str) -> Shape:
    """Apply the changes that are on, off or a word: peer-to-peer, GPUDirect RDMA, NVLink beyond the host, the place of
    NICs, NCCL's protocol.
    """
    on = {key: parse_switch(key, changes[key]) for key in _SWITCHES if key in changes}
    if "nics-at" in changes:
        at_cpu = _parse_word("nics-at", changes["nics-at"], _PLACES)
        if not at_cpu and not shape.layout.switches:
            raise UsageError(f"nics-at=switch: {name} has no PCIe switches", hint="give gpus-per-switch too")
        shape = replace(shape, layout=replace(shape.layout, nics_on_root_ports=at_cpu))
    if "protocol" in changes:
        shape = replace(shape, nccl_protocol=_parse_word("protocol", changes["protocol"], _NCCL_PROTOCOLS))
    shape = replace(
        shape,
        peer_to_peer=on.get("p2p", shape.peer_to_peer),
        gpudirect_rdma=on.get("gpudirect", shape.gpudirect_rdma and shape.gpudirect_offered),
    )
    if not shape.peer_to_peer:  # NCCL then uses the host's memory instead of NVLink and switches
        shape = replace(shape, nvlink=None, xgmi=None, acs_redirect=True)
    if "mnnvl" in on:
        if shape.nvlink is None or shape.nvlink.domain_hosts is None:
            raise UsageError(f"mnnvl={changes['mnnvl']}: NVLink joins no hosts of {name}", hint="leave mnnvl out")
        shape = shape if on["mnnvl"] else replace(shape, nvlink=replace(shape.nvlink, domain_hosts=None))
    return shape


def parse_switch(key: str, text: str) -> bool:
    """Return the value of a change that is on or off. Raises UsageError."""
    return _parse_word(key, text, _ON_OFF)


def _parse_word(key: str, text: str, allowed: Mapping[str, _T]) -> _T:
    if text.lower() not in allowed:
        raise _invalid_value(key, text, ", ".join(allowed))
    return allowed[text.lower()]


def _check_gpus(shape: Shape, layout: Layout, name: str) -> None:
    gpu, xgmi, gpus, nodes = shape.gpu, shape.xgmi, layout.gpus, layout.nodes
    if gpus and gpu is None:
        raise UsageError(f"{name} has no GPUs, so gpus={gpus} cannot be modelled", hint="name a shape with GPUs")
    if gpu is not None and gpu.attachment == "c2c":
        if layout.gpus_per_switch:
            message = f"gpus-per-switch={layout.gpus_per_switch}: the GPUs of {name} are on NVLink-C2C, not on PCIe"
            raise UsageError(message, hint="leave gpus-per-switch out")
        if gpus % nodes and gpus > nodes:
            message = f"gpus={gpus}: each of the {nodes} CPUs of {name} must have the same number of GPUs"
            raise UsageError(message, hint=f"give a multiple of {nodes}")
    if xgmi is not None and gpus > xgmi.most_gpus:
        message = f"gpus={gpus}: Infinity Fabric joins at most {xgmi.most_gpus} GPUs of {name}"
        raise UsageError(message, hint=f"give 0 to {xgmi.most_gpus}")


def _check_nvlink(nvlink: NvlinkPart | None, links: int, gpus: int, name: str) -> None:
    maximum = nvlink.links if nvlink else 0
    if links > maximum:
        raise UsageError(f"nvlink={links}: a GPU of {name} has {maximum} links", hint=f"give 0 to {maximum}")
    if nvlink is None or not nvlink.pairs or not links:
        return
    if links != maximum:
        message = f"nvlink={links}: the links of {name} join fixed pairs of GPUs, so the missing links are ambiguous"
        raise UsageError(message, hint=f"give 0 or {maximum}")
    joined = 1 + max(max(first, second) for first, second, _ in nvlink.pairs)
    if gpus > joined:
        hint = f"give at most {joined}, or nvlink=0"
        raise UsageError(f"gpus={gpus}: NVLink joins {joined} GPUs of {name}", hint=hint)


def _invalid_value(key: str, text: str, allowed: str) -> UsageError:
    return UsageError(f"{key} must be {allowed}, got {text[:40]}", hint=f"correct {key}")


def parse_count(key: str, text: str) -> int:
    """Return the value of a change that is a number; PCIe generations may be written as `5.0`. Raises UsageError."""
    allowed = _COUNTS[key]
    text = text.removesuffix(".0") if key in _GENERATIONS else text
    if not (text.isascii() and text.isdigit() and len(text) <= 4 and int(text) in allowed):
        if key == "gpus" and text.isascii() and text.isdigit() and len(text) <= 7:
            message = f"gpus must be {allowed[0]} to {allowed[-1]} in one host, got {text}"
            raise UsageError(message, hint=f"for {text} GPUs in several hosts use --gpus {text}")
        span = f"{allowed[0]} to {allowed[-1]}" if len(allowed) > 4 else ", ".join(map(str, allowed))
        raise _invalid_value(key, text, span)
    return int(text)


def change_port(port: NetworkLink, changes: Mapping[str, str]) -> NetworkLink:
    """Return the port with `nic-protocol`, `nic-rate` and `mtu` from the changes. Raises UsageError."""
    protocol = changes.get("nic-protocol")
    if protocol is not None:
        protocol = NIC_PROTOCOLS.get(protocol.lower(), protocol)
        if protocol not in _PORTS:
            raise _invalid_value("nic-protocol", protocol, ", ".join(_PORTS))
        asks_for_rdma = changes["nic-protocol"].lower().startswith("roce")
        is_roce = asks_for_rdma and isinstance(port, EthernetLink) and not port.rdma
        if type(port) is not type(_PORTS[protocol]) or is_roce:
            port = replace(_PORTS[protocol], line_rate_bits_per_s=port.line_rate_bits_per_s)
    if "nic-rate" in changes:
        still = _PORTS[_name_protocol(port)].assumed if port.assumed.startswith("nic-rate") else port.assumed
        port = replace(port, line_rate_bits_per_s=_parse_rate(changes["nic-rate"]), assumed=still)
    if "mtu" in changes:
        still = "" if port.assumed.startswith("mtu") else port.assumed
        port = replace(port, mtu_bytes=_parse_mtu(changes["mtu"], port), assumed=still)
    return port


def _name_protocol(port: NetworkLink) -> str:
    """Return the key in `_PORTS` of a port's protocol."""
    return next(name for name, known in _PORTS.items() if type(known) is type(port))


def _parse_rate(text: str) -> float:
    rate = parse_line_rate(text)
    low, high = _RATE_BITS_PER_S
    if not low <= rate <= high:
        raise _invalid_value("nic-rate", text, f"{format_line_rate(low)} to {format_line_rate(high)}")
    return rate


def _parse_mtu(text: str, port: NetworkLink) -> int:
    value = int(text) if text.isascii() and text.isdigit() and len(text) <= 6 else -1
    if isinstance(port, InfinibandLink):
        if value not in _IB_MTUS_BYTES:
            hint = f"give {', '.join(map(str, _IB_MTUS_BYTES))}"
            raise UsageError(f"mtu must be an InfiniBand MTU, got {text[:40]}", hint=hint)
    elif not _MIN_MTU_BYTES <= value <= _MAX_MTU_BYTES[type(port)]:
        raise _invalid_value("mtu", text, f"{_MIN_MTU_BYTES} to {_MAX_MTU_BYTES[type(port)]} bytes")
    return value

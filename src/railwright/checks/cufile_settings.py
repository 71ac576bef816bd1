"""cuFile settings for a machine: the NICs to use, and the route to GPUs that have none nearby.

NVIDIA, GPUDirect Storage Configuration Guide, "GPUDirect Storage Parameters", and Overview Guide, "Dynamic Routing".
Settings that do not depend on the topology (sizes of buffers and batches) keep cuFile's defaults.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Literal

import msgspec

from railwright.checks.storage_ways import storage_ways
from railwright.errors import CannotJudge, UsageError
from railwright.reading import decode_json
from railwright.topology.devices import Device, EthernetLink, InfinibandLink, NvlinkLink, Topology
from railwright.topology.gpus import is_nvidia
from railwright.topology.paths import Affinity

ADDRESSES, ROUTING, ORDER = "rdma_dev_addr_list", "rdma_dynamic_routing", "rdma_dynamic_routing_order"
FALLBACK, FORCED, P2PDMA = "allow_compat_mode", "force_compat_mode", "use_pci_p2pdma"
_UNDER_A_SWITCH = ("PIX", "PXB")
_SLOW_SHARE = 0.5
"""A NIC slower than this share of the fastest serves another purpose: management, the front-end network."""
_COMMENT = re.compile(r'("(?:\\.|[^"\\])*")|//[^\n]*')

Value = bool | str | tuple[str, ...]


class Setting(msgspec.Struct, frozen=True, kw_only=True):
    """An entry of `properties`, with its reason."""

    key: str
    value: Value
    why: str


class CheckedEntry(msgspec.Struct, frozen=True, kw_only=True):
    """An entry of an existing file, compared with the recommended value."""

    key: str
    state: Literal["ok", "bad", "not looked"]
    seen: str
    remedy: str = ""


class _NearestNics(msgspec.Struct, frozen=True):
    """The NICs that cuFile may use, with the GPUs nearest to each."""

    nics: tuple[Device, ...]
    gpus_of: dict[str, tuple[str, ...]]
    without: tuple[str, ...]
    """GPUs that reach these NICs only through the CPU."""


def find_nearest_nics(topology: Topology) -> _NearestNics:
    """Return the RDMA NICs nearest to each GPU. Raises UsageError if there is no NVIDIA GPU."""
    gpus = [gpu for gpu in topology.of_kind("gpu") if is_nvidia(gpu)]
    if not gpus:
        raise UsageError(f"{topology.name} has no NVIDIA GPU, which cuFile requires",
                         hint="give a machine that has one with --from")  # fmt: skip
    rates = {nic.id: rate for nic in topology.of_kind("nic") if (rate := _rdma_rate(topology, nic)) is not None}
    fast = {name for name, rate in rates.items() if rate >= _SLOW_SHARE * max(rates.values())}
    affinity = Affinity(topology)
    gpus_of: dict[str, tuple[str, ...]] = {}
    without = []
    for gpu in gpus:
        near = [name for name in affinity.nearest(gpu.id) if name in fast]
        if not any(affinity.kind(gpu.id, name) in _UNDER_A_SWITCH for name in near):
            without.append(gpu.id)
        for name in near:
            gpus_of[name] = (*gpus_of.get(name, ()), gpu.id)
    nics = tuple(nic for nic in topology.of_kind("nic") if nic.id in gpus_of)
    return _NearestNics(nics, gpus_of, tuple(without))


def _rdma_rate(topology: Topology, nic: Device) -> float | None:
    """Return the line rate in bits/s of an RDMA NIC that is not down, 0 if unknown; None for other NICs."""
    for link in topology.links:
        if nic.id not in (link.a, link.b):
            continue
        protocol = link.protocol
        is_rdma = isinstance(protocol, InfinibandLink) or (isinstance(protocol, EthernetLink) and protocol.rdma)
        if is_rdma and nic.facts.get("state", "up") != "down":
            return getattr(protocol, "line_rate_bits_per_s", None) or 0.0
    return None


def recommend_settings(topology: Topology, addresses: Mapping[str, str]) -> tuple[Setting, ...]:
    """Return the settings for a machine; `addresses` maps NIC ids to IPv4 addresses.

    Raises UsageError without an NVIDIA GPU, and CannotJudge if the address of a required NIC is unknown.
    """
    near = find_nearest_nics(topology)
    unknown = [format_nic(nic) for nic in near.nics if nic.id not in addresses]
    if unknown:
        some = ", ".join(unknown[:4])
        raise CannotJudge(f"cuFile identifies NICs by IPv4 address, and the address of {some} is unknown",
                          hint=f"add --address {near.nics[0].id}=10.0.0.1 for each of them")  # fmt: skip
    return tuple(_list_settings(topology, near, addresses))


def _list_settings(topology: Topology, near: _NearestNics, addresses: Mapping[str, str]) -> Iterator[Setting]:
    near_gpus = "; ".join(
        f"{addresses[nic.id]} is {format_nic(nic)}, near {', '.join(near.gpus_of[nic.id])}" for nic in near.nics
    )
    none = "no NIC is up and supports RDMA, so only local drives and compatibility mode remain"
    yield Setting(key=ADDRESSES, value=tuple(addresses[nic.id] for nic in near.nics), why=near_gpus or none)
    routed = bool(near.without and near.nics)
    why = "each GPU has a NIC under its own PCIe switch"
    if routed:
        far = ", ".join(near.without)
        why = f"{far} reach a NIC only through the CPU: data may be routed through a GPU that has one nearby"
    elif not near.nics:
        why = "there is no NIC to route to"
    yield Setting(key=ROUTING, value=routed, why=why)
    if routed:
        links = any(isinstance(link.protocol, NvlinkLink) for link in topology.links)
        nvlink = links or bool(topology.of_kind("nvswitch"))  # without a driver only the switches are visible
        order = ("GPU_MEM_NVLINKS",) if nvlink else ()
        first = "NVLink to a GPU near the NIC first" if nvlink else "memory of a GPU near the NIC first"
        yield Setting(
            key=ORDER, value=(*order, "GPU_MEM", "SYS_MEM", "P2P"), why=f"{first}, then host memory, then PCIe"
        )
    yield Setting(key=FALLBACK, value=True, why="a file that GPUDirect Storage cannot handle silently goes through"
                  " host memory; false makes that an error")  # fmt: skip
    ways = {way.way: way for way in storage_ways(topology)}
    if ways and ways["nvidia-fs"].verdict != "in use":
        can = ways["PCI P2PDMA"].verdict in ("in use", "possible")
        why = "nvidia-fs is not in use, and the kernel can move data between drive and GPU by itself"
        if not can:
            why = f"PCI P2PDMA is not possible here: {ways['PCI P2PDMA'].because or 'its prerequisites are unknown'}"
        yield Setting(key=P2PDMA, value=can, why=why)


def format_nic(nic: Device) -> str:
    """Format a NIC as `nic0 (mlx5_0)`."""
    device = nic.facts.get("rdma_device") or nic.facts.get("netdev")
    return f"{nic.id} ({device})" if device else nic.id


def decode_properties(raw: bytes) -> dict[str, object]:
    """Decode `properties` of a cufile.json, which is JSON with `//` comments. Raises UsageError for other text."""
    try:
        text = _COMMENT.sub(lambda found: found[1] or "", raw.decode("utf-8"))
        whole = decode_json(text, dict[str, object])
    except ValueError as error:
        raise UsageError(
            f"file must be a cufile.json: {error}", hint="cuFile ignores such a file and uses its defaults"
        ) from error
    properties = whole.get("properties", {})
    if not isinstance(properties, dict):
        raise UsageError(
            "`properties` of a cufile.json must be an object", hint="see the /etc/cufile.json that CUDA installs"
        )
    return properties


def check(
    topology: Topology, properties: Mapping[str, object], addresses: Mapping[str, str]
) -> tuple[CheckedEntry, ...]:
    """Compare the `properties` of a file with the machine. Raises UsageError without an NVIDIA GPU.

    `addresses` maps NIC ids to the known IPv4 addresses.
    """
    near = find_nearest_nics(topology)
    return (
        *_check_addresses(topology, near, properties.get(ADDRESSES, []), addresses),
        _check_routing(near, properties.get(ROUTING, False)),
        _check_fallback(properties),
    )


def _check_addresses(
    topology: Topology, near: _NearestNics, given: object, addresses: Mapping[str, str]
) -> Iterable[CheckedEntry]:  # fmt: skip
    if not isinstance(given, list) or not all(isinstance(address, str) for address in given):
        yield _bad_addresses(f"must be a list of addresses, got {str(given)[:60]}", "write a list of strings")
        return
    broken = [address for address in given if not _is_ipv4(address)]
    if broken:
        yield _bad_addresses(
            f"not an IPv4 address: {broken[0][:40]!r}", "give the IPv4 address of an interface, not its name"
        )
    if not given and near.nics:
        names = ", ".join(format_nic(nic) for nic in near.nics)
        yield _bad_addresses("empty: remote file systems go through host memory", f"add the addresses of {names}")
        return
    yield from _check_placement(topology, near, [address for address in given if _is_ipv4(address)], addresses)


def _check_placement(
    topology: Topology, near: _NearestNics, given: list[str], addresses: Mapping[str, str]
) -> Iterator[CheckedEntry]:  # fmt: skip
    """Yield a result for each address, and for each nearby NIC that the file does not name."""
    nic_of = {address: name for name, address in addresses.items()}
    names = {nic.id: format_nic(nic) for nic in topology.of_kind("nic")}
    unplaced = [address for address in given if address not in nic_of]
    missing = [nic.id for nic in near.nics if nic.id not in addresses]
    for address in given:
        name = nic_of.get(address)
        if name is None and missing:
            yield CheckedEntry(key=ADDRESSES, state="not looked",
                               seen=f"{address}: the NIC with this address is unknown",
                       remedy=f"add --address {missing[0]}=ADDRESS")  # fmt: skip
        elif name is None:
            yield _bad_addresses(f"{address} is not the address of any NIC", "remove it")
        elif name not in near.gpus_of:
            yield _bad_addresses(
                f"{address} is {names[name]}, which is not near a GPU, is down or lacks RDMA", "remove it"
            )
        else:
            yield CheckedEntry(
                key=ADDRESSES, state="ok", seen=f"{address} is {names[name]}, near {', '.join(near.gpus_of[name])}"
            )
    for nic in near.nics:
        if addresses.get(nic.id) not in given and not (nic.id in missing and unplaced):
            lost = f"{format_nic(nic)}, near {', '.join(near.gpus_of[nic.id])}, is not named"
            yield _bad_addresses(lost, f"add {addresses.get(nic.id, 'its address')}")


def _bad_addresses(seen: str, remedy: str) -> CheckedEntry:
    return CheckedEntry(key=ADDRESSES, state="bad", seen=seen, remedy=remedy)


def _check_routing(near: _NearestNics, given: object) -> CheckedEntry:
    if near.without and near.nics and given is not True:
        seen = f"off, and {', '.join(near.without)} reach a NIC only through the CPU"
        return CheckedEntry(key=ROUTING, state="bad", seen=seen, remedy="set it to true")
    return CheckedEntry(key=ROUTING, state="ok", seen="on" if given is True else "off, and each GPU has a NIC nearby")


def _check_fallback(properties: Mapping[str, object]) -> CheckedEntry:
    if properties.get(FORCED) is True:
        return CheckedEntry(
            key=FORCED, state="bad", seen="true: GPUDirect Storage is never used", remedy="set it to false"
        )
    allowed = properties.get(FALLBACK, True)
    seen = "true: files that GPUDirect Storage cannot handle silently go through host memory" if allowed else "false"
    return CheckedEntry(key=FALLBACK, state="ok", seen=seen)


def _is_ipv4(text: str) -> bool:
    try:
        ipaddress.IPv4Address(text)
    except ValueError:
        return False
    return True

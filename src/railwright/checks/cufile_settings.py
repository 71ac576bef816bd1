"""What cuFile should be told of a machine: which NICs it may use, and how it reaches GPUs that have none near.

NVIDIA, GPUDirect Storage Configuration Guide, "GPUDirect Storage Parameters", and Overview Guide, "Dynamic Routing".
Settings that follow from no topology (sizes of buffers and batches) are left as cuFile has them.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Literal

import msgspec

from railwright.checks.storage_ways import storage_ways
from railwright.errors import CannotJudge, UsageError
from railwright.topology.devices import Device, EthernetLink, InfinibandLink, NvlinkLink, Topology
from railwright.topology.gpus import is_nvidia
from railwright.topology.paths import Affinity

ADDRESSES, ROUTING, ORDER = "rdma_dev_addr_list", "rdma_dynamic_routing", "rdma_dynamic_routing_order"
FALLBACK, FORCED, P2PDMA = "allow_compat_mode", "force_compat_mode", "use_pci_p2pdma"
_UNDER_A_SWITCH = ("PIX", "PXB")
_SLOW_SHARE = 0.5
"""A NIC below this share of the fastest is for something else: management, the front-end network."""
_COMMENT = re.compile(r'("(?:\\.|[^"\\])*")|//[^\n]*')

Value = bool | str | tuple[str, ...]


class Setting(msgspec.Struct, frozen=True, kw_only=True):
    """One line of `properties`, and why it is so."""

    key: str
    value: Value
    why: str


class Told(msgspec.Struct, frozen=True, kw_only=True):
    """What an existing file says of one thing, held against what it should."""

    key: str
    state: Literal["ok", "bad", "not looked"]
    seen: str
    remedy: str = ""


class _Near(msgspec.Struct, frozen=True):
    """The NICs that cuFile may use, and the GPUs that they are near."""

    nics: tuple[Device, ...]
    gpus_of: dict[str, tuple[str, ...]]
    without: tuple[str, ...]
    """GPUs that reach none of them but through the CPU."""


def near_nics(topology: Topology) -> _Near:
    """The RDMA NICs nearest to each GPU. Raises UsageError without a GPU."""
    gpus = [gpu for gpu in topology.of_kind("gpu") if is_nvidia(gpu)]
    if not gpus:
        raise UsageError(f"{topology.name} has no NVIDIA GPU, so cuFile has nothing to do there",
                         hint="name a machine with --from")  # fmt: skip
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
    return _Near(nics, gpus_of, tuple(without))


def _rdma_rate(topology: Topology, nic: Device) -> float | None:
    """Bits/s of a NIC that can do RDMA and is not down, 0 where its rate is not known; None for others."""
    for link in topology.links:
        if nic.id not in (link.a, link.b):
            continue
        protocol = link.protocol
        is_rdma = isinstance(protocol, InfinibandLink) or (isinstance(protocol, EthernetLink) and protocol.rdma)
        if is_rdma and nic.facts.get("state", "up") != "down":
            return getattr(protocol, "line_rate_bits_per_s", None) or 0.0
    return None


def wanted(topology: Topology, addresses: Mapping[str, str]) -> tuple[Setting, ...]:
    """The settings for a machine; `addresses` are the IPv4 addresses of NICs, by their ids.

    Raises UsageError without a GPU, CannotJudge where the address of a NIC that is needed is not known.
    """
    near = near_nics(topology)
    unknown = [name_of(nic) for nic in near.nics if nic.id not in addresses]
    if unknown:
        some = ", ".join(unknown[:4])
        raise CannotJudge(f"cuFile names NICs by IPv4 address, and that of {some} is not known",
                          hint=f"add --address {near.nics[0].id}=10.0.0.1, once for each")  # fmt: skip
    return tuple(_settings(topology, near, addresses))


def _settings(topology: Topology, near: _Near, addresses: Mapping[str, str]) -> Iterator[Setting]:
    said = "; ".join(
        f"{addresses[nic.id]} is {name_of(nic)}, near {', '.join(near.gpus_of[nic.id])}" for nic in near.nics
    )
    none = "no NIC here is up and can do RDMA, so only local drives and compatibility mode are left"
    yield Setting(key=ADDRESSES, value=tuple(addresses[nic.id] for nic in near.nics), why=said or none)
    routed = bool(near.without and near.nics)
    why = "each GPU has a NIC under its own PCIe switch"
    if routed:
        why = f"{', '.join(near.without)} reach a NIC only through the CPU: data may go by a GPU that has one near"
    elif not near.nics:
        why = "there is no NIC to route to"
    yield Setting(key=ROUTING, value=routed, why=why)
    if routed:
        links = any(isinstance(link.protocol, NvlinkLink) for link in topology.links)
        nvlink = links or bool(topology.of_kind("nvswitch"))  # without a driver only the switches are seen
        order = ("GPU_MEM_NVLINKS",) if nvlink else ()
        first = "NVLink to a GPU near the NIC first" if nvlink else "memory of a GPU near the NIC first"
        yield Setting(
            key=ORDER, value=(*order, "GPU_MEM", "SYS_MEM", "P2P"), why=f"{first}, then host memory, then PCIe"
        )
    yield Setting(key=FALLBACK, value=True, why="a file that GPUDirect Storage does not take goes through host memory,"
                  " without a word; false makes that an error")  # fmt: skip
    ways = {one.way: one for one in storage_ways(topology)}
    if ways and ways["nvidia-fs"].verdict != "in use":
        can = ways["PCI P2PDMA"].verdict in ("in use", "possible")
        why = "nvidia-fs is not in use, and the kernel can move data between drive and GPU by itself"
        if not can:
            why = f"PCI P2PDMA is not possible here: {ways['PCI P2PDMA'].because or 'it cannot be told'}"
        yield Setting(key=P2PDMA, value=can, why=why)


def name_of(nic: Device) -> str:
    """`nic0 (mlx5_0)`."""
    device = nic.facts.get("rdma_device") or nic.facts.get("netdev")
    return f"{nic.id} ({device})" if device else nic.id


def properties_in(raw: bytes) -> dict[str, object]:
    """`properties` of a cufile.json, which is JSON with comments of the form `//`. Raises UsageError."""
    try:
        text = _COMMENT.sub(lambda found: found[1] or "", raw.decode("utf-8"))
        whole = msgspec.json.decode(text.encode(), type=dict[str, object])
    except (UnicodeDecodeError, msgspec.DecodeError) as error:
        raise UsageError(f"not a cufile.json: {error}", hint="cuFile itself falls back to its defaults then") from error
    properties = whole.get("properties", {})
    if not isinstance(properties, dict):
        raise UsageError("not a cufile.json: `properties` is not an object", hint="see /etc/cufile.json of CUDA")
    return properties


def check(topology: Topology, properties: Mapping[str, object], addresses: Mapping[str, str]) -> tuple[Told, ...]:
    """What a file says, held against the machine. `addresses` are those of NICs that are known."""
    near = near_nics(topology)
    return (
        *_addresses_told(topology, near, properties.get(ADDRESSES, []), addresses),
        _routing_told(near, properties.get(ROUTING, False)),
        _fallback_told(properties),
    )


def _addresses_told(
    topology: Topology, near: _Near, given: object, addresses: Mapping[str, str]
) -> Iterable[Told]:  # fmt: skip
    if not isinstance(given, list) or not all(isinstance(one, str) for one in given):
        yield _bad(f"not a list of addresses: {str(given)[:60]}", "write a list of strings")
        return
    broken = [one for one in given if not _is_ipv4(one)]
    if broken:
        yield _bad(f"no IPv4 address: {broken[0][:40]!r}", "cuFile takes IPv4 addresses of interfaces, no names")
    if not given and near.nics:
        names = ", ".join(name_of(nic) for nic in near.nics)
        yield _bad("empty: remote file systems go through host memory", f"add the addresses of {names}")
        return
    yield from _places_told(topology, near, [one for one in given if _is_ipv4(one)], addresses)


def _places_told(
    topology: Topology, near: _Near, given: list[str], addresses: Mapping[str, str]
) -> Iterator[Told]:  # fmt: skip
    """Each address, and each NIC that is near and not named."""
    nic_of = {address: name for name, address in addresses.items()}
    names = {nic.id: name_of(nic) for nic in topology.of_kind("nic")}
    unplaced = [one for one in given if one not in nic_of]
    missing = [nic.id for nic in near.nics if nic.id not in addresses]
    for one in given:
        name = nic_of.get(one)
        if name is None and missing:
            yield Told(key=ADDRESSES, state="not looked", seen=f"{one}: of which NIC it is, is not known",
                       remedy=f"add --address {missing[0]}=ADDRESS")  # fmt: skip
        elif name is None:
            yield _bad(f"{one} is no address of a NIC here", "remove it")
        elif name not in near.gpus_of:
            yield _bad(f"{one} is {names[name]}, near no GPU, down or without RDMA", "remove it")
        else:
            yield Told(key=ADDRESSES, state="ok", seen=f"{one} is {names[name]}, near {', '.join(near.gpus_of[name])}")
    for nic in near.nics:
        if addresses.get(nic.id) not in given and not (nic.id in missing and unplaced):
            lost = f"{name_of(nic)}, near {', '.join(near.gpus_of[nic.id])}, is not named"
            yield _bad(lost, f"add {addresses.get(nic.id, 'its address')}")


def _bad(seen: str, remedy: str) -> Told:
    """Addresses that are not as they should be."""
    return Told(key=ADDRESSES, state="bad", seen=seen, remedy=remedy)


def _routing_told(near: _Near, given: object) -> Told:
    if near.without and near.nics and given is not True:
        seen = f"off, and {', '.join(near.without)} reach a NIC only through the CPU"
        return Told(key=ROUTING, state="bad", seen=seen, remedy="set it to true")
    return Told(key=ROUTING, state="ok", seen="on" if given is True else "off, and each GPU has a NIC near")


def _fallback_told(properties: Mapping[str, object]) -> Told:
    if properties.get(FORCED) is True:
        return Told(key=FORCED, state="bad", seen="true: GPUDirect Storage is never used", remedy="set it to false")
    allowed = properties.get(FALLBACK, True)
    seen = "true: what GPUDirect Storage does not take goes through host memory without a word" if allowed else "false"
    return Told(key=FALLBACK, state="ok", seen=seen)


def _is_ipv4(text: str) -> bool:
    try:
        ipaddress.IPv4Address(text)
    except ValueError:
        return False
    return True

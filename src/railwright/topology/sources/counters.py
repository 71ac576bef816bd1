"""Error and traffic counters of the network, read before and after a measurement.

Names: `net.eth0.rx_dropped`, `rdma.mlx5_0.1.port_xmit_wait`, `pcie.0000:1b:00.0.correctable`, `tcp.RetransSegs`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

import msgspec

from railwright.topology.sources import text
from railwright.topology.sources.network import NicPort, find_ports
from railwright.topology.sources.notes import Notes
from railwright.topology.sources.pci import scan_pci
from railwright.topology.sources.root import DirectoryRoot, Root
from railwright.topology.sources.virtual_buses import scan_virtual_buses
from railwright.topology.sources.virtual_functions import select_functions

_SANE_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
# Of the hundred fields of TcpExt, those that count lost, late or reordered packets.
_TCP_EXTRA = frozenset({
    "TCPLostRetransmit", "TCPFastRetrans", "TCPSlowStartRetrans", "TCPRetransFail", "TCPSynRetrans", "TCPTimeouts",
    "TCPLossProbes", "TCPSpuriousRTOs", "TCPOFOQueue", "TCPSACKReorder", "TCPTSReorder", "TCPBacklogDrop",
    "TCPRcvQDrop", "ListenDrops", "ListenOverflows", "PruneCalled", "TCPZeroWindowDrop",
})  # fmt: skip
_SNMP_FIELDS = {
    "Tcp": ("tcp", frozenset({"InSegs", "OutSegs", "RetransSegs", "InErrs", "InCsumErrors"})),
    "Udp": ("udp", frozenset({"InDatagrams", "OutDatagrams", "InErrors", "RcvbufErrors", "SndbufErrors"})),
    "TcpExt": ("tcp", _TCP_EXTRA),
}
_AER_TOTAL = re.compile(r"(?m)^TOTAL_ERR_\w+ (\d{1,20})$")


class CounterPaths(msgspec.Struct, frozen=True):
    """The paths of a machine's counters."""

    directories: dict[str, tuple[str, ...]]
    """Prefix of the counters' names to the directories with a file for each."""
    functions: dict[str, str]
    """PCI address to the directory of the function."""


def find_counters(root: Root) -> CounterPaths:
    """Find all counters once, so that reading them is quick."""
    directories: dict[str, tuple[str, ...]] = {"net.lo": ("sys/devices/virtual/net/lo/statistics",)}
    functions: dict[str, str] = {}
    ports: list[NicPort] = []
    for used in select_functions(root, scan_pci(root, Notes())):
        ports += used.ports
        if used.ports and "aer_dev_correctable" in used.function.entries:
            functions[used.function.address] = used.function.path
    for path, entries in scan_virtual_buses(root).items():
        ports += find_ports(root, path, entries)
    for port in ports:
        if port.netdev:
            directories[f"net.{port.netdev}"] = (f"{port.netdev_path}/statistics",)
        if port.rdma_device:
            both = (f"{port.rdma_path}/counters", f"{port.rdma_path}/hw_counters")
            directories[f"rdma.{port.rdma_device}.{port.rdma_port}"] = both
    return CounterPaths(directories, functions)


def find_port_counters(root: DirectoryRoot, names: Iterable[str]) -> dict[str, tuple[str, ...]]:
    """Return the directories of the counters of RDMA ports like `mlx5_0:1`.

    VFs and devices in software, which `find_counters` leaves out, are found too.
    """
    found: dict[str, tuple[str, ...]] = {}
    for name in names:
        device, _, port = name.partition(":")
        folder = f"{root.follow(f'sys/class/infiniband/{device}')}/ports/{port}"
        found[name] = (f"{folder}/counters", f"{folder}/hw_counters")
    return found


def read_directories(root: Root, directories: Mapping[str, Iterable[str]]) -> dict[str, int]:
    """Return the counters in the directories of each prefix as `PREFIX.NAME`, without unreadable ones."""
    counters: dict[str, int] = {}
    for prefix, folders in directories.items():
        for file in (f"{folder}/{name}" for folder in folders for name in root.names(folder)):
            name = file.rpartition("/")[2]
            value = text.number(root.read(file)) if _SANE_NAME.fullmatch(name) else None
            # `lifespan` is a setting of hw_counters: the milliseconds for which the kernel caches them.
            if value is not None and value >= 0 and name != "lifespan":
                counters[f"{prefix}.{name}"] = value
    return counters


def read_counters(root: Root, paths: CounterPaths | None = None) -> dict[str, int]:
    """Return all counters by name, as the kernel counts them, without unreadable ones."""
    paths = paths or find_counters(root)
    counters = read_directories(root, paths.directories)
    for address, directory in paths.functions.items():
        for kind in ("correctable", "nonfatal", "fatal"):
            if match := _AER_TOTAL.search(root.text(f"{directory}/aer_dev_{kind}")):
                counters[f"pcie.{address}.{kind}"] = int(match.group(1))
    for name in ("snmp", "netstat"):
        counters |= _protocol_counters(root.text(f"proc/self/net/{name}"))
    return counters


def subtract_counters(before: dict[str, int], after: dict[str, int]) -> dict[str, int]:
    """Return the difference of each counter, without unchanged ones.

    A counter that went back was reset in between (a driver reload): its new value is returned. A new counter counts
    from 0.
    """
    steps = {name: value - before.get(name, 0) for name, value in sorted(after.items())}
    return {
        name: step if step > 0 else after[name] for name, step in steps.items() if step > 0 or (step < 0 < after[name])
    }


def _protocol_counters(content: str) -> dict[str, int]:
    """Parse pairs of lines, names above values, as in /proc/net/snmp."""
    found: dict[str, int] = {}
    lines = content.splitlines()
    for names, values in zip(lines[::2], lines[1::2], strict=False):
        protocol = names.partition(":")[0]
        if protocol not in _SNMP_FIELDS or values.partition(":")[0] != protocol:
            continue
        prefix, wanted = _SNMP_FIELDS[protocol]
        for name, value in zip(names.split()[1:], values.split()[1:], strict=False):
            count = text.number(value)
            if name in wanted and count is not None and count >= 0:
                found[f"{prefix}.{name}"] = count
    return found

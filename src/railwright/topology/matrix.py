"""The table of `nvidia-smi topo -m`: GPUs and NICs that share a PCIe switch, a CPU, or only the socket link.

GPU0 GPU1 NIC0 CPU Affinity NUMA Affinity GPU0 X NV18 PIX 0-47 0

The table has neither models nor rates. Its words are NVIDIA's (nvidia-smi topo -m, Legend): PIX at most one PCIe
bridge, PXB several, PHB and NODE through the CPU, SYS across sockets, NV# that many NVLinks.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from msgspec.structs import replace

from railwright.topology.devices import (
    ETHERNET_MTU,
    GT_PER_S,
    INFINIBAND_MTU,
    EthernetLink,
    InfinibandLink,
    InternalLink,
    MemoryLink,
    NetworkLink,
    NvlinkLink,
    PcieLink,
    SmpLink,
    Topology,
    Unknown,
)
from railwright.topology.gpus import format_runs
from railwright.topology.parts import FABRIC, Parts
from railwright.topology.shapes.parts import Pcie, Shape

_DEVICE = re.compile(r"(?:GPU|NIC)\d{1,3}|(?:mlx|bnxt|irdma|ib|efa|rdmap|roce|hfi|cxgb|qedr|hns|mana|cxi)[\w.:-]{0,30}")
_CELL = re.compile(r"X|SYS|NODE|PHB|PXB|PIX|NV(\d{1,2})|C2C")
_LEGEND = re.compile(r"^\s{0,8}(NIC\d{1,3})\s{0,4}: ?(\S{1,40})\s*$")
_GPU_LISTING = re.compile(r"^\s{0,8}GPU \d{1,3}: (\S.{1,60}?) \(UUID")
_NODE = re.compile(r"\d{1,3}")
_COLOUR = re.compile(r"\x1b\[[0-9;]{0,8}m")
_MAX_DEVICES = 64
_MAX_LINES = 20_000
_IN_ONE_TREE = frozenset({"PIX", "PXB"})
_FARTHEST = ("PIX", "PXB", "PHB", "NODE", "SYS")
_GENERATIONS = {1: 1, 2: 1, 4: 1, 6: 2, 8: 3, 12: 3, 18: 4}
"""NVLinks of a GPU to the first generation with that number: a lower bound of their rate."""


class Matrix(NamedTuple):
    """The table as printed."""

    names: tuple[str, ...]
    cells: dict[tuple[str, str], str]
    """(row, column) to the word in that cell."""
    numa: dict[str, int]
    """GPU to NUMA node, if printed."""
    legend: dict[str, str]
    """`NIC0` to the name of the RDMA device."""
    models: tuple[str, ...] = ()
    """Names of the GPUs, if the output of `nvidia-smi -L` is next to the table."""

    def between(self, first: str, second: str) -> str:
        """Return the word for a pair, or an empty text."""
        return self.cells.get((first, second)) or self.cells.get((second, first), "")

    @property
    def nearest_nics(self) -> tuple[str, ...]:
        """The NICs that are nearest to a GPU, which NCCL uses; all NICs if there is no GPU."""
        found: set[str] = set()
        for gpu in self.gpus:
            far = {nic: _FARTHEST.index(word) for nic in self.nics if (word := self.between(gpu, nic)) in _FARTHEST}
            found |= {nic for nic, rank in far.items() if rank == min(far.values())}
        return tuple(nic for nic in self.nics if nic in found or not self.gpus)

    @property
    def cut_gpus(self) -> tuple[str, ...]:
        """The GPUs whose paths to every NIC are missing."""
        return tuple(gpu for gpu in self.gpus if self.nics and not any(self.between(gpu, nic) for nic in self.nics))

    @property
    def nvlinks(self) -> int:
        """The number of NVLinks of the first GPU: to switches, or to all other GPUs together."""
        return _count_nvlinks(self)[1]

    @property
    def port(self) -> NetworkLink:
        """The port that the first NIC's name implies: InfiniBand for `mlx` or `ib` without `bond`, else RoCE."""
        name = next((self.legend.get(nic, nic) for nic in self.nics), "")
        ethernet = "bond" in name or not name.startswith(("mlx", "ib"))
        if ethernet:
            return EthernetLink(rdma=True, mtu_bytes=9000, assumed=ETHERNET_MTU)
        return InfinibandLink(mtu_bytes=4096, assumed=INFINIBAND_MTU)

    @property
    def gpus(self) -> tuple[str, ...]:
        """The GPUs, by the table's names."""
        return tuple(name for name in self.names if name.startswith("GPU"))

    @property
    def nics(self) -> tuple[str, ...]:
        """The NICs, by the table's names."""
        return tuple(name for name in self.names if not name.startswith("GPU"))


def parse_matrix(text: str) -> Matrix | None:
    """Return the first table in a text, None without one."""
    if "GPU0" not in text:
        return None
    lines = [_COLOUR.sub("", line).strip("> \t|\r") for line in text.splitlines()[:_MAX_LINES]]
    for place, line in enumerate(lines):
        if line.startswith("GPU0") and (names := _parse_header(line)):
            found = _parse_rows(names, lines[place + 1 :])
            if found is not None:
                return found._replace(
                    models=tuple(dict.fromkeys(line[1] for line in map(_GPU_LISTING.match, lines) if line))
                )
    return None


def _parse_header(line: str) -> tuple[str, ...]:
    """Return the devices in a line of column names, or nothing for another line."""
    words = line.split()
    names: list[str] = []
    for word in words:
        if not _DEVICE.fullmatch(word):
            break
        names.append(word)
    ends = len(words) == len(names) or words[len(names)] in ("CPU", "NUMA", "GPU")
    return tuple(names) if names and ends and len({*names}) == len(names) <= _MAX_DEVICES else ()


def _parse_rows(names: tuple[str, ...], lines: list[str]) -> Matrix | None:
    cells: dict[tuple[str, str], str] = {}
    numa: dict[str, int] = {}
    legend: dict[str, str] = {}
    for line in lines[: 4 * _MAX_DEVICES]:
        words = line.split()
        if found := _LEGEND.match(line):
            legend[found[1]] = found[2]
        elif words and words[0] in names and words[0] not in {row for row, _ in cells}:
            row = words[1 : 1 + len(names)]
            if len(row) < len(names) or not all(_CELL.fullmatch(word) for word in row):
                continue
            cells |= {(words[0], name): word for name, word in zip(names, row, strict=True)}
            rest = words[1 + len(names) :]
            if len(rest) > 1 and (node := _NODE.match(rest[1])):
                numa[words[0]] = int(node[0])
    seen = {row for row, _ in cells}
    known = tuple(name for name in names if name in seen or any((row, name) in cells for row in seen))
    return Matrix(known, cells, numa, legend) if seen else None


class Additions(NamedTuple):
    """Facts that the table does not tell."""

    shape: Shape | None = None
    """A shape with the same GPUs."""
    port: NetworkLink | None = None
    """The port of the NICs."""
    peer_to_peer: bool = True
    drives: int = 0
    drive_pcie: Pcie = Pcie()


_NOTHING = Additions()


def build_topology(matrix: Matrix, name: str, additions: Additions = _NOTHING) -> Topology:
    """Build the machine. Facts in neither the matrix nor the additions stay unknown."""
    return _Machine(matrix, additions).topology(name)


class _Machine:
    """The devices and links during assembly."""

    def __init__(self, matrix: Matrix, additions: Additions) -> None:
        self.matrix, self.additions = matrix, additions
        self.shape, self.port = additions.shape, additions.port
        self.parts = Parts()
        self.ids: dict[str, str] = {}

    def topology(self, name: str) -> Topology:
        peers = None if self.additions.peer_to_peer else False
        self.parts.add("host", facts={"source": "nvidia-smi topo -m", "peer_to_peer": peers})
        cpus = {node: self._add_cpu(node) for node in sorted({*self._nodes().values()})}
        found = [*cpus.values()]
        for number, name_in_table in enumerate(found):
            for other in found[number + 1 :]:
                self.parts.link(name_in_table, other, SmpLink())
        nodes = self._nodes()
        for tree in _group_joined(self.matrix, self.matrix.names, _IN_ONE_TREE):
            self._add_tree(tree, nodes[tree[0]], cpus[nodes[tree[0]]])
        if self.additions.peer_to_peer:
            self._join_gpus()
        self._add_drives([*cpus.items()])
        if self.matrix.nearest_nics:
            self.parts.add("fabric", device_id=FABRIC)
        for nic in self.matrix.nearest_nics:
            self.parts.link(self.ids[nic], FABRIC, self.port or self.matrix.port)
        devices, links = self.parts.devices(), self.parts.links()
        return Topology(name=name, source="saved", devices=devices, links=links, unknown=tuple(self._unknown()))

    def _add_cpu(self, node: int) -> str:
        cpu = self.parts.add("cpu", numa=node, facts={"package": node})
        self.parts.add("memory", numa=node, under=(cpu, MemoryLink()))
        return cpu

    def _nodes(self) -> dict[str, int]:
        """Return device to NUMA node: devices not across sockets share one; NICs beyond every GPU have their own."""
        found: dict[str, int] = {}
        free = max(self.matrix.numa.values(), default=-1) + 1
        near = _IN_ONE_TREE | {"PHB", "NODE"}
        for group in _group_joined(self.matrix, self.matrix.names, near):
            known = [self.matrix.numa[name] for name in group if name in self.matrix.numa]
            node = min(known) if known else free
            free += not known
            found |= {name: self.matrix.numa.get(name, node) for name in group}
        return found

    def _add_tree(self, names: tuple[str, ...], node: int, cpu: str) -> None:
        """Add devices below a root port: alone, below one switch, or below switches below a switch."""
        upper = self.parts.add("root_port", numa=node, under=(cpu, InternalLink(name="root complex")))
        groups = _group_joined(self.matrix, names, frozenset({"PIX"}))
        if len(names) > 1 and len(groups) > 1:
            upper = self.parts.add("pcie_switch", numa=node, under=(upper, self._pcie()))
        for group in groups:
            below = upper
            if len(names) > 1:
                below = self.parts.add("pcie_switch", numa=node, under=(upper, self._pcie()))
            for name in group:
                self.ids[name] = self._add_device(name, node, below)

    def _add_device(self, name: str, node: int, below: str) -> str:
        number = name[3:]
        if name.startswith("GPU"):
            gpu = self.shape.gpu if self.shape is not None else None
            model = gpu.name if gpu is not None else next(iter(self.matrix.models), "")
            facts = {"compute_capability": gpu.compute_capability, "vendor": gpu.vendor} if gpu is not None else {}
            under = (below, self._pcie())
            return self.parts.add("gpu", device_id=f"gpu{number}", name=model, numa=node, facts=facts, under=under)
        name_of_device = self.matrix.legend.get(name, name)
        facts = {"rdma_device": "" if name_of_device.startswith("NIC") else name_of_device}
        own_id = f"nic{number}" if name.startswith("NIC") else ""
        return self.parts.add("nic", device_id=own_id, numa=node, facts=facts, under=(below, PcieLink()))

    def _add_drives(self, cpus: list[tuple[int, str]]) -> None:
        """Add drives on root ports of their own, spread evenly over the NUMA nodes."""
        for index in range(self.additions.drives):
            node, cpu = cpus[index * len(cpus) // self.additions.drives]
            upper = self.parts.add("root_port", numa=node, under=(cpu, InternalLink(name="root complex")))
            under = (upper, _pcie_link(self.additions.drive_pcie))
            self.parts.add("drive", device_id=f"nvme{index}n1", numa=node, under=under)

    def _pcie(self) -> PcieLink:
        """Return the link of the GPUs and of the bridges above them, from the shape."""
        found = self.shape.gpu.pcie if self.shape is not None and self.shape.gpu is not None else Pcie()
        redirect = None if self.additions.peer_to_peer else True
        return replace(_pcie_link(found), acs_redirect=redirect)

    def _join_gpus(self) -> None:
        pairs, links, switched = _count_nvlinks(self.matrix)
        if switched:
            nvswitch = self.parts.add("nvswitch", name="NVSwitches")
            for gpu in self.matrix.gpus:
                self.parts.link(nvswitch, self.ids[gpu], self._nvlink(links))
            return
        for (first, second), count in pairs.items():
            link = self._nvlink(links)
            self.parts.link(self.ids[first], self.ids[second], replace(link, links=count, max_links=count))

    def _nvlink(self, links: int) -> NvlinkLink:
        of_shape = self.shape.nvlink.generation if self.shape is not None and self.shape.nvlink else None
        nearest = max((known for known in _GENERATIONS if known <= links), default=1)
        assumed = "" if of_shape else "gpu=H100"
        return NvlinkLink(generation=of_shape or _GENERATIONS[nearest], links=links, assumed=assumed)

    def _unknown(self) -> Iterator[Unknown]:
        if self.shape is None:
            why = "nvidia-smi topo -m does not name the GPUs: give gpu=H100 after the file's name"
            yield Unknown(what="the model of the GPUs", why=why)
        if cut := self.matrix.cut_gpus:
            why = "their rows of the matrix are missing; they are shown as across sockets"
            yield Unknown(what=f"which NICs are near {format_runs([self.ids[gpu] for gpu in cut])}", why=why)
        if far := [nic for nic in self.matrix.nics if nic not in self.matrix.nearest_nics]:
            yield Unknown(what=", ".join(far), why="nearest to no GPU, so assumed to be for management and storage")
        if self.matrix.nearest_nics and self.port is None:
            why = "nvidia-smi topo -m does not print it: give nic-rate=400Gb/s after the file's name"
            yield Unknown(what="the rate of the NICs", why=why)


def _pcie_link(pcie: Pcie) -> PcieLink:
    return PcieLink(gt_per_s=GT_PER_S.get(pcie.generation or 0), width=pcie.width)


def _count_nvlinks(matrix: Matrix) -> tuple[dict[tuple[str, str], int], int, bool]:
    """Return (links of each pair of GPUs, links of the first GPU, whether they go through NVSwitches)."""
    gpus = matrix.gpus
    pairs = {
        (gpu, other): int(word[2:])
        for place, gpu in enumerate(gpus)
        for other in gpus[place + 1 :]
        if (word := matrix.between(gpu, other)).startswith("NV") and int(word[2:])
    }
    pairs_of_gpus = len(gpus) * (len(gpus) - 1) // 2
    of_first = sum(count for pair, count in pairs.items() if gpus[0] in pair)
    # Equal links between all pairs that add up to more than a GPU has go through switches.
    switched = len(pairs) == pairs_of_gpus and len({*pairs.values()}) == 1 and of_first > max(_GENERATIONS)
    return pairs, next(iter(pairs.values())) if switched else of_first, switched


def _group_joined(matrix: Matrix, names: Iterable[str], words: frozenset[str]) -> list[tuple[str, ...]]:
    """Return the names in groups whose members are joined by cells in `words`, directly or through others."""
    left, groups = list(names), []
    while left:
        group = [left.pop(0)]
        for member in group:
            near = [other for other in left if matrix.between(member, other) in words]
            group += near
            left = [other for other in left if other not in near]
        groups.append(tuple(group))
    return groups

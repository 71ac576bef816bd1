"""Expansion of a named shape, with changes, to a topology."""

from __future__ import annotations

import itertools
from collections.abc import Mapping

from msgspec.structs import asdict, replace

from railwright.topology.devices import GT_PER_S, C2cLink, InternalLink, PcieLink, Protocol, Scalar, SmpLink, Topology
from railwright.topology.parts import FABRIC, Parts
from railwright.topology.plan import apply_changes
from railwright.topology.shapes import SHAPES, canonical_name, unknown_shape
from railwright.topology.shapes.catalogue import CATALOGUE
from railwright.topology.shapes.parts import Pcie, Shape


def expand(name: str, changes: Mapping[str, str], *, by_board: bool = True) -> Topology:
    """Build the machine of a shape with changes, each a text like `2` or `400Gb/s`.

    A number of GPUs for which there is a board of its own means that board, unless `by_board` is False.

    `name` is the name of a shape or a vendor's name for it, in any case. NICs of any number are spread evenly over the
    PCIe switches and so over the sockets. Raises UsageError for an unknown shape or change, and for an invalid value.
    """
    canonical = canonical_name(name)
    if canonical is None:
        raise unknown_shape(name)
    if by_board:
        canonical, changes = choose_board(canonical, changes)
    return expand_shape(SHAPES[canonical], canonical, changes)


def choose_board(name: str, changes: Mapping[str, str]) -> tuple[str, dict[str, str]]:
    """Return the shape and the other changes, if a number of GPUs means a board of its own: its links differ."""
    board = CATALOGUE.names.boards.get(name, {}).get(
        next((value for key, value in changes.items() if key.lower() == "gpus"), "")
    )
    if board is None:
        return name, dict(changes)
    return board, {key: value for key, value in changes.items() if key.lower() != "gpus"}


def expand_shape(shape: Shape, name: str, changes: Mapping[str, str]) -> Topology:
    """Build the machine of a shape that is called `name`, with changes. Raises UsageError like `expand`."""
    parts = _Machine(apply_changes(shape, name, changes), name).parts
    words = [name, *(f"{key.lower().replace('_', '-')}={value}" for key, value in changes.items())]
    return Topology(name=" ".join(words), source="shape", devices=parts.devices(), links=parts.links())


def _divide(number: int | None, share: int) -> int | None:
    return None if number is None else number // share


class _Machine:
    """The devices and links of a shape, in `parts`."""

    def __init__(self, shape: Shape, name: str) -> None:
        self.parts = Parts()
        self._shape, self._layout = shape, shape.layout
        self._add_host(name)
        self._cpus = self._add_cpus()
        self._switches = self._add_switches()
        self._add_gpu_links(self._add_gpus())
        self._add_nics()
        self._add_drives()

    def _add_host(self, name: str) -> None:
        nvlink, source = self._shape.nvlink, self._shape.layout_source
        facts: dict[str, Scalar | None] = {
            "shape": name,
            "layout_source": source,
            "nvlink_domain_hosts": nvlink.domain_hosts if nvlink else None,
            "gpudirect_rdma": None if self._shape.gpudirect_rdma and self._shape.gpudirect_offered else False,
            "gpudirect_offered": None if self._shape.gpudirect_offered else False,
            "nccl_protocol": self._shape.nccl_protocol or None,
            "peer_to_peer": None if self._shape.peer_to_peer else False,
        }
        self.parts.add("host", name=self._shape.title, facts=facts)

    def _add_cpus(self) -> list[str]:
        """Add a cpu and a memory for each NUMA node; every node is linked with every other."""
        cpu, share = self._shape.cpu, self._layout.numa_per_socket
        cpus = []
        for node in range(self._layout.nodes):
            facts: dict[str, Scalar | None] = {
                "package": node // share,
                "cores": _divide(cpu.cores, share),
                **asdict(cpu.cpuid),
                "source": cpu.source,
            }
            cpus.append(self.parts.add("cpu", name=cpu.name, numa=node, facts=facts))
            facts = {"size_bytes": _divide(cpu.memory.size_bytes, share), "source": cpu.source}
            self.parts.add("memory", numa=node, facts=facts, under=(cpus[node], cpu.memory.link(share)))
        for first, second in itertools.combinations(range(self._layout.nodes), 2):
            in_socket = first // share == second // share
            self.parts.link(cpus[first], cpus[second], SmpLink(name="in socket") if in_socket else cpu.smp)
        return cpus

    def _add_switches(self) -> list[tuple[str, int]]:
        """Add the PCIe switches, each on its own root port, and return (id, NUMA node) of each."""
        gpu, layout = self._shape.gpu, self._layout
        if gpu is None:
            return []
        switches = []
        uplink = self._pcie(
            Pcie(layout.uplink_generation or gpu.pcie.generation, gpu.pcie.width, layout.uplink_assumed)
        )
        facts = {"source": self._shape.layout_source}
        for index in range(layout.switches):
            node = index * layout.nodes // layout.switches
            under = (self._root_port(node), uplink)
            switch = self.parts.add("pcie_switch", name=layout.switch_name, numa=node, facts=facts, under=under)
            switches.append((switch, node))
        return switches

    def _root_port(self, node: int) -> str:
        return self.parts.add("root_port", numa=node, under=(self._cpus[node], InternalLink(name="root complex")))

    def _place(self, at: int, of: int, *, below_switches: bool = True) -> tuple[str, int]:
        """Return (upper device, NUMA node) of device `at` of `of`, spread evenly over the switches or NUMA nodes."""
        if self._switches and below_switches:
            return self._switches[at * len(self._switches) // of]
        node = at * self._layout.nodes // of
        return self._root_port(node), node

    def _add_gpus(self) -> list[str]:
        gpu, count = self._shape.gpu, self._layout.gpus
        if gpu is None:
            return []
        facts: dict[str, Scalar | None] = {
            "vendor": gpu.vendor,
            "compute_capability": gpu.compute_capability,
            "memory_bytes": gpu.memory.size_bytes,
            "hbm_bandwidth_bytes_per_s": gpu.memory.bytes_per_s,
            "fp64_tensor_flop_per_s": gpu.fp64_tensor_flop_per_s,
            "integrated": gpu.integrated or None,
            "source": gpu.source,
        }
        gpus = []
        under: tuple[str, Protocol]
        for index in range(count):
            if gpu.attachment == "c2c":
                node = index * self._layout.nodes // count
                under = self._cpus[node], C2cLink(bytes_per_s=gpu.c2c_gb_per_s and gpu.c2c_gb_per_s * 1e9)
            else:
                full = self._layout.gpus_per_switch
                upper, node = self._switches[index // full] if self._switches else self._place(index, count)
                under = upper, self._pcie(gpu.pcie)
            gpus.append(self.parts.add("gpu", name=gpu.name, numa=node, facts=facts, under=under))
        return gpus

    def _add_gpu_links(self, gpus: list[str]) -> None:
        """Add NVLinks to the NVSwitches or between pairs, or Infinity Fabric between all or pairs."""
        nvlink, xgmi = self._shape.nvlink, self._shape.xgmi
        if xgmi is not None:
            all_pairs = itertools.combinations(range(len(gpus)), 2)
            joined = xgmi.pairs or tuple((first, second, xgmi.links) for first, second in all_pairs)
            for first, second, count in joined:
                if max(first, second) < len(gpus):
                    self.parts.link(gpus[first], gpus[second], replace(xgmi.link, links=count))
        if nvlink is None or not gpus:
            return
        for first, second, count in nvlink.pairs:
            if max(first, second) < len(gpus):
                protocol = replace(nvlink.link, links=count, max_links=count)
                self.parts.link(gpus[first], gpus[second], protocol)
        if nvlink.pairs or (len(gpus) < 2 and nvlink.domain_hosts is None):
            return
        chips: dict[str, Scalar | None] = {"chips": nvlink.switch_chips, "source": nvlink.source}
        nvswitch = self.parts.add("nvswitch", name=f"{nvlink.switch_chips} NVSwitches", facts=chips)
        for gpu in gpus:
            self.parts.link(nvswitch, gpu, nvlink.link)

    def _add_nics(self) -> None:
        """Add the NIC ports; ports that share a card's PCIe link are below that card."""
        nic, count = self._shape.nic, self._layout.nics
        names: list[str] = []
        facts: dict[str, Scalar | None] = {
            "source": nic.source,
            "gpudirect_tcp": nic.gpudirect_tcp or None,
            "shares_port": nic.shares_port or None,
        }
        cards = -(-count // nic.ports_per_card)
        under: tuple[str, Protocol]
        for index in range(count):
            card, port = divmod(index, nic.ports_per_card)
            if port == 0:
                upper, node = self._place(card, cards, below_switches=not self._layout.nics_on_root_ports)
                under = upper, self._pcie(nic.pcie)
                if nic.ports_per_card > 1:
                    upper = self.parts.add("card", name=nic.name, numa=node, facts=facts, under=under)
                    under = upper, InternalLink(name="card")
            names.append(self.parts.add("nic", name=nic.name, numa=node, facts=facts, under=under))
        if names:
            self.parts.add("fabric", device_id=FABRIC)
        for name in names:
            self.parts.link(name, FABRIC, nic.port)

    def _add_drives(self) -> None:
        drive, count = self._shape.drive, self._layout.drives
        if drive is None:
            return
        facts: dict[str, Scalar | None] = {"size_bytes": drive.size_bytes, "source": drive.source}
        for index in range(count):
            node = index * self._layout.nodes // count
            name, under = f"nvme{index}n1", (self._root_port(node), self._pcie(drive.pcie, "drive-pcie"))
            self.parts.add("drive", device_id=name, name=drive.name, numa=node, facts=facts, under=under)

    def _pcie(self, pcie: Pcie, option: str = "pcie") -> PcieLink:
        """Return a healthy link, trained to the maximum of both ends. Unpublished facts stay None."""
        speed = GT_PER_S[pcie.generation] if pcie.generation is not None else None
        return PcieLink(
            gt_per_s=speed,
            width=pcie.width,
            max_gt_per_s=speed,
            max_width=pcie.width,
            max_payload_bytes=self._shape.max_payload_bytes,
            payload_assumed=self._shape.payload_assumed,
            acs_redirect=self._shape.acs_redirect,
            assumed=f"{option}={pcie.generation + 1}" if pcie.assumed and pcie.generation else "",
        )

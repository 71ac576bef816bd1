"""The GPUs of a machine that a CUDA program can use as a whole, and their order."""

from __future__ import annotations

import re
from collections.abc import Iterable

from railwright.topology.devices import Device, Topology

TRANSFERS_A_MEMORY_CLOCK = 2
"""Double data rate: data moves on both edges of the clock, as CUDA's `deviceQuery` counts it."""
_NUMBERED = re.compile(r"((?:.*[^0-9])?)(0|[1-9][0-9]{0,5})", re.DOTALL)
"""A name with its number, without leading zeros: `nic08` does not follow `nic7`."""
_SHORTEST_RUN = 3


def nvidia_gpus(topology: Topology) -> tuple[Device, ...]:
    """Return the NVIDIA GPUs with a PCI address, usable or not, in the order of their addresses."""
    found = (gpu for gpu in topology.of_kind("gpu") if gpu.address and is_nvidia(gpu))
    return tuple(sorted(found, key=lambda gpu: gpu.address))


def usable_gpus(topology: Topology) -> tuple[Device, ...]:
    """Return the GPUs for ranks: CUDA shows them, and MIG does not split them."""
    return tuple(gpu for gpu in nvidia_gpus(topology) if not why_unusable(gpu))


def why_unusable(gpu: Device) -> str:
    """Return the reason why CUDA cannot use a GPU as a whole; empty if it can, or if unknown."""
    if gpu.facts.get("mig") is True:
        return f"MIG is on in {gpu.id}"
    visible = gpu.facts.get("cuda_visible")
    if gpu.facts.get("nvml_lists") is False and visible is not True:
        return f"NVIDIA's driver does not show {gpu.id}"
    return f"CUDA does not show {gpu.id}" if visible is False else ""


def is_nvidia(gpu: Device) -> bool:
    """Report whether NVIDIA made the GPU, from the vendor in its shape or NVML, its PCI vendor or its name."""
    is_of_vendor = str(gpu.facts.get("pci_id", "")).startswith("10de:")
    return is_of_vendor or gpu.facts.get("vendor") == "nvidia" or gpu.name.startswith("NVIDIA")


def memory_rate(bus_bits: int, clock_hz: float) -> float:
    """Return the rate of a GPU's memory, reads and writes together, in bytes/s: bus width x memory clock x 2."""
    return bus_bits / 8 * clock_hz * TRANSFERS_A_MEMORY_CLOCK


def format_runs(names: Iterable[str]) -> str:
    """Join names; three or more consecutive names become a run: `gpu0-2, gpu4, gpu5`."""
    groups: list[list[tuple[str, str, int]]] = []
    for name in names:
        found = _NUMBERED.fullmatch(name)
        stem, number = (found[1], int(found[2])) if found else (name, -1)
        if found and groups and groups[-1][-1][1:] == (stem, number - 1):
            groups[-1].append((name, stem, number))
        else:
            groups.append([(name, stem, number)])
    return ", ".join(
        f"{group[0][0]}-{group[-1][2]}" if len(group) >= _SHORTEST_RUN else ", ".join(name for name, _, _ in group)
        for group in groups
    )

"""A BAR1 window smaller than the GPU's memory, which limits how much of it NICs and drives can map at a time.

NVIDIA GPUDirect RDMA, PCI BAR sizes: memory for a NIC is mapped through BAR1, and pinning fails once BAR1 is full.
Its size depends on the BIOS (above 4G decoding, resizable BAR) or the board.
"""

from __future__ import annotations

from railwright.checks import needs
from railwright.checks.check import Check, Facts, Findings
from railwright.checks.host_settings import nonnegative_integer
from railwright.topology.devices import Device, Topology
from railwright.topology.gpus import format_runs, nvidia_gpus


def _signs(facts: Facts) -> Findings:
    small = [gpu for gpu in nvidia_gpus(facts.topology) if _is_small(gpu)]
    for size in sorted({nonnegative_integer(gpu.facts.get("bar1_bytes")) or 0 for gpu in small}):
        names = [gpu.id for gpu in small if nonnegative_integer(gpu.facts.get("bar1_bytes")) == size]
        memory = min(nonnegative_integer(gpu.facts.get("memory_bytes")) or 0 for gpu in small if gpu.id in names)
        yield CHECK.finding(
            names,
            f"BAR1 of {format_runs(names)} maps {size / 2**20:.0f} MiB of {memory / 2**30:.0f} GiB",
            ("BAR1", f"{size} B", "resource of the PCI function"),
            certainty="seen" if needs.rdma_nic(facts.topology) == "" else "possible",
        )


def _is_small(gpu: Device) -> bool:
    window, memory = (
        nonnegative_integer(gpu.facts.get("bar1_bytes")),
        nonnegative_integer(gpu.facts.get("memory_bytes")),
    )
    return window is not None and memory is not None and window < memory


def _explain_unread(topology: Topology) -> str:
    for name, part in (("bar1_bytes", "BAR1"), ("memory_bytes", "the memory")):
        if blind := [gpu.id for gpu in nvidia_gpus(topology) if nonnegative_integer(gpu.facts.get(name)) is None]:
            return f"the size of {part} of {format_runs(blind)} is unknown"
    return ""


CHECK = Check(
    name="bar1_small",
    summary="NICs and drives see only part of a GPU's memory",
    right="NICs and drives see all of each GPU's memory",
    costs="GPUDirect RDMA and GPUDirect Storage can pin at most the size of BAR1, and beyond that fail or copy"
    " through the host (NVIDIA GPUDirect RDMA, PCI BAR sizes)",
    remedy="enable above 4G decoding and resizable BAR in the BIOS and reboot; nvidia-smi -q -d MEMORY shows BAR1",
    signs=_signs,
    needs=(needs.settings, needs.nvidia_gpu),
    asks=(_explain_unread,),
)

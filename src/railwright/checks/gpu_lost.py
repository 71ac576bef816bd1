"""A GPU that is on the PCI bus but missing from NVIDIA's driver: it fell off the bus or failed to initialize.

Programs silently run with one GPU fewer, so every other measurement would pass.
"""

from __future__ import annotations

from railwright.checks import needs
from railwright.checks.check import Check, Facts, Findings
from railwright.checks.finding import Certainty
from railwright.checks.parts import group_ids, silent_gpus
from railwright.topology.devices import Device
from railwright.topology.gpus import format_runs, nvidia_gpus

_DRIVERS = ("", "nvidia")
"""A GPU with another driver (vfio-pci, nouveau) was assigned on purpose; a GPU with none failed to initialize."""


def _signs(facts: Facts) -> Findings:
    lost: dict[Certainty, list[str]] = group_ids(nvidia_gpus(facts.topology), _loss_certainty)
    for certainty, names in lost.items():
        verb, them = ("is", "it") if len(names) == 1 else ("are", "them")
        yield CHECK.finding(
            names,
            f"{format_runs(names)} {verb} on the PCI bus, but NVML does not list {them}",
            ("GPUs that NVML lists", f"not {', '.join(names)}", "NVML and /sys"),
            certainty=certainty,
        )
    if silent := silent_gpus(facts.topology):
        yield CHECK.blind(
            silent,
            f"the driver's list of GPUs cannot be read, so {format_runs(silent)} may be lost",
            remedy="compare nvidia-smi -L with lspci -d 10de:; check dmesg | grep Xid",
        )


def _loss_certainty(gpu: Device) -> Certainty | None:
    """Return the certainty that the GPU is lost; None if it is not."""
    facts = gpu.facts
    assigned = facts.get("withheld") is True or str(facts.get("driver", "")) not in _DRIVERS
    if facts.get("nvml_lists") is not False or assigned:
        return None
    return "possible" if facts.get("cuda_visible") is True else "seen"


CHECK = Check(
    name="gpu_lost",
    summary="a GPU on the PCI bus is missing from NVIDIA's driver",
    right="the driver lists every GPU on the PCI bus",
    costs="the whole GPU: jobs run with fewer GPUs, or do not start",
    remedy="dmesg | grep -e Xid -e NVRM: Xid 79 is a GPU that fell off the bus (NVIDIA Xid Errors); look for"
    " NVreg_ExcludedGpus in /proc/driver/nvidia/params; drain the host, power-cycle it, then reseat or replace the GPU",
    signs=_signs,
    needs=(needs.settings, needs.nvidia_gpu),
    asks=(needs.nvml_reports_gpus,),
)

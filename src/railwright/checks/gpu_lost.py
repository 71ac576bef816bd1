"""A GPU that the PCI bus shows and NVIDIA's driver does not: it has fallen off the bus, or could not be started.

Programs see one GPU fewer and say nothing, so that all else would be measured and found in order.
"""

from __future__ import annotations

from railwright.checks import needs
from railwright.checks.check import Check, Facts, Findings
from railwright.checks.finding import Certainty
from railwright.checks.parts import grouped, silent_gpus
from railwright.topology.devices import Device
from railwright.topology.gpus import nvidia_gpus, runs

_DRIVERS = ("", "nvidia")
"""A GPU with another one (vfio-pci, nouveau) was given away on purpose; one with none could not be started."""


def _signs(facts: Facts) -> Findings:
    lost: dict[Certainty, list[str]] = grouped(nvidia_gpus(facts.topology), _is_lost)
    for certainty, names in lost.items():
        verb, them = ("is", "it") if len(names) == 1 else ("are", "them")
        yield CHECK.finding(
            names,
            f"{runs(names)} {verb} on the PCI bus, and NVIDIA's library NVML does not list {them}",
            ("GPUs that NVML lists", f"not {', '.join(names)}", "NVML and /sys"),
            certainty=certainty,
        )
    if silent := silent_gpus(facts.topology):
        yield CHECK.blind(
            silent,
            f"whether NVIDIA's driver has {runs(silent)} cannot be read",
            remedy="nvidia-smi -L lists as many GPUs as lspci -d 10de: shows; dmesg | grep Xid",
        )


def _is_lost(gpu: Device) -> Certainty | None:
    """How sure that is; None where it is not."""
    facts = gpu.facts
    taken = facts.get("withheld") is True or str(facts.get("driver", "")) not in _DRIVERS
    if facts.get("nvml_lists") is not False or taken:
        return None
    return "possible" if facts.get("cuda_visible") is True else "seen"


CHECK = Check(
    name="gpu_lost",
    summary="a GPU is on the PCI bus and NVIDIA's driver does not have it",
    costs="all of it: jobs run with fewer GPUs, or do not start",
    remedy="dmesg | grep -e Xid -e NVRM: 79 is a GPU that has fallen off the bus (NVIDIA Xid Errors); look for"
    " NVreg_ExcludedGpus in /proc/driver/nvidia/params; drain the host, power-cycle it, reseat or replace",
    signs=_signs,
    needs=(needs.settings, needs.nvidia_gpu),
    asks=(needs.told_by_nvml,),
)

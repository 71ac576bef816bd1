"""A GPU that the PCI bus shows and NVIDIA's driver does not: it has fallen off the bus, or could not be started.

Programs see one GPU fewer and say nothing, so that all else would be measured and found in order.
"""

from __future__ import annotations

from collections import defaultdict

from railwright.faults.model import Certainty, Facts, Fault, Finding
from railwright.faults.parts import unlooked
from railwright.results.model import Evidence
from railwright.topology.gpus import nvidia_gpus, runs
from railwright.topology.model import Device, Topology

_DRIVERS = ("", "nvidia")
"""A GPU with another one (vfio-pci, nouveau) was given away on purpose; one with none could not be started."""


def _look(facts: Facts) -> tuple[Finding, ...]:
    found = [_lost(names, certainty) for certainty, names in _by_certainty(facts.topology).items()]
    says = "whether NVIDIA's driver has {gpus} cannot be read"
    remedy = "nvidia-smi -L lists as many GPUs as lspci -d 10de: shows; dmesg | grep Xid"
    return (*found, *unlooked(facts.topology, fault=FAULT.name, says=says, remedy=remedy))


def _by_certainty(topology: Topology) -> dict[Certainty, list[str]]:
    lost: dict[Certainty, list[str]] = defaultdict(list)
    for gpu in nvidia_gpus(topology):
        if _is_lost(gpu):
            lost["possible" if gpu.facts.get("cuda_visible") is True else "seen"].append(gpu.id)
    return lost


def _is_lost(gpu: Device) -> bool:
    facts = gpu.facts
    withheld = facts.get("withheld") is True
    return facts.get("nvml_lists") is False and not withheld and str(facts.get("driver", "")) in _DRIVERS


def _lost(names: list[str], certainty: Certainty) -> Finding:
    verb, them = ("is", "it") if len(names) == 1 else ("are", "them")
    return Finding(
        fault=FAULT.name,
        where=tuple(names),
        certainty=certainty,
        says=f"{runs(names)} {verb} on the PCI bus, and NVIDIA's library NVML does not list {them}",
        costs="all of it: jobs run with fewer GPUs, or do not start",
        remedy="dmesg | grep -e Xid -e NVRM: 79 is a GPU that has fallen off the bus (NVIDIA Xid Errors); look for"
        " NVreg_ExcludedGpus in /proc/driver/nvidia/params; drain the host, power-cycle it, reseat or replace",
        evidence=(Evidence(claim="GPUs that NVML lists", value=f"not {', '.join(names)}", seen="NVML and /sys"),),
    )


FAULT = Fault(name="gpu_lost", summary="a GPU is on the PCI bus and NVIDIA's driver does not have it", signs=_look)
"""What is left is a machine with fewer GPUs: no topology with a fault in it."""

"""Compute mode `prohibited`: CUDA lists the GPU, but no program may use it."""

from __future__ import annotations

from railwright.checks import needs
from railwright.checks.check import Check, Command, Facts, Findings
from railwright.checks.commands import nvidia_smi
from railwright.topology.devices import Device, Topology
from railwright.topology.gpus import format_runs, usable_gpus


def _signs(facts: Facts) -> Findings:
    closed = [gpu.id for gpu in _find_closed(facts.topology)]
    if closed:
        yield CHECK.finding(
            closed, f"the compute mode of {format_runs(closed)} is prohibited", ("compute mode", "prohibited", "NVML")
        )


def _find_closed(topology: Topology) -> list[Device]:
    """Return only GPUs that CUDA lists and that are not in MIG mode; the others cannot be used anyway."""
    return [gpu for gpu in usable_gpus(topology) if gpu.facts.get("compute_mode") == "prohibited"]


def _build_commands(topology: Topology) -> tuple[Command, ...]:
    return tuple(nvidia_smi(gpu, "-c", "DEFAULT", "PROHIBITED") for gpu in _find_closed(topology))


CHECK = Check(
    name="compute_mode_prohibited",
    summary="no program may use a GPU",
    right="programs may use every GPU",
    costs="no program can create a CUDA context there (nvidia-smi manual, -c)",
    remedy="nvidia-smi -i GPU -c DEFAULT as root, or ask who set it; CUDA_VISIBLE_DEVICES can exclude the GPU",
    signs=_signs,
    needs=(needs.settings, needs.nvidia_gpu),
    asks=(needs.nvml_reports_gpus,),
    change=_build_commands,
)

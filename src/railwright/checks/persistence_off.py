"""Persistence mode is off: the driver unloads a GPU's state when its last program ends, and initializes it again."""

from __future__ import annotations

from railwright.checks import needs
from railwright.checks.check import Check, Command, Facts, Findings
from railwright.checks.commands import nvidia_smi
from railwright.topology.devices import Device, Topology


def _signs(facts: Facts) -> Findings:
    off = [gpu.id for gpu in _find_off(facts.topology)]
    if off:
        yield CHECK.finding(off, f"persistence mode is off in {', '.join(off)}", ("persistence mode", "off", "NVML"))


def _find_off(topology: Topology) -> list[Device]:
    return [gpu for gpu in topology.of_kind("gpu") if gpu.facts.get("persistence") is False]


def _build_commands(topology: Topology) -> tuple[Command, ...]:
    return tuple(nvidia_smi(gpu, "-pm", "1", "0") for gpu in _find_off(topology))


CHECK = Check(
    name="persistence_off",
    summary="the driver deinitializes idle GPUs",
    right="the driver keeps idle GPUs initialized",
    certainty="possible",
    costs="the first program waits 1 to 3 s for each GPU (NVIDIA Driver Persistence), and configured clocks"
    " and limits are lost",
    remedy="start nvidia-persistenced, or nvidia-smi -pm 1 as root",
    signs=_signs,
    needs=(needs.settings, needs.nvidia_gpu),
    asks=(needs.nvml_reports_gpus,),
    change=_build_commands,
)

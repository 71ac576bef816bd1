"""A GPU whose power limit is below its default, so that it lowers its clocks under load."""

from __future__ import annotations

from railwright.checks import needs
from railwright.checks.check import Check, Command, Facts, Findings
from railwright.checks.commands import nvidia_smi
from railwright.checks.parts import group_ids
from railwright.topology.devices import Device, Topology

_DELIBERATE_BELOW = 0.995
"""Limits are set in whole watts; a limit below this share of the default is deliberate."""


def _signs(facts: Facts) -> Findings:
    for (limit, default), names in group_ids(facts.topology.of_kind("gpu"), _lowered_limit).items():
        yield CHECK.finding(
            names,
            f"the power limit of {names[0] if len(names) == 1 else f'{len(names)} GPUs'} is {limit:.0f} W, the default"
            f" is {default:.0f} W",
            ("power limit", f"{limit:.0f} of {default:.0f} W", "NVML"),
            remedy=f"nvidia-smi -pl {default:.0f} as root, but first ask who set it: the rack may not supply more",
        )


def _lowered_limit(gpu: Device) -> tuple[float, float] | None:
    """Return (limit, default) in watts if the GPU's limit is below its default."""
    limit, default = gpu.facts.get("power_limit_w"), gpu.facts.get("power_default_w")
    if isinstance(limit, int | float) and isinstance(default, int | float) and 0 < limit < _DELIBERATE_BELOW * default:
        return limit, default
    return None


def _build_commands(topology: Topology) -> tuple[Command, ...]:
    found = ((gpu, _lowered_limit(gpu)) for gpu in topology.of_kind("gpu"))
    return tuple(nvidia_smi(gpu, "-pl", f"{watts[1]:.0f}", f"{watts[0]:.0f}") for gpu, watts in found if watts)


CHECK = Check(
    name="power_limited",
    summary="a GPU's power limit is below its default",
    right="every GPU has its default power limit",
    costs="compute under load runs at lower clocks; copies and collectives seldom need the full power",
    signs=_signs,
    needs=(needs.settings, needs.nvidia_gpu),
    asks=(needs.nvml_reports_gpus,),
    change=_build_commands,
)

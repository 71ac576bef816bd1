"""A GPU that was throttled when the machine was inspected: by heat, by power, or by an external brake.

Throttling during a measurement is sampled separately (`diagnosis.peers.gpu_health`).
"""

from __future__ import annotations

from railwright.checks import needs
from railwright.checks.check import Check, Facts, Findings
from railwright.checks.parts import group_ids

_NOT_THROTTLED = "no"
_NORMAL_UNDER_LOAD = "software power cap"
"""A GPU at full load runs at its power limit by design; without load the reason is unusual, but no proof."""


def _signs(facts: Facts) -> Findings:
    throttled = group_ids(facts.topology.of_kind("gpu"), lambda gpu: str(gpu.facts.get("throttled", _NOT_THROTTLED)))
    for reasons, names in throttled.items():
        if reasons != _NOT_THROTTLED:
            yield CHECK.finding(
                names,
                f"{', '.join(names)} {'is' if len(names) == 1 else 'are'} throttled: {reasons}",
                ("clock event reasons", reasons, "NVML, before the run"),
                certainty="possible" if reasons == _NORMAL_UNDER_LOAD else "seen",
            )


CHECK = Check(
    name="gpu_throttled",
    summary="heat or power lowers a GPU's clocks",
    right="neither heat nor power lowers a GPU's clocks",
    costs="lower clocks; a hardware slowdown at least halves them (nvml.h, nvmlClocksEventReasons)",
    remedy="nvidia-smi -q -d PERFORMANCE,TEMPERATURE,POWER; then check cooling, power supplies and the BMC's event log",
    signs=_signs,
    needs=(needs.settings, needs.nvidia_gpu),
    asks=(needs.nvml_reports_gpus,),
)

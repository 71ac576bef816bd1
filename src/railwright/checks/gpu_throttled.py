"""A GPU that was slowed down when the machine was looked at: too hot, short of power, or told to brake.

What happens during a measurement is seen by sampling (`diagnosis.gpu_health`).
"""

from __future__ import annotations

from railwright.checks import needs
from railwright.checks.check import Check, Facts, Findings
from railwright.checks.parts import grouped

_NOT = "no"
_UNDER_LOAD_ALONE = "software power cap"
"""A GPU at full load is held at its power limit by design; without a load that is odd, and no proof."""


def _signs(facts: Facts) -> Findings:
    throttled = grouped(facts.topology.of_kind("gpu"), lambda gpu: str(gpu.facts.get("throttled", _NOT)))
    for reasons, names in throttled.items():
        if reasons != _NOT:
            yield CHECK.finding(
                names,
                f"{', '.join(names)} {'is' if len(names) == 1 else 'are'} slowed down now: {reasons}",
                ("clock event reasons", reasons, "NVML, before the run"),
                certainty="possible" if reasons == _UNDER_LOAD_ALONE else "seen",
            )


CHECK = Check(
    name="gpu_throttled",
    summary="a GPU's clocks are held down by heat or power",
    costs="its clocks are lowered, a hardware slowdown halves them or more (nvml.h, nvmlClocksEventReasons)",
    remedy="nvidia-smi -q -d PERFORMANCE,TEMPERATURE,POWER; then look at cooling, power supplies and the"
    " BMC's event log",
    signs=_signs,
    needs=(needs.settings, needs.nvidia_gpu),
    asks=(needs.told_by_nvml,),
)

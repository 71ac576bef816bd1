"""Programs that ask NVIDIA's driver again and again: each call takes locks that a job's own calls wait for.

An operator of GPU clusters lost 2 to 4 % of Linpack to a monitor that polled nvidia-smi (three systems of the TOP500
of November 2021). Only programs whose ways are known are seen, by their command lines.
"""

from __future__ import annotations

from railwright.checks import needs
from railwright.checks.check import Check, Facts, Findings
from railwright.checks.host_settings import read, setting
from railwright.units import format_duration

OFTEN_S = 5.0
"""Our choice: what is asked more seldom takes less than a call in 5 s."""


def _signs(facts: Facts) -> Findings:
    if needs.nvidia_gpu(facts.topology):
        return
    each_s = setting(facts.topology, "driver_polled_s")
    if isinstance(each_s, float | int) and not isinstance(each_s, bool) and 0 < each_s <= OFTEN_S:
        who = str(setting(facts.topology, "driver_pollers"))
        yield CHECK.of_host(
            facts,
            f"the driver of the GPUs is asked every {format_duration(each_s)}: {who}",
            ("programs", who, "/proc/*/cmdline"),
        )


CHECK = Check(
    name="driver_polled",
    summary="programs keep asking the driver of the GPUs",
    certainty="possible",
    costs="2 to 4 % of Linpack by nvidia-smi at one operator of GPU clusters; to measure here",
    remedy="railwright watch --cost-of 'nvidia-smi -l 1' says what it takes; ask more seldom, or through DCGM",
    signs=_signs,
    needs=(needs.settings, needs.nvidia_gpu),
    asks=(read("driver_pollers", "driver_polled_s"),),
)

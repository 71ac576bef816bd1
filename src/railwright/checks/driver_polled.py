"""Programs that poll NVIDIA's driver: each call takes locks that the job's own calls wait for.

An operator of GPU clusters lost 2 to 4 % of Linpack to a monitor that polled nvidia-smi (three systems of the TOP500
of November 2021). The check recognizes known programs by their command lines.
"""

from __future__ import annotations

from railwright.checks import needs
from railwright.checks.check import Check, Facts, Findings
from railwright.checks.host_settings import require_read, setting
from railwright.units import format_duration

MAX_INTERVAL_S = 5.0
"""Our choice: longer intervals are not reported."""


def _signs(facts: Facts) -> Findings:
    if needs.nvidia_gpu(facts.topology):
        return
    interval_s = setting(facts.topology, "driver_polled_s")
    if isinstance(interval_s, float | int) and not isinstance(interval_s, bool) and 0 < interval_s <= MAX_INTERVAL_S:
        pollers = str(setting(facts.topology, "driver_pollers"))
        yield CHECK.host_finding(
            facts,
            f"programs poll the GPU driver every {format_duration(interval_s)}: {pollers}",
            ("programs", pollers, "/proc/*/cmdline"),
        )


CHECK = Check(
    name="driver_polled",
    summary="programs poll the GPU driver",
    right="no program polls the GPU driver",
    certainty="possible",
    costs="one operator of GPU clusters lost 2 to 4 % of Linpack to nvidia-smi; measure the cost here",
    remedy="railwright watch --cost-of 'nvidia-smi -l 1' measures the cost; poll less often, or through DCGM",
    signs=_signs,
    needs=(needs.settings, needs.nvidia_gpu),
    asks=(require_read("driver_pollers", "driver_polled_s"),),
)

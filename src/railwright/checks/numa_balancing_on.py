"""The kernel migrates pages between NUMA nodes while programs run, and unmaps them first to observe accesses.

RCCL warns about it at startup (src/init.cc), and ROCm's documentation disables it: pages that a GPU or a NIC also
uses fault repeatedly.
"""

from __future__ import annotations

from railwright.checks import needs
from railwright.checks.check import Change, Check, Facts, Findings
from railwright.checks.host_settings import require_read, setting

_FACT = "numa_balancing"


def _signs(facts: Facts) -> Findings:
    mode = setting(facts.topology, _FACT)
    if isinstance(mode, int) and mode > 0 and not needs.numa_nodes(facts.topology):
        yield CHECK.host_finding(
            facts,
            f"automatic NUMA balancing is on (mode {mode})",
            ("numa_balancing", str(mode), "/proc/sys/kernel/numa_balancing"),
        )


CHECK = Check(
    name="numa_balancing_on",
    summary="the kernel migrates pages between NUMA nodes",
    right="the kernel leaves pages on their NUMA node",
    certainty="possible",
    costs="run times vary (RCCL src/init.cc)",
    remedy="sysctl kernel.numa_balancing=0; permanently, numa_balancing=disable on the kernel's command line",
    signs=_signs,
    needs=(needs.settings, needs.numa_nodes),
    asks=(require_read(_FACT),),
    change=lambda _: Change(files="proc/sys/kernel/numa_balancing", value="0"),
)

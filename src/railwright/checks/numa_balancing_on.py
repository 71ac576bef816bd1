"""The kernel moves pages between NUMA nodes while programs run, and unmaps them first to see who uses them.

RCCL warns of it at its start (src/init.cc), and ROCm's documentation switches it off: pages that a GPU or a NIC also
uses fault again and again.
"""

from __future__ import annotations

from railwright.checks import needs
from railwright.checks.check import Change, Check, Facts, Findings
from railwright.checks.host_settings import read, setting

_FACT = "numa_balancing"


def _signs(facts: Facts) -> Findings:
    mode = setting(facts.topology, _FACT)
    if isinstance(mode, int) and mode > 0 and not needs.numa_nodes(facts.topology):
        yield CHECK.of_host(
            facts,
            f"the kernel balances pages between NUMA nodes (mode {mode})",
            ("numa_balancing", str(mode), "/proc/sys/kernel/numa_balancing"),
        )


CHECK = Check(
    name="numa_balancing_on",
    summary="the kernel moves pages between NUMA nodes",
    certainty="possible",
    costs="times that vary from run to run (RCCL src/init.cc)",
    remedy="sysctl kernel.numa_balancing=0, and numa_balancing=disable on the kernel's command line",
    signs=_signs,
    needs=(needs.settings, needs.numa_nodes),
    asks=(read(_FACT),),
    change=lambda _: Change(files="proc/sys/kernel/numa_balancing", value="0"),
)

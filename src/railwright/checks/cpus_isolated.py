"""A process whose CPUs are isolated: the kernel does not balance threads between them, so all threads share one CPU.

Linux Documentation/admin-guide/kernel-parameters.txt, isolcpus: such CPUs are excluded from load balancing, and only
affinity moves threads to or from them.
"""

from __future__ import annotations

from railwright.checks import needs
from railwright.checks.check import Check, Facts, Findings
from railwright.checks.host_settings import require_read, setting
from railwright.topology.cpu_list import parse_cpu_list
from railwright.topology.devices import Topology

_FACT, _NO_CPU = "isolated_cpus", "no CPU"


def _signs(facts: Facts) -> Findings:
    allowed, isolated = (setting(facts.topology, name) for name in ("cpus_allowed", _FACT))
    if not isinstance(allowed, str) or not isinstance(isolated, str) or isolated == _NO_CPU:
        return
    mine = parse_cpu_list(allowed)
    alone = mine & parse_cpu_list(isolated)
    if len(alone) > 1 and 2 * len(alone) > len(mine):
        yield CHECK.host_finding(
            facts,
            f"{len(alone)} of the {len(mine)} CPUs of this process are isolated ({isolated[:80]})",
            ("isolated CPUs", isolated[:80], "/sys/devices/system/cpu/isolated"),
            ("CPUs allowed", allowed[:80], "/proc/self/status"),
        )


def _explain_unread(topology: Topology) -> str:
    """Require the process's CPUs only if some CPUs are isolated."""
    return require_read(*["cpus_allowed"] * (setting(topology, _FACT) != _NO_CPU), _FACT)(topology)


CHECK = Check(
    name="cpus_isolated",
    summary="a process runs on isolated CPUs",
    # Isolated CPUs are meant for threads that are pinned one by one.
    certainty="possible",
    right="processes run on CPUs that are not isolated",
    costs="threads that are not pinned individually share a single CPU, among them those of NCCL, MPI and UCX",
    remedy="pin every thread to a CPU of its own, or give the process other CPUs: taskset -pc PID shows its"
    " CPUs; isolcpus= on the kernel's command line and cpuset partitions isolate CPUs",
    signs=_signs,
    needs=(needs.settings,),
    asks=(_explain_unread,),
)

"""A process whose CPUs are isolated: the kernel moves no thread between them, so all of its threads stay on one.

Linux Documentation/admin-guide/kernel-parameters.txt, isolcpus: such CPUs are left out of load balancing, and threads
get there, and away, by affinity alone.
"""

from __future__ import annotations

from railwright.checks import needs
from railwright.checks.check import Check, Facts, Findings
from railwright.checks.host_settings import read, setting
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
        yield CHECK.of_host(
            facts,
            f"{len(alone)} of the {len(mine)} CPUs of this process are isolated ({isolated[:80]})",
            ("isolated CPUs", isolated[:80], "/sys/devices/system/cpu/isolated"),
            ("CPUs allowed", allowed[:80], "/proc/self/status"),
        )


def _unread(topology: Topology) -> str:
    """Where no CPU is isolated it does not matter which ones the process has."""
    return read(*["cpus_allowed"] * (setting(topology, _FACT) != _NO_CPU), _FACT)(topology)


CHECK = Check(
    name="cpus_isolated",
    summary="a process runs on isolated CPUs",
    # Threads that are pinned one by one are what isolated CPUs are for.
    certainty="possible",
    costs="threads that nobody pins one by one share a single CPU: those of NCCL, of MPI and of UCX among them",
    remedy="pin every thread to a CPU of its own, or give the process other CPUs: taskset -pc PID shows what it"
    " has; isolcpus= on the kernel's command line, and cpuset partitions, set them apart",
    signs=_signs,
    needs=(needs.settings,),
    asks=(_unread,),
)

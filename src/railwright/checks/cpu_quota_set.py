"""A control group that stops its processes when they used their share of CPU time, whatever CPUs are idle.

Threads that poll, as those of NCCL and MPI do, use theirs up, and then all of them stand still until the next period
(Linux Documentation/admin-guide/cgroup-v2.rst, cpu.max). In a container the file is that of the container.
The first version of control groups says the same in cpu.cfs_quota_us (scheduler/sched-bwc.rst).
"""

from __future__ import annotations

from railwright.checks import needs
from railwright.checks.check import Check, Facts, Findings
from railwright.checks.host_settings import read, setting

_FACT = "cpu_quota"


def _signs(facts: Facts) -> Findings:
    quota = setting(facts.topology, _FACT)
    if not isinstance(quota, float | int):
        return
    yield CHECK.of_host(
        facts,
        f"the control group of this process may use the time of {quota:g} CPUs",
        ("CPU quota", f"{quota:g} CPUs", "cpu.max or cpu.cfs_quota_us below /sys/fs/cgroup"),
    )


CHECK = Check(
    name="cpu_quota_set",
    summary="CPU time is rationed",
    certainty="possible",
    costs="threads that poll are stopped for the rest of each period: tens of milliseconds, at any time",
    remedy="leave the limit out, and request whole CPUs (Kubernetes: static CPU manager, no CPU limit);"
    " nr_throttled in /sys/fs/cgroup/cpu.stat counts how often it happened",
    signs=_signs,
    needs=(needs.settings,),
    asks=(read(_FACT),),
)

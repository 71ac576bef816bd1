"""A control group that stops its processes once they have used their CPU quota, even if CPUs are idle.

Polling threads, such as those of NCCL and MPI, use up the quota, and then all threads stop until the next period
(Linux Documentation/admin-guide/cgroup-v2.rst, cpu.max). In a container the container's own file applies.
Version 1 of control groups has cpu.cfs_quota_us instead (scheduler/sched-bwc.rst).
"""

from __future__ import annotations

from railwright.checks import needs
from railwright.checks.check import Check, Facts, Findings
from railwright.checks.host_settings import require_read, setting

_FACT = "cpu_quota"


def _signs(facts: Facts) -> Findings:
    quota = setting(facts.topology, _FACT)
    if not isinstance(quota, float | int):
        return
    yield CHECK.host_finding(
        facts,
        f"the control group of this process is limited to the time of {quota:g} CPUs",
        ("CPU quota", f"{quota:g} CPUs", "cpu.max or cpu.cfs_quota_us below /sys/fs/cgroup"),
    )


CHECK = Check(
    name="cpu_quota_set",
    summary="a CPU quota is set",
    right="no CPU quota is set",
    certainty="possible",
    costs="polling threads are stopped for the rest of each period, which takes tens of milliseconds",
    remedy="remove the limit, and request whole CPUs (Kubernetes: static CPU manager, no CPU limit);"
    " nr_throttled in /sys/fs/cgroup/cpu.stat counts the stops",
    signs=_signs,
    needs=(needs.settings,),
    asks=(require_read(_FACT),),
)

"""A limit on locked memory: RDMA locks every buffer that it registers, and fails or falls back at the limit.

UCX and NCCL documentation require `ulimit -l unlimited`. The limit does not apply to a process with CAP_IPC_LOCK.
"""

from __future__ import annotations

from railwright.checks import needs
from railwright.checks.check import Check, Facts, Findings
from railwright.checks.host_settings import nonnegative_integer, require_read, setting

_READ = ("memlock_bytes", "may_lock_memory")


def _signs(facts: Facts) -> Findings:
    limit_bytes, may_lock = nonnegative_integer(setting(facts.topology, _READ[0])), setting(facts.topology, _READ[1])
    if limit_bytes is None or may_lock is None or needs.rdma_nic(facts.topology):
        return
    effect = (
        "the limit does not apply to this process (CAP_IPC_LOCK), but may apply to others"
        if may_lock
        else "RDMA cannot register more"
    )
    yield CHECK.host_finding(
        facts,
        f"locked memory is limited to {limit_bytes / 2**20:.0f} MiB: {effect}",
        ("max locked memory", f"{limit_bytes} B", "/proc/self/limits"),
        certainty="possible" if may_lock else "seen",
    )


CHECK = Check(
    name="memlock_low",
    summary="RDMA cannot lock enough memory",
    right="RDMA can lock enough memory",
    costs="registration fails with ENOMEM: NCCL ends, UCX falls back to TCP or copies",
    remedy="ulimit -l unlimited; permanently, set LimitMEMLOCK=infinity in the service that starts jobs, or docker run"
    " --ulimit memlock=-1",
    signs=_signs,
    needs=(needs.settings, needs.rdma_nic),
    asks=(require_read(*_READ),),
)

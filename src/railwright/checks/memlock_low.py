"""A limit on locked memory: RDMA locks every buffer that it registers, and fails or falls back where it may not.

UCX and NCCL documentation ask for `ulimit -l unlimited`. A process with CAP_IPC_LOCK is not bound by it.
"""

from __future__ import annotations

from railwright.checks import needs
from railwright.checks.check import Check, Facts, Findings
from railwright.checks.finding import OfPart
from railwright.checks.host_settings import host_id, read, setting
from railwright.results.records import Evidence

_READ = ("memlock_bytes", "may_lock_memory")


def _signs(facts: Facts) -> Findings:
    most, may = (setting(facts.topology, name) for name in _READ)
    if not isinstance(most, int) or isinstance(most, bool) or may is None or needs.rdma_nic(facts.topology):
        return
    held = "this process has CAP_IPC_LOCK and is not bound by it, others may be" if may else "RDMA registers no more"
    yield CHECK.finding(
        (OfPart(host_id(facts.topology)),),
        f"memory that may be locked is limited to {most / 2**20:.0f} MiB: {held}",
        Evidence(claim="max locked memory", value=f"{most} B", seen="/proc/self/limits"),
        certainty="possible" if may else "seen",
        costs="registration fails with ENOMEM: NCCL ends, UCX falls back to TCP or copies",
        remedy="ulimit -l unlimited; for good LimitMEMLOCK=infinity of the service that starts jobs, or docker run"
        " --ulimit memlock=-1",
    )


CHECK = Check(
    name="memlock_low",
    summary="RDMA may not lock enough memory",
    signs=_signs,
    needs=(needs.settings, needs.rdma_nic),
    asks=(read(*_READ),),
)

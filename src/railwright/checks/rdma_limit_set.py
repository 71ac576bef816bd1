"""A control group that limits the handles and objects of RDMA devices.

Each open device is a handle; each queue pair, memory region and completion queue is an object (Linux
Documentation/admin-guide/cgroup-v2.rst, rdma.max). In a container the container's own file applies.
"""

from __future__ import annotations

from railwright.checks import needs
from railwright.checks.check import Check, Facts, Findings
from railwright.checks.host_settings import require_read, setting
from railwright.topology.settings import NONE, UNLIMITED

_FACT = "rdma_limit"


def _signs(facts: Facts) -> Findings:
    limit = setting(facts.topology, _FACT)
    if isinstance(limit, str) and limit not in (NONE, UNLIMITED):
        yield CHECK.host_finding(
            facts,
            f"the control group of this process limits RDMA: {limit}",
            ("RDMA limit", limit, "rdma.max below /sys/fs/cgroup"),
        )


CHECK = Check(
    name="rdma_limit_set",
    summary="a control group limits RDMA",
    right="no control group limits RDMA",
    certainty="possible",
    costs="beyond the limit queue pairs and regions cannot be created: NCCL ends, UCX falls back to TCP",
    remedy="remove the limit: echo 'DEVICE hca_handle=max hca_object=max' | tee rdma.max of the group",
    signs=_signs,
    needs=(needs.settings, needs.rdma_nic),
    asks=(require_read(_FACT),),
)

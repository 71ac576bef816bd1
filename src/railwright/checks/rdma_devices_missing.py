"""RDMA devices of the kernel that are missing from /dev, as in a container that was not given them.

Nothing fails: NCCL and UCX fall back to TCP. RDMA needs one /dev/infiniband/uverbsN for each device (Linux
Documentation/infiniband/user_verbs.rst).
"""

from __future__ import annotations

from railwright.checks import needs
from railwright.checks.check import Check, Facts, Findings
from railwright.checks.host_settings import nonnegative_integer, require_read, setting
from railwright.checks.parts import rdma_nics
from railwright.topology.settings import NONE

_FACT = "verbs_devices"


def _signs(facts: Facts) -> Findings:
    count = setting(facts.topology, _FACT)
    devices = {str(nic.facts.get("rdma_device", nic.id)) for nic in rdma_nics(facts.topology)}
    given = 0 if count == NONE else nonnegative_integer(count)
    if given is None or given >= len(devices):
        return
    yield CHECK.host_finding(
        facts,
        f"/dev/infiniband has {given} of {len(devices)} RDMA devices",
        ("uverbs devices", str(given), "/dev/infiniband"),
        certainty="likely" if given else "seen",
    )


CHECK = Check(
    name="rdma_devices_missing",
    summary="RDMA devices are missing from /dev",
    right="every RDMA device is in /dev",
    costs="the difference between RDMA and TCP, without an error: NCCL and UCX use the devices that they find",
    remedy="docker run --device=/dev/infiniband --ulimit memlock=-1; in Kubernetes use the RDMA device plugin; on"
    " hosts modprobe ib_uverbs",
    signs=_signs,
    needs=(needs.settings, needs.rdma_nic),
    asks=(require_read(_FACT),),
)

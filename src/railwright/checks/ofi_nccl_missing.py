"""GPUs and EFA without aws-ofi-nccl: NCCL then uses sockets only.

AWS, EFA and NCCL on Amazon EC2 (NCCL needs this library for EFA). A container may install it elsewhere, so the
finding is only possible.
"""

from __future__ import annotations

from railwright.checks import needs
from railwright.checks.check import Check, Facts, Findings
from railwright.checks.host_settings import require_read, setting
from railwright.topology.settings import NONE

_PLACES = "/opt/amazon/aws-ofi-nccl, /opt/amazon/ofi-nccl, /opt/aws-ofi-nccl"


def _signs(facts: Facts) -> Findings:
    applies = not needs.efa(facts.topology) and not needs.nvidia_gpu(facts.topology)
    if applies and setting(facts.topology, "ofi_nccl") == NONE:
        yield CHECK.host_finding(
            facts, f"no libnccl-net*.so is in {_PLACES}: without it NCCL does not use EFA", ("library", NONE, _PLACES)
        )


CHECK = Check(
    name="ofi_nccl_missing",
    summary="NCCL has no library for EFA",
    right="NCCL has a library for EFA",
    certainty="possible",
    costs="sockets instead of EFA, as with tcp_fallback",
    remedy="install aws-ofi-nccl (part of the EFA installer); with NCCL_DEBUG=INFO a working container logs NET/OFI",
    signs=_signs,
    needs=(needs.settings, needs.nvidia_gpu, needs.efa),
    asks=(require_read("ofi_nccl"),),
)

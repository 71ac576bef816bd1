"""GPUs and EFA without aws-ofi-nccl: NCCL then knows sockets alone.

AWS, EFA and NCCL on Amazon EC2 (NCCL reaches EFA by this library alone). A container may bring it elsewhere, so that
its absence here is only possible.
"""

from __future__ import annotations

from railwright.checks import needs
from railwright.checks.check import Check, Facts, Findings
from railwright.checks.host_settings import read, setting
from railwright.topology.settings import NONE

_PLACES = "/opt/amazon/aws-ofi-nccl, /opt/amazon/ofi-nccl, /opt/aws-ofi-nccl"


def _signs(facts: Facts) -> Findings:
    applies = not needs.efa(facts.topology) and not needs.nvidia_gpu(facts.topology)
    if applies and setting(facts.topology, "ofi_nccl") == NONE:
        yield CHECK.of_host(
            facts, f"no libnccl-net*.so is in {_PLACES}: without it NCCL does not use EFA", ("library", NONE, _PLACES)
        )


CHECK = Check(
    name="ofi_nccl_missing",
    summary="NCCL has no library for EFA",
    certainty="possible",
    costs="as tcp_fallback: sockets instead of EFA",
    remedy="install aws-ofi-nccl (the EFA installer has it); in a container NCCL_DEBUG=INFO says NET/OFI",
    signs=_signs,
    needs=(needs.settings, needs.nvidia_gpu, needs.efa),
    asks=(read("ofi_nccl"),),
)

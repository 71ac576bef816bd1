"""NCCL has fewer channels than the links need: each channel is a GPU thread block with a limited rate.

The cause is NCCL_MAX_NCHANNELS, NCCL_MAX_CTAS, or a communicator configured with few channels to leave the GPU free
for compute.
"""

from __future__ import annotations

import math

from msgspec.structs import replace

from railwright.checks.settings import Cause, Settings, is_below
from railwright.faults.cases import can_run
from railwright.faults.fault import ONLY_NCCL, Fault, Hypotheses
from railwright.limits.case import Case
from railwright.limits.limit import Constant
from railwright.limits.sources import CHANNELS_MEASURED
from railwright.limits.traffic import NVLS_CAPABILITY, compute_major
from railwright.units import format_count

_CHANNEL = Constant(20.85e9, "bytes/s of one channel over NVLink, Hopper", CHANNELS_MEASURED)
_SUPPOSED = (1, 2, 4, 8)
_ENOUGH = 16
"""Hopper's rings have 16 to 24 channels."""
_FEWER = Cause(is_below(_ENOUGH), "leaves fewer channels than NVLink needs")


def _hypotheses(case: Case) -> Hypotheses:
    """Yield hypotheses with few channels if NVLink joins Hopper GPUs; for others a channel's rate was not measured."""
    host = case.cluster.host
    if not can_run(case) or not host.joins_gpus or case.gpu_cap_bytes_per_s < math.inf:
        return
    if compute_major(host) != NVLS_CAPABILITY.value:
        return
    for channels in _SUPPOSED:
        yield FAULT.supposed(
            f"NCCL has {format_count(channels, 'channel')}",
            replace(case, gpu_cap_bytes_per_s=_CHANNEL.value * channels),
            "NCCL_DEBUG=INFO, then railwright explain LOG, which counts the channels; env | grep NCCL_MAX",
        )


FAULT = Fault(
    name="few_channels",
    summary="fewer NCCL channels than the links need",
    right="NCCL has enough channels for the links",
    settings=Settings(
        dict.fromkeys(("NCCL_MAX_NCHANNELS", "NCCL_MAX_NRINGS", "NCCL_MAX_CTAS", "NCCL_MAX_P2P_NCHANNELS"), _FEWER),
        costs="at most 20.9 GB/s per channel of a Hopper GPU (measured with NCCL 2.28.9 on 2 H200)",
        remedy="unset it, or raise it until the rate no longer grows (NCCL User Guide, Environment Variables)",
    ),
    needs_results=True,
    transports=ONLY_NCCL,
    ways=_hypotheses,
)

"""NCCL has fewer channels than the links need: each is a thread block of the GPU and carries only so much.

NCCL_MAX_NCHANNELS, NCCL_MAX_CTAS or a communicator configured for few of them (to leave the GPU to compute) do that.
"""

from __future__ import annotations

import math

from msgspec.structs import replace

from railwright.faults.model import Facts, Fault, Finding, Supposed
from railwright.faults.parts import can_run, has_gpu_links
from railwright.faults.settings import Cause, is_below, look_at_settings
from railwright.limits.case import Case
from railwright.limits.model import Constant
from railwright.limits.sources import CHANNELS_MEASURED
from railwright.limits.traffic import NVLS_CAPABILITY, compute_major

_CHANNEL = Constant(value=20.85e9, unit="bytes/s of one channel over NVLink, Hopper", source=CHANNELS_MEASURED)
_SUPPOSED = (1, 2, 4, 8)
_ENOUGH = 16
"""Hopper's rings have 16 to 24 channels."""
_DOES = "leaves fewer channels than NVLink needs"
_SETTINGS = {
    "NCCL_MAX_NCHANNELS": Cause(is_below(_ENOUGH), _DOES),
    "NCCL_MAX_NRINGS": Cause(is_below(_ENOUGH), _DOES),
    "NCCL_MAX_CTAS": Cause(is_below(_ENOUGH), _DOES),
}


def _look(facts: Facts) -> tuple[Finding, ...]:
    return look_at_settings(
        facts,
        FAULT.name,
        _SETTINGS,
        costs="20.9 GB/s for each channel of a Hopper GPU is all there is (measured with NCCL 2.28.9 on 2 H200)",
        remedy="unset it, or raise it until the rate no longer grows (NCCL User Guide, Environment Variables)",
    )


def _suppose(case: Case) -> tuple[Supposed, ...]:
    """Only where NVLink joins Hopper GPUs: what a channel carries elsewhere was not measured."""
    host = case.cluster.host
    if not can_run(case) or not has_gpu_links(host) or case.gpu_cap_bytes_per_s < math.inf:
        return ()
    if compute_major(host) != NVLS_CAPABILITY.value:
        return ()
    return tuple(
        Supposed(
            fault=FAULT.name,
            says=f"NCCL has {count} channel{'s' if count > 1 else ''}",
            case=replace(case, gpu_cap_bytes_per_s=_CHANNEL.value * count),
            tell_apart="NCCL_DEBUG=INFO, then railwright explain LOG: it counts the channels; env | grep NCCL_MAX",
        )
        for count in _SUPPOSED
    )


FAULT = Fault(
    name="few_channels",
    summary="fewer NCCL channels than the links need",
    look=_look,
    needs_results=True,
    suppose=_suppose,
)

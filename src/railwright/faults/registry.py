"""The one registry of faults."""

from __future__ import annotations

from railwright.faults import (
    acs_redirect,
    algorithm_forced,
    compute_mode_prohibited,
    connection_ceiling,
    few_channels,
    gpu_lost,
    gpu_memory_errors,
    gpu_throttled,
    gpudirect_off,
    mig_enabled,
    mtu_small,
    nic_across_sockets,
    nic_unused,
    nvlink_below_maximum,
    p2p_disabled,
    pcie_below_maximum,
    persistence_off,
    power_limited,
    pxn_off,
    rma_emulated,
    tcp_fallback,
    uplinks_shared,
)
from railwright.faults.model import Fault

FAULTS: tuple[Fault, ...] = (
    pcie_below_maximum.FAULT,
    nvlink_below_maximum.FAULT,
    acs_redirect.FAULT,
    gpudirect_off.FAULT,
    gpu_lost.FAULT,
    gpu_memory_errors.FAULT,
    compute_mode_prohibited.FAULT,
    mig_enabled.FAULT,
    gpu_throttled.FAULT,
    power_limited.FAULT,
    persistence_off.FAULT,
    nic_unused.FAULT,
    nic_across_sockets.FAULT,
    mtu_small.FAULT,
    tcp_fallback.FAULT,
    rma_emulated.FAULT,
    p2p_disabled.FAULT,
    few_channels.FAULT,
    algorithm_forced.FAULT,
    pxn_off.FAULT,
    connection_ceiling.FAULT,
    uplinks_shared.FAULT,
)

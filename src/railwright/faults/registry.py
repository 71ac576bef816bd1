"""The registry of faults."""

from __future__ import annotations

from railwright.faults import (
    acs_redirect,
    algorithm_forced,
    connection_ceiling,
    few_channels,
    gpudirect_off,
    iommu_translates,
    max_payload_small,
    mtu_small,
    nic_across_sockets,
    nic_unused,
    nvlink_below_maximum,
    p2p_disabled,
    pcie_below_maximum,
    pxn_off,
    tcp_fallback,
    uplinks_shared,
)
from railwright.faults.fault import Fault

FAULTS: tuple[Fault, ...] = (
    pcie_below_maximum.FAULT,
    nvlink_below_maximum.FAULT,
    acs_redirect.FAULT,
    max_payload_small.FAULT,
    iommu_translates.FAULT,
    gpudirect_off.FAULT,
    nic_unused.FAULT,
    nic_across_sockets.FAULT,
    mtu_small.FAULT,
    tcp_fallback.FAULT,
    p2p_disabled.FAULT,
    few_channels.FAULT,
    algorithm_forced.FAULT,
    pxn_off.FAULT,
    connection_ceiling.FAULT,
    uplinks_shared.FAULT,
)

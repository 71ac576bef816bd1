"""All checks, including those of faults, in the order of reports."""

from __future__ import annotations

from collections.abc import Iterator

from railwright.checks.check import Check
from railwright.checks.registry import CHECKS
from railwright.faults.registry import FAULTS

_FOLLOWED_BY = {
    "pcie_below_maximum": "read_request_small",
    "nvlink_below_maximum": "read_request_small",
    "acs_redirect": "read_request_small",
    "max_payload_small": "read_request_small",
    "iommu_translates": "bar1_small",
    "gpudirect_off": "gpudirect_storage_off",
    "nic_unused": "nic_rate_differs",
    "nic_across_sockets": "nic_rate_differs",
    "mtu_small": "nic_rate_differs",
    "tcp_fallback": "rma_emulated",
    "p2p_disabled": "symmetric_without_nvls",
    "few_channels": "symmetric_without_nvls",
    "algorithm_forced": "symmetric_without_nvls",
    "pxn_off": "environment_contradicts",
    "connection_ceiling": "environment_contradicts",
    "uplinks_shared": "environment_contradicts",
}
"""Maps a fault to the check that follows it in reports, to keep checks of one part of a machine together."""


def _sort_checks() -> Iterator[Check]:
    for check in CHECKS:
        yield from (fault for fault in FAULTS if _FOLLOWED_BY.get(fault.name) == check.name)
        yield check
    yield from (fault for fault in FAULTS if fault.name not in _FOLLOWED_BY)


EVERY_CHECK: tuple[Check, ...] = tuple(_sort_checks())

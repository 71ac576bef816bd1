"""The one registry of faults."""

from __future__ import annotations

from railwright.faults import acs_redirect, pcie_below_maximum, tcp_fallback
from railwright.faults.model import Fault

FAULTS: tuple[Fault, ...] = (
    pcie_below_maximum.FAULT,
    acs_redirect.FAULT,
    tcp_fallback.FAULT,
)

"""Whether NCCL ran without NVLink SHARP (NVLS)."""

from __future__ import annotations

from collections.abc import Mapping

from railwright.checks.settings import is_one_of
from railwright.topology.devices import Scalar

NVLS_VARIABLE = "NCCL_NVLS_ENABLE"
switches_off = is_one_of("0")


def nvls_is_off(settings: Mapping[str, Scalar], environment: Mapping[str, str]) -> bool:
    """Whether NCCL had to run without NVLS: as the result itself recorded, else as the run's environment says."""
    recorded = str(settings.get("nvls", "")).startswith("off")
    return recorded or switches_off(environment.get(NVLS_VARIABLE, ""))

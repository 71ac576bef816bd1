"""The environment variables of the measured libraries."""

from __future__ import annotations

import os

from railwright.secrecy import hide_value

_ENVIRONMENT_PREFIXES = (
    *("UCX_", "NIXL_", "NCCL_", "CUDA_", "CUFILE_"),
    *("OMPI_", "PRTE_", "PMIX_", "MPICH_", "MPIR_", "FI_"),
)


def read_environment() -> dict[str, str]:
    """Return the variables of this process that affect measurements, without secrets in their values."""
    return {name: hide_value(name, value) for name, value in sorted(os.environ.items()) if is_recorded(name)}


def is_recorded(name: str) -> bool:
    """Report whether a variable belongs to a measured library, and is therefore recorded."""
    return name.startswith(_ENVIRONMENT_PREFIXES)

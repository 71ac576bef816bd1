"""The environment variables of the libraries that are measured."""

from __future__ import annotations

import os

_ENVIRONMENT_PREFIXES = (
    *("UCX_", "NIXL_", "NCCL_", "CUDA_", "CUFILE_"),
    *("OMPI_", "PRTE_", "PMIX_", "MPICH_", "MPIR_", "FI_"),
)


def read_environment() -> dict[str, str]:
    """The environment variables that change what is measured."""
    return {name: value for name, value in sorted(os.environ.items()) if is_recorded(name)}


def is_recorded(name: str) -> bool:
    """Whether a variable is of a library that is measured, so that it is recorded."""
    return name.startswith(_ENVIRONMENT_PREFIXES)

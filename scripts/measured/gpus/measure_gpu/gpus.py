"""The GPUs of this host, as CUDA counts them where it counts by PCI address."""

from __future__ import annotations

import pynvml

from railwright.errors import CannotJudge
from railwright.topology.sources.nvidia_nvml import handles


def addresses() -> list[str]:
    """Their PCI addresses. Raises CannotJudge where there is none, with NVML's words."""
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        raise CannotJudge(f"no GPU: {error}") from error
    found = sorted(address for address, _ in handles())
    if not found:
        raise CannotJudge("no GPU")
    return found

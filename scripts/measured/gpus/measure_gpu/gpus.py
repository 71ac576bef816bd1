"""The GPUs of this host in the order of CUDA_DEVICE_ORDER=PCI_BUS_ID."""

from __future__ import annotations

import pynvml

from railwright.errors import CannotJudge
from railwright.topology.sources.nvidia_nvml import handles


def addresses() -> list[str]:
    """Return the PCI addresses of the GPUs. Raises CannotJudge with NVML's message if there are none."""
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        raise CannotJudge(f"no GPU: {error}") from error
    found = sorted(address for address, _ in handles())
    if not found:
        raise CannotJudge("no GPU")
    return found

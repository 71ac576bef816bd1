"""NVML's current answers about a GPU, for the probe and the sampler. `railwright` itself never loads NVML.

None means that NVML gives no answer for this GPU, driver or user. Older drivers are queried by older names.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pynvml

from railwright.topology.sources.nvidia_model import MOST_GPUS


def ask(function: Callable[..., Any], *arguments: object) -> Any:  # noqa: ANN401 - whatever NVML gives
    """Return NVML's answer, None if it has none for this GPU, driver or user."""
    try:
        return function(*arguments)
    except (pynvml.NVMLError, UnicodeDecodeError):
        return None


def format_address(pci: Any) -> str:  # noqa: ANN401 - a C structure of pynvml
    """Return `0000:1b:00.0`, in the kernel's form."""
    return f"{pci.domain:04x}:{pci.bus:02x}:{pci.device:02x}.0"


def handles() -> list[tuple[str, Any]]:
    """Return the PCI address and NVML's handle of every GPU that it can open. NVML must be initialised."""
    found = []
    for index in range(min(ask(pynvml.nvmlDeviceGetCount) or 0, MOST_GPUS)):
        handle = ask(pynvml.nvmlDeviceGetHandleByIndex, index)  # None for a GPU that has fallen off the bus
        pci = ask(pynvml.nvmlDeviceGetPciInfo_v3, handle) if handle is not None else None
        if pci is not None:
            found.append((format_address(pci), handle))
    return found


def scale(answer: int | None, factor: float) -> float | None:
    """Return the answer times `factor`, which converts it to base units; None without an answer."""
    return None if answer is None else round(answer * factor, 3)


def event_reasons(handle: object) -> int | None:
    """Return the reasons for the current clocks, as bits; drivers before 535 have the older name."""
    found = ask(pynvml.nvmlDeviceGetCurrentClocksEventReasons, handle)
    if found is None:
        found = ask(pynvml.nvmlDeviceGetCurrentClocksThrottleReasons, handle)
    return found if isinstance(found, int) else None


def clock_hz(handle: object, which: int) -> float | None:
    """Return the current clock in Hz: `which` is NVML_CLOCK_SM or NVML_CLOCK_MEM."""
    return scale(ask(pynvml.nvmlDeviceGetClockInfo, handle, which), 1e6)


def power_w(handle: object) -> float | None:
    """Return the current power in W."""
    return scale(ask(pynvml.nvmlDeviceGetPowerUsage, handle), 1e-3)


def temperature_c(handle: object) -> int | None:
    """Return the temperature of the chip, in whole degrees Celsius."""
    found = ask(pynvml.nvmlDeviceGetTemperature, handle, pynvml.NVML_TEMPERATURE_GPU)
    return found if isinstance(found, int) else None


def read_memory(handle: object) -> Any:  # noqa: ANN401 - a C structure of pynvml
    """Return `total` and `used` in bytes; older drivers count their own reserve as used."""
    found = ask(pynvml.nvmlDeviceGetMemoryInfo, handle, pynvml.nvmlMemory_v2)
    return found if found is not None else ask(pynvml.nvmlDeviceGetMemoryInfo, handle)


def utilisation(handle: object) -> int | None:
    """Return the percentage of time in which a kernel ran, over the last second or less."""
    found = ask(pynvml.nvmlDeviceGetUtilizationRates, handle)
    return int(found.gpu) if found is not None else None


def process_count(handle: object) -> int | None:
    """Return the number of processes with a compute context on the GPU."""
    found = ask(pynvml.nvmlDeviceGetComputeRunningProcesses_v3, handle)
    if found is None:
        found = ask(pynvml.nvmlDeviceGetComputeRunningProcesses_v2, handle)
    return len(found) if found is not None else None

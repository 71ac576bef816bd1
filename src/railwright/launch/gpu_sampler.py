"""The program that looks at GPUs while they work, started by `gpu_watch` and `gpu_business`, never by a user.

    python -m railwright.launch.gpu_sampler sample INTERVAL_S [CPU,CPU...]   a line of JSON each interval
    python -m railwright.launch.gpu_sampler business                         one line: who else uses the GPUs

It asks NVML alone, so that it takes no GPU memory, and dies with its parent.
"""

from __future__ import annotations

import contextlib
import os
import sys
import time

import msgspec
import pynvml

from railwright.launch.gpu_samples import Business, GpuSample, Sample
from railwright.process import die_with_parent
from railwright.topology.sources.nvidia_probe import ask, event_reasons, handles


def take(gpus: list[tuple[str, object]]) -> Sample:
    """One sample of all GPUs."""
    return Sample(time.monotonic(), tuple(_one(address, handle) for address, handle in gpus))


def _one(address: str, handle: object) -> GpuSample:
    utilisation = ask(pynvml.nvmlDeviceGetUtilizationRates, handle)
    return GpuSample(
        address=address,
        sm_clock_hz=_scaled(ask(pynvml.nvmlDeviceGetClockInfo, handle, pynvml.NVML_CLOCK_SM), 1e6),
        memory_clock_hz=_scaled(ask(pynvml.nvmlDeviceGetClockInfo, handle, pynvml.NVML_CLOCK_MEM), 1e6),
        power_w=_scaled(ask(pynvml.nvmlDeviceGetPowerUsage, handle), 1e-3),
        temperature_c=_scaled(ask(pynvml.nvmlDeviceGetTemperature, handle, pynvml.NVML_TEMPERATURE_GPU), 1.0),
        utilisation=utilisation.gpu if utilisation else None,
        event_reasons=event_reasons(handle),
    )


def business(gpus: list[tuple[str, object]]) -> list[Business]:
    """Who uses each GPU."""
    found = []
    for address, handle in gpus:
        utilisation = ask(pynvml.nvmlDeviceGetUtilizationRates, handle)
        processes = ask(pynvml.nvmlDeviceGetComputeRunningProcesses_v3, handle)
        memory = ask(pynvml.nvmlDeviceGetMemoryInfo, handle, pynvml.nvmlMemory_v2)
        found.append(
            Business(
                address=address,
                processes=len(processes) if processes is not None else None,
                utilisation=utilisation.gpu if utilisation else None,
                memory_used_bytes=memory.used if memory else None,
            )
        )
    return found


def _scaled(answer: int | None, factor: float) -> float | None:
    return None if answer is None else round(answer * factor, 3)


def main(arguments: list[str]) -> None:
    """Print lines until the parent ends it; what NVML prints itself is kept out of them."""
    die_with_parent()
    stream = os.fdopen(os.dup(1), "wb", buffering=0)
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    pynvml.nvmlInit()
    gpus = handles()
    if arguments[0] == "business":
        stream.write(msgspec.json.encode(business(gpus)) + b"\n")
        os._exit(0)
    interval_s = float(arguments[1])
    if len(arguments) > 2:
        with contextlib.suppress(OSError, ValueError):  # a CPU that is not ours: then wherever the kernel puts us
            os.sched_setaffinity(0, {int(cpu) for cpu in arguments[2].split(",")})
    following = time.monotonic()
    while True:
        stream.write(msgspec.json.encode(take(gpus)) + b"\n")
        following = max(following + interval_s, time.monotonic())
        time.sleep(max(0.0, following - time.monotonic()))


if __name__ == "__main__":
    main(sys.argv[1:])

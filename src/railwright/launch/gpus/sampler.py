"""The program that samples GPUs while they work, started by `gpus.watch` and `gpus.business`, never by a user.

    python -m railwright.launch.gpus.sampler sample INTERVAL_S [CPU,CPU...]   a line of JSON each interval
    python -m railwright.launch.gpus.sampler business                         one line: the use of each GPU

It uses only NVML, so that it takes no GPU memory, and dies with its parent.
"""

from __future__ import annotations

import contextlib
import os
import sys
import time

import msgspec
import pynvml

from railwright.launch.gpus.samples import GpuSample, GpuUse, Sample
from railwright.process import die_with_parent
from railwright.topology.sources.nvidia_nvml import (
    clock_hz,
    event_reasons,
    handles,
    power_w,
    process_count,
    read_memory,
    temperature_c,
    utilisation,
)


def take_sample(gpus: list[tuple[str, object]]) -> Sample:
    """Take one sample of all GPUs."""
    return Sample(time.monotonic(), tuple(_sample_gpu(address, handle) for address, handle in gpus))


def _sample_gpu(address: str, handle: object) -> GpuSample:
    return GpuSample(
        address=address,
        sm_clock_hz=clock_hz(handle, pynvml.NVML_CLOCK_SM),
        memory_clock_hz=clock_hz(handle, pynvml.NVML_CLOCK_MEM),
        power_w=power_w(handle),
        temperature_c=temperature_c(handle),
        utilisation=utilisation(handle),
        event_reasons=event_reasons(handle),
    )


def read_use(gpus: list[tuple[str, object]]) -> list[GpuUse]:
    """Read the use of each GPU."""
    found = []
    for address, handle in gpus:
        memory = read_memory(handle)
        used = memory.used if memory is not None else None
        found.append(GpuUse(address, process_count(handle), utilisation(handle), used))
    return found


def main(arguments: list[str]) -> None:
    """Print lines until the parent ends this process. NVML's own output is discarded."""
    die_with_parent()
    stream = os.fdopen(os.dup(1), "wb", buffering=0)
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    pynvml.nvmlInit()
    gpus = handles()
    if arguments[0] == "business":
        stream.write(msgspec.json.encode(read_use(gpus)) + b"\n")
        os._exit(0)
    interval_s = float(arguments[1])
    if len(arguments) > 2:
        with contextlib.suppress(OSError, ValueError):  # if the CPU is not allowed, the kernel chooses one
            os.sched_setaffinity(0, {int(cpu) for cpu in arguments[2].split(",")})
    following = time.monotonic()
    while True:
        stream.write(msgspec.json.encode(take_sample(gpus)) + b"\n")
        following = max(following + interval_s, time.monotonic())
        time.sleep(max(0.0, following - time.monotonic()))


if __name__ == "__main__":
    main(sys.argv[1:])

"""The context of a run: host, software, environment, load, and the noise of the machine."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import re
import time

from railwright.launch.environment import read_environment
from railwright.native.memory import fixed_work
from railwright.results.records import Context, Noise
from railwright.results.statistics import quantile
from railwright.run.other_work import cpu_ticks, idle_ticks
from railwright.topology.devices import Scalar, Topology
from railwright.topology.sources.root import live_root

_PACKAGES = ("mpi4py", "openmpi", "mpich", "nixl-cu13", "nixl-cu12", "nvidia-nccl-cu13", "nvidia-nccl-cu12")
NOISE_SWITCH = "RAILWRIGHT_NOISE"
_BUSY_WINDOW_S = 1.0
_NOISE_WORK = 20_000
_NOISE_QUANTA = 8_000


def gather_context(topology: Topology) -> Context:
    """Gather the context of a run that starts now. Takes about 1.3 s, of which 1 s measures the load.

    `RAILWRIGHT_NOISE=off` in the environment skips the noise measurement, which uses a CPU for 0.3 s.
    """
    cpus = topology.of_kind("cpu")
    return Context(
        host=platform.node(),
        kernel=platform.release(),
        operating_system=_operating_system(),
        cpu=cpus[0].name if cpus else "",
        cores=len(os.sched_getaffinity(0)),
        memory_bytes=os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        software=_list_software(),
        environment=read_environment(),
        clocks=_read_clocks(),
        load_average=os.getloadavg()[0],
        busy_fraction=measure_busy_fraction(),
        noise=None if os.environ.get(NOISE_SWITCH, "").lower() in ("off", "0", "no") else measure_noise(),
    )


def _operating_system() -> str:
    try:
        return platform.freedesktop_os_release().get("PRETTY_NAME", "")
    except OSError:
        return ""


def _list_software() -> dict[str, str]:
    found = {"Python": platform.python_version(), "libc": " ".join(platform.libc_ver())}
    for package in _PACKAGES:
        try:
            found[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def _read_clocks() -> dict[str, Scalar]:
    """Read the current frequency and governor of the first CPU. Unreported values are left out."""
    root = live_root()
    found: dict[str, Scalar] = {}
    cpuinfo = root.read("proc/cpuinfo")
    line = re.search(r"^cpu MHz\s*: ([0-9.]+)$", cpuinfo, re.MULTILINE) if isinstance(cpuinfo, str) else None
    if line:
        found["cpu_hz"] = float(line.group(1)) * 1e6
    governor = root.read("sys/devices/system/cpu/cpufreq/policy0/scaling_governor")
    if isinstance(governor, str):
        found["cpu_governor"] = governor.strip()
    return found


def measure_busy_fraction() -> float:
    """Measure the busy share of all CPUs, including steal, for one second. 0 if /proc/stat cannot be read."""
    before = cpu_ticks()
    time.sleep(_BUSY_WINDOW_S)
    after = cpu_ticks()
    total = sum(after) - sum(before)
    return (total - (idle_ticks(after) - idle_ticks(before))) / total if before and total > 0 else 0.0


def measure_noise() -> Noise:
    """Time a fixed piece of work thousands of times. Time above the median counts as lost to other work."""
    times = sorted(fixed_work(_NOISE_WORK, _NOISE_QUANTA))
    quantum = quantile(times, 0.5)
    lost = sum(duration - quantum for duration in times if duration > quantum)
    return Noise(quantum_s=quantum, lost_fraction=lost / sum(times), worst_s=times[-1] - quantum, quanta=len(times))

"""GPU samples taken during a measurement, and their summary in a result. Pure.

docs/gpu-health.md explains which samples count and what each setting means.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from railwright.diagnosis.peers.gpu_health import NOT_THROTTLED, OF_LAUNCH
from railwright.results.records import Evidence
from railwright.results.statistics import quantile
from railwright.topology.devices import Device, Scalar
from railwright.topology.sources.nvidia_merge import GPU_IDLE, throttle_names


class GpuSample(msgspec.Struct, frozen=True, array_like=True):
    """The state of a GPU at one time. A field is None if NVML does not report it."""

    address: str
    sm_clock_hz: float | None
    memory_clock_hz: float | None
    power_w: float | None
    temperature_c: float | None
    utilisation: int | None
    event_reasons: int | None


class Sample(msgspec.Struct, frozen=True, array_like=True):
    """The state of all GPUs at one time of the machine's monotonic clock."""

    at_s: float
    gpus: tuple[GpuSample, ...]


class GpuUse(msgspec.Struct, frozen=True, array_like=True):
    """The use of a GPU by any process. A field is None if NVML does not report it."""

    address: str
    processes: int | None
    utilisation: int | None
    """The percentage of the last second or less in which a kernel ran."""
    memory_used_bytes: int | None
    """Memory in use, without the driver's own reserve if the driver reports that separately."""


def is_loaded(gpu: GpuSample) -> bool:
    """Report whether a GPU had work. An idle GPU lowers its own clocks, which is not a fault."""
    if gpu.event_reasons is not None:
        return not gpu.event_reasons & GPU_IDLE
    return bool(gpu.utilisation)


def select_loaded(samples: Iterable[Sample]) -> list[Sample]:
    """Drop from each sample the GPUs that were idle in it or in the sample before: their clocks may still be rising."""
    found = []
    before: frozenset[str] = frozenset()
    for sample in samples:
        loaded = frozenset(gpu.address for gpu in sample.gpus if is_loaded(gpu))
        found.append(Sample(sample.at_s, tuple(gpu for gpu in sample.gpus if gpu.address in loaded & before)))
        before = loaded
    return found


def summarize(samples: Sequence[Sample], gpus: Mapping[str, Device]) -> tuple[dict[str, Scalar], tuple[Evidence, ...]]:
    """Summarize samples as settings and evidence of a result. Empty without samples.

    `gpus` maps PCI addresses to GPUs.
    """
    seen = [gpu for sample in samples for gpu in sample.gpus if gpu.address in gpus]
    if not seen:
        return {}, ()
    names = {gpu.address: gpus[gpu.address].id for gpu in seen}
    settings: dict[str, Scalar] = {
        "gpu_samples": sum(any(gpu.address in gpus for gpu in sample.gpus) for sample in samples)
    }
    clocks = [(gpu.sm_clock_hz, gpu.address) for gpu in seen if gpu.sm_clock_hz is not None]
    if clocks:
        slowest, address = min(clocks)
        settings["gpu_clock_min_hz"] = slowest
        settings["gpu_clock_min_of"] = names[address]
        median, address = min((_median_clock(clocks, address), address) for _, address in clocks)
        settings["gpu_clock_median_hz"] = median
        settings["gpu_clock_median_of"] = names[address]
    for name, extreme, values in (
        ("gpu_memory_clock_min_hz", min, [gpu.memory_clock_hz for gpu in seen]),
        ("gpu_power_max_w", max, [gpu.power_w for gpu in seen]),
        ("gpu_temperature_max_c", max, [gpu.temperature_c for gpu in seen]),
    ):
        if known := [value for value in values if value is not None]:
            settings[name] = extreme(known)
    reasons: dict[str, dict[str, None]] = {}
    for gpu in seen:
        if gpu.event_reasons is not None:
            reasons.setdefault(gpu.address, {}).update(dict.fromkeys(throttle_names(gpu.event_reasons)))
    if reasons:
        causes = dict.fromkeys(reason for causes_of_gpu in reasons.values() for reason in causes_of_gpu)
        settings["gpu_throttle"] = ", ".join(causes) or NOT_THROTTLED
        if causes:
            settings["gpu_throttle_of"] = ",".join(
                names[address] for address, causes_of_gpu in reasons.items() if causes_of_gpu
            )
    return settings, _evidence(settings, gpus.values(), sorted(set(names.values())))


def _median_clock(clocks: Sequence[tuple[float, str]], address: str) -> float:
    return quantile(sorted(clock for clock, gpu in clocks if gpu == address), 0.5)


def summarize_launch(
    samples: Sequence[Sample], gpus: Mapping[str, Device]
) -> tuple[dict[str, Scalar], tuple[Evidence, ...]]:
    """Summarize the samples of a launch for a result without samples of its own. The summary is marked as such."""
    settings, evidence = summarize(samples, gpus)
    if not settings:
        return {}, ()
    marked = tuple(msgspec.structs.replace(claim, seen=f"{claim.seen} earlier in its launch") for claim in evidence)
    return {**settings, "gpu_samples_of": OF_LAUNCH}, marked


def _evidence(settings: Mapping[str, Scalar], gpus: Iterable[Device], seen: list[str]) -> tuple[Evidence, ...]:
    clock, slowest = settings.get("gpu_clock_min_hz"), settings.get("gpu_clock_min_of")
    if not isinstance(clock, float):
        return ()
    most = next((gpu.facts.get("sm_clock_max_hz") for gpu in gpus if gpu.id == slowest), None)
    value = f"{clock / 1e6:.0f}" + (f" of {most / 1e6:.0f} MHz" if isinstance(most, int | float) else " MHz")
    if settings.get("gpu_throttle", NOT_THROTTLED) != NOT_THROTTLED:
        value += f", {settings['gpu_throttle']} ({settings['gpu_throttle_of']})"
    where = f"NVML, {settings['gpu_samples']} samples of {', '.join(seen)}"
    return (Evidence(claim="GPU clocks", value=value, seen=where),)

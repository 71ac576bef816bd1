"""What GPUs did while something was measured: samples, and what a result says of them. Pure.

Which samples count, and what each of the settings means, is in docs/gpu-health.md.
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
    """One GPU at one time. A field is None if NVML does not report it."""

    address: str
    sm_clock_hz: float | None
    memory_clock_hz: float | None
    power_w: float | None
    temperature_c: float | None
    utilisation: int | None
    event_reasons: int | None


class Sample(msgspec.Struct, frozen=True, array_like=True):
    """All GPUs at one time of the machine's monotonic clock."""

    at_s: float
    gpus: tuple[GpuSample, ...]


class GpuUse(msgspec.Struct, frozen=True, array_like=True):
    """The processes on one GPU. A field is None if NVML does not report it."""

    address: str
    processes: int | None
    utilisation: int | None
    """Percent of the time in which a kernel ran, over the last second or less."""
    memory_used_bytes: int | None
    """Without what the driver keeps for itself, where the driver tells the two apart."""


def is_loaded(gpu: GpuSample) -> bool:
    """Whether it had work. A GPU without work lowers its clocks by itself, which says nothing of its health."""
    if gpu.event_reasons is not None:
        return not gpu.event_reasons & GPU_IDLE
    return bool(gpu.utilisation)


def select_loaded(samples: Iterable[Sample]) -> list[Sample]:
    """The samples without GPUs that had no work then, or none in the sample before: their clocks were still rising."""
    found = []
    before: frozenset[str] = frozenset()
    for sample in samples:
        loaded = frozenset(gpu.address for gpu in sample.gpus if is_loaded(gpu))
        found.append(Sample(sample.at_s, tuple(gpu for gpu in sample.gpus if gpu.address in loaded & before)))
        before = loaded
    return found


def summarize(samples: Sequence[Sample], gpus: Mapping[str, Device]) -> tuple[dict[str, Scalar], tuple[Evidence, ...]]:
    """Settings and evidence of a result from the samples that count; empty without any. `gpus` are by PCI address."""
    seen = [gpu for sample in samples for gpu in sample.gpus if gpu.address in gpus]
    if not seen:
        return {}, ()
    names = {gpu.address: gpus[gpu.address].id for gpu in seen}
    settings: dict[str, Scalar] = {"gpu_samples": sum(any(gpu.address in gpus for gpu in one.gpus) for one in samples)}
    clocks = [(gpu.sm_clock_hz, gpu.address) for gpu in seen if gpu.sm_clock_hz is not None]
    if clocks:
        slowest, where = min(clocks)
        settings["gpu_clock_min_hz"] = slowest
        settings["gpu_clock_min_of"] = names[where]
        median, where = min((_median_clock(clocks, address), address) for _, address in clocks)
        settings["gpu_clock_median_hz"] = median
        settings["gpu_clock_median_of"] = names[where]
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
        every = dict.fromkeys(reason for some in reasons.values() for reason in some)
        settings["gpu_throttle"] = ", ".join(every) or NOT_THROTTLED
        if every:
            settings["gpu_throttle_of"] = ",".join(names[address] for address, some in reasons.items() if some)
    return settings, _evidence(settings, gpus.values(), sorted(set(names.values())))


def _median_clock(clocks: Sequence[tuple[float, str]], address: str) -> float:
    """The samples of one GPU."""
    return quantile(sorted(clock for clock, of in clocks if of == address), 0.5)


def summarize_launch(
    samples: Sequence[Sample], gpus: Mapping[str, Device]
) -> tuple[dict[str, Scalar], tuple[Evidence, ...]]:
    """The same for a result during which none was taken, from the samples of its launch, and marked so."""
    settings, evidence = summarize(samples, gpus)
    if not settings:
        return {}, ()
    marked = tuple(msgspec.structs.replace(one, seen=f"{one.seen} earlier in its launch") for one in evidence)
    return {**settings, "gpu_samples_of": OF_LAUNCH}, marked


def _evidence(settings: Mapping[str, Scalar], gpus: Iterable[Device], seen: list[str]) -> tuple[Evidence, ...]:
    clock, of = settings.get("gpu_clock_min_hz"), settings.get("gpu_clock_min_of")
    if not isinstance(clock, float):
        return ()
    most = next((gpu.facts.get("sm_clock_max_hz") for gpu in gpus if gpu.id == of), None)
    value = f"{clock / 1e6:.0f}" + (f" of {most / 1e6:.0f} MHz" if isinstance(most, int | float) else " MHz")
    if settings.get("gpu_throttle", NOT_THROTTLED) != NOT_THROTTLED:
        value += f", {settings['gpu_throttle']} ({settings['gpu_throttle_of']})"
    where = f"NVML, {settings['gpu_samples']} samples of {', '.join(seen)}"
    return (Evidence(claim="GPU clocks", value=value, seen=where),)

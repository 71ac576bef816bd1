"""The bands of copies by a GPU's engines and kernels and by NIXL, relative to other rates and times.

A GPU has more copy engines than a copy uses, so their number never bounds a copy.
"""

from __future__ import annotations

from msgspec.structs import replace

from railwright.limits.limit import Bounds, Constant, Expected, Limit
from railwright.limits.sources import (
    COPIES_MEASURED,
    LOADS_MEASURED,
    NVBANDWIDTH_24,
    NVBANDWIDTH_H200,
    SAME_RUN,
    SMALL_COPIES,
)
from railwright.topology.devices import Device

KERNEL_SHARE = Constant(0.85, "of the copy engines' rate, by a kernel over PCIe", NVBANDWIDTH_H200)
KERNEL_READS_MIN_SHARE = Constant(
    0.65, "of the copy engines' rate, by a kernel that reads host memory, on some hosts", NVBANDWIDTH_24
)
BOTH_WAYS_SHARE = Constant(
    0.85, "of the rate of one direction alone, with both directions busy over PCIe", NVBANDWIDTH_H200
)
BOTH_WAYS_MIN_SHARE = Constant(
    0.6, "of the rate of one direction alone, with both busy over PCIe, in some runs", COPIES_MEASURED
)
BOTH_KERNELS_SHARE = Constant(
    0.48, "of an engine's rate in one direction, by two kernels at once over PCIe", COPIES_MEASURED
)
BOTH_KERNELS_NVLINK_SHARE = Constant(
    0.9, "of the rate of one direction alone, by two kernels at once over NVLink", COPIES_MEASURED
)
LOAD_OVER_NVLINK = Constant(8.0, "times a load from the GPU's own memory, maximum over NVLink", LOADS_MEASURED)
LOAD_OVER_PCIE = Constant(12.0, "times a load from the GPU's own memory, maximum over PCIe", LOADS_MEASURED)
COPY_BY_GPU_CLOCK = Constant(60.0, "times a load from the GPU's own memory, maximum for a small copy", SMALL_COPIES)
COPY_BY_HOST_CLOCK = Constant(
    100.0, "times a load from the GPU's own memory, until the host sees the copy complete", SMALL_COPIES
)
LIBRARY_COPY = Constant(2.0, "times a program's wait for a small copy, maximum for a library", SMALL_COPIES)
_LOADS_MEASURED_ON = "9."
"""The compute capability of the GPUs on which both figures were measured. Other GPUs get no band."""


def pcie_band(band: Expected, *, by_kernel: bool, both_ways: bool, reads_host: bool = False) -> Expected:
    """Return the band of copies by a kernel or with both directions busy, from `band`, the band of an engine in one
    direction.

    The rate of engines in both directions at once differs between runs, and the rate of a kernel that reads host memory
    (`reads_host`) differs between hosts. So these bands have a doubtful range.
    """
    if by_kernel and both_ways:
        return _scale_band(band, BOTH_KERNELS_SHARE, "two kernels that copy at once")
    if by_kernel:
        found = _scale_band(band, KERNEL_SHARE, "a kernel that copies")
        return _extend_doubt(found, KERNEL_READS_MIN_SHARE, band) if reads_host else found
    if both_ways:
        return _extend_doubt(_scale_band(band, BOTH_WAYS_SHARE, "both directions busy"), BOTH_WAYS_MIN_SHARE, band)
    return band


def _extend_doubt(found: Expected, share: Constant, band: Expected) -> Expected:
    return replace(found, doubtful_to=share.value * band.low, sources=(*found.sources, share.source))


def nvlink_band(band: Expected, *, by_kernel: bool, both_ways: bool) -> Expected:
    """Return the band of copies over NVLink from `band`, the band of one direction alone.

    Only two kernels at once lose some of it; copy engines lose nothing in both directions.
    """
    return (
        _scale_band(band, BOTH_KERNELS_NVLINK_SHARE, "two kernels that copy at once")
        if by_kernel and both_ways
        else band
    )


def _scale_band(band: Expected, share: Constant, how: str) -> Expected:
    return replace(
        band,
        low=share.value * band.low,
        because=f"{share.value:.2f} of the expected rate of one copy: {how}",
        sources=(*band.sources, share.source),
    )


def expect_from_own_load(gpu: Device, own_s: tuple[float, float], times: Constant, how: str) -> Bounds:
    """Return the floor and band of an operation that takes at most `times` as long as a load from the GPU's own memory.

    `own_s` is the time of such a load in the (slowest, fastest) launch of the run, in seconds. Only Hopper GPUs have a
    band.
    """
    slowest, fastest = own_s
    floor = _floor(own_s, f"one load from {gpu.id}'s own memory, measured in this run")
    if not str(gpu.facts.get("compute_capability", "")).startswith(_LOADS_MEASURED_ON):
        return floor, None
    return floor, Expected(
        quantity="latency_s",
        low=fastest,
        high=times.value * fastest,
        doubtful_to=times.value * slowest,
        because=f"Hopper GPUs take at most {times.value:.0f} times as long {how}",
        sources=(times.source,),
    )


def bound_small_transfer(alone_s: tuple[float, float], awaited_s: tuple[float, float], *, is_small: bool) -> Bounds:
    """Return the floor and band of a library's small transfer; without `is_small` there is no band.

    `alone_s` is the GPU's part of a small copy and `awaited_s` a program's wait for one, both in the (slowest, fastest)
    launch in seconds.
    """
    slowest, fastest = awaited_s
    floor = _floor(alone_s, "a copy of a few bytes by the GPU's own clock, measured in this run")
    if not is_small:
        return floor, None
    return floor, Expected(
        quantity="latency_s",
        low=floor.value,
        high=LIBRARY_COPY.value * fastest,
        doubtful_to=LIBRARY_COPY.value * slowest,
        because=f"a library takes at most {LIBRARY_COPY.value:.0f} times the wait for such a copy",
        sources=(LIBRARY_COPY.source,),
    )


def _floor(launches_s: tuple[float, float], because: str) -> Limit:
    """Return the fastest launch as a limit; `launches_s` is (slowest, fastest) in seconds."""
    slowest, fastest = launches_s
    return Limit(
        quantity="latency_s", value=fastest, kind="measured_ceiling", because=because, varies=slowest / fastest,
        sources=(SAME_RUN,),
    )  # fmt: skip

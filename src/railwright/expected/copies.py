"""Copies by a GPU's copy engines and kernels, and loads by its threads from other memories."""

from __future__ import annotations

from msgspec.structs import replace

from railwright.expected import gpu_copies, links, staged
from railwright.expected.bands import extend_doubt, half_band
from railwright.expected.machine import Machine
from railwright.limits.limit import Bounds, Expected, Limit, NoLimit
from railwright.limits.path import has_unknown_link, limit_host_path
from railwright.limits.sources import PAIRS_MEASURED
from railwright.results.declarations import no_limit
from railwright.results.workload import Copy, Crossing
from railwright.topology.devices import NvlinkLink, PcieLink
from railwright.units import MIB

_JUDGED_FROM_BYTES = 16 * MIB
"""Below this size the start of a copy counts as much as its bytes."""
_OWN_BYTES = 2 * MIB
_COPY_SHARE = 0.8
"""The share of the band's low end down to which copies over PCIe are doubtful. Eight RTX 4090 of one host read its
memory at 23.9 to 26.4 GB/s, and six A6000 each other's at 21.8 to 26.4 (NVIDIA nvbandwidth issues 15 and 50).
"""
WHY_COPIES = (
    "healthy hosts differ as much in their copies over PCIe, because their GPUs may share a switch (nvidia-smi topo -m"
    " shows it)"
)
_WHY_BOTH_WAYS = "healthy machines differ with both directions busy"
_PAIRS_BOTH_WAYS = ("PIX", "PXB", "PHB")
"""Kinds of path over PCIe between two GPUs over which copies in both directions at once were measured (PAIRS_MEASURED):
not across sockets.
"""
_NOT_MEASURED = "loads from the GPU's own memory were not measured in this run"


def expect_copy(workload: Copy, machine: Machine) -> Bounds:
    """Return the limit and band of a copy from the links that it crosses, its engine and direction; of a latency from
    loads from the GPU's own memory.
    """
    if workload.is_load:
        return _expect_load(workload, machine)
    if workload.quantity == "latency_s":
        return _expect_small_copy(workload, machine)
    if workload.added_gpus:
        return no_limit(workload, f"the value is a sum over {workload.added_gpus} GPUs")
    source, _, target = workload.path.partition(">")
    if source == target and (gpu := machine.gpu(source)) is not None:
        limit, band = links.expect_within_gpu(gpu)
        # Half of the memory's rate is the limit of all GPUs; the engines' share of it was measured on Hopper alone.
        return limit, _drop_small(workload, band) if workload.size_bytes is not None else None
    without_peers = not workload.peer_access and staged.joins_gpus(machine, workload.path)
    if without_peers or staged.lacks_peers(machine, workload.path):
        limit, band = staged.expect_staged(machine, workload.path, both_ways=workload.direction == "both")
        return limit, _drop_small(workload, band) if workload.engine != "sm" else None
    return _expect_path(workload, machine)


def _expect_path(workload: Copy, machine: Machine) -> Bounds:
    path = machine.find_path(workload.path)
    if path is None:
        between = Crossing(quantity=workload.quantity, path=workload.path.replace(">", ":"))
        return links.expect_crossing(between, machine)[0], None
    limit, band = links.expect_narrowest(machine.host, path)
    if not isinstance(limit, Limit):
        return limit, None
    over_pcie = any(isinstance(link.protocol, PcieLink) for link in path.links)
    is_guessable = band is None and workload.direction != "both"
    guessed = half_band(limit) if is_guessable else None
    if guessed is not None and has_unknown_link(path):
        guessed = extend_doubt(guessed, 0.0, "no document gives the rate of a link on the path")
    band = _copy_band(
        workload,
        band or guessed,
        over_pcie=over_pcie,
        # Measured: between a GPU and host memory, and between GPUs of a socket or over NVLink.
        is_measured_both_ways="memory" in workload.path or path.kind in _PAIRS_BOTH_WAYS
        if over_pcie
        else any(isinstance(link.protocol, NvlinkLink) for link in path.links),
        is_switched=any("nvswitch" in name for name in path.devices),
        is_known=band is not None,
    )
    band = _drop_small(workload, band)
    if workload.path.startswith("gpu") and ">gpu" in workload.path:
        limit, band = _apply_cap(limit, band, machine.supposed.gpu_cap_bytes_per_s)
    return limit, band


def _copy_band(
    workload: Copy,
    band: Expected | None,
    *,
    over_pcie: bool,
    is_measured_both_ways: bool,
    is_switched: bool,
    is_known: bool,
) -> Expected | None:
    """Return the band of a copy by an engine or kernel; None for pageable memory, or for two kernels at once over
    links where that was not measured.

    Two engines at once over such links are doubtful at any lower rate.
    """
    if band is None or workload.host == "pageable":
        return None  # the driver copies through its own buffer, so the CPU limits it and not a link
    by_kernel, both_ways = workload.engine == "sm", workload.direction == "both"
    is_host_copy = over_pcie and "memory" in workload.path
    if both_ways and by_kernel and not (is_switched or is_host_copy):
        return None
    if both_ways and "memory" not in workload.path and not is_switched:
        band = replace(band, sources=(*band.sources, PAIRS_MEASURED))
    if not over_pcie:
        found = gpu_copies.nvlink_band(band, by_kernel=by_kernel, both_ways=both_ways)
        lowest = found.low * _COPY_SHARE if is_measured_both_ways else 0.0
        return extend_doubt(found, lowest, _WHY_BOTH_WAYS) if both_ways and not by_kernel else found
    reads_host = workload.path.startswith("memory")
    found = gpu_copies.pcie_band(band, by_kernel=by_kernel, both_ways=both_ways, reads_host=reads_host)
    if both_ways and not is_measured_both_ways:
        return extend_doubt(found, 0.0, _WHY_BOTH_WAYS)
    return extend_doubt(found, found.low * _COPY_SHARE, WHY_COPIES) if is_known and not by_kernel else found


def _drop_small(workload: Copy, band: Expected | None) -> Expected | None:
    is_small = workload.size_bytes is not None and workload.size_bytes < _JUDGED_FROM_BYTES
    return None if is_small else band


def _apply_cap(limit: Limit, band: Expected | None, cap_bytes_per_s: float) -> Bounds:
    """Return the bounds under a software cap on a GPU's rate to other GPUs. The band begins at half of the cap or
    lower, because copies may not overlap.
    """
    if cap_bytes_per_s >= limit.value:
        return limit, band
    limit = replace(limit, value=cap_bytes_per_s)
    return limit, band if band is None else replace(band, low=min(band.low, cap_bytes_per_s / 2), doubtful_to=None)


def _expect_load(workload: Copy, machine: Machine) -> Bounds:
    """Return the bounds of a load from other memory: a load from the GPU's own memory, times a factor for the link."""
    own_load = machine.measured.find("gpu load", workload) if machine.measured is not None else None
    gpu, path = machine.gpu(workload.path.partition(">")[2]), machine.find_path(workload.path)
    if own_load is None or gpu is None or path is None:
        return no_limit(workload, _NOT_MEASURED)
    limit = limit_host_path(machine.host, path)
    if isinstance(limit, NoLimit):
        return replace(limit, quantity="latency_s"), None
    is_pcie = any(isinstance(link.protocol, PcieLink) for link in path.links)
    how = (gpu_copies.LOAD_OVER_PCIE, "over PCIe") if is_pcie else (gpu_copies.LOAD_OVER_NVLINK, "over NVLink")
    return gpu_copies.expect_from_own_load(gpu, (own_load.slowest, own_load.fastest), *how)


def _expect_small_copy(workload: Copy, machine: Machine) -> Bounds:
    """Return the bounds of a copy of a few bytes: from the time of one load from the GPU's own memory to a multiple of
    it.
    """
    source, _, target = workload.path.partition(">")
    gpu = machine.gpu(source) or machine.gpu(target)
    own_load = None
    if gpu is not None and machine.measured is not None:
        own_workload = replace(workload, path=f"{gpu.id}>{gpu.id}", size_bytes=_OWN_BYTES)
        own_load = machine.measured.find("gpu load", own_workload)
    if gpu is None or own_load is None:
        return no_limit(workload, _NOT_MEASURED)
    by_gpu, by_host = gpu_copies.COPY_BY_GPU_CLOCK, gpu_copies.COPY_BY_HOST_CLOCK
    how = (by_gpu, "by the GPU's clock") if workload.clock == "gpu" else (by_host, "by the host's clock")
    return gpu_copies.expect_from_own_load(gpu, (own_load.slowest, own_load.fastest), *how)

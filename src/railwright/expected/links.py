"""The bands of links and of paths over them on healthy systems, for large transfers one way.

Infinity Fabric has no band: its overhead is not published, and there are no figures of healthy machines. TCP has none
because the host's cores limit it, and memory has none either.
"""

from __future__ import annotations

from railwright.errors import UsageError
from railwright.expected.bands import extend_doubt
from railwright.expected.machine import Machine
from railwright.expected.staged import expect_staged, is_staged
from railwright.limits import memory, nvlink, pcie
from railwright.limits.limit import Bounds, Constant, Expected, Limit, NoLimit, bandwidth_band
from railwright.limits.path import has_unknown_link, limit_host_path, limit_over_nics
from railwright.limits.sources import (
    C2C_COPIES,
    EFA_MEASURED,
    H200_MEASURED,
    NCCL_TESTS_212,
    NVBANDWIDTH_H200,
    PCIE_BENCH,
    RDMA_MEASURED,
)
from railwright.results.declarations import no_limit
from railwright.results.workload import Crossing
from railwright.topology.devices import (
    C2cLink,
    Device,
    EfaLink,
    EthernetLink,
    InfinibandLink,
    Link,
    MemoryLink,
    NvlinkLink,
    Path,
    PcieLink,
    Topology,
)
from railwright.units import BITS_PER_BYTE

_NVLINK_SHARE = Constant(0.8, "of links x rate, large copies", NCCL_TESTS_212)
_RDMA_SHARE = Constant(0.95, "of the payload rate, large messages", RDMA_MEASURED)
_EFA_SHARE = Constant(0.96, "of the line rate, large transfers over SRD", EFA_MEASURED)
_C2C_SHARES = {
    "to the GPU": Constant(0.75, "of NVLink-C2C's rate, copies of host memory to the GPU", C2C_COPIES),
    "back": Constant(0.64, "of NVLink-C2C's rate, copies of a GPU's memory to the host", C2C_COPIES),
}
_C2C_DOUBT = 0.9
"""The share of the low end down to which copies over C2C are doubtful: healthy GH200 reach 346 to 380 GB/s."""
_WHY_C2C = "healthy machines differ as much over NVLink-C2C, by page size and NUMA node"
_LOCAL_SHARE = Constant(0.8, "of half the memory's rate, copies within one GPU", NVBANDWIDTH_H200)


def expect_crossing(workload: Crossing, machine: Machine) -> Bounds:
    """Return the bounds of a path by its narrowest link, or of a copy inside one GPU or one memory if both ends are the
    same.
    """
    try:
        path = machine.inside(workload.path) if ">" in workload.path else machine.between(workload.path)
    except UsageError as error:
        return no_limit(workload, error.message)
    if len(path.devices) == 1:
        gpu = machine.gpu(path.devices[0])
        return (
            expect_within_gpu(gpu)
            if gpu is not None
            else (memory.limit_memory_copy(machine.host, path.devices[0]), None)
        )
    if is_staged(machine, workload.path):
        return expect_staged(machine, workload.path)
    if workload.nics > 1:
        return limit_over_nics(path, workload.nics), None
    return expect_narrowest(machine.host, path)


def expect_narrowest(host: Topology, path: Path) -> Bounds:
    """Return the bounds of a path of that host, whose ids may end in `@host`, by its narrowest link.

    A link of unknown rate may be narrower: then the limit holds, but there is no band.
    """
    limit = limit_host_path(host, path)
    if isinstance(limit, NoLimit) or has_unknown_link(path):
        return limit, None
    narrowest = next(link for link in path.links if link.id == limit.bottleneck)
    c2c = next((link for link in path.links if isinstance(link.protocol, C2cLink)), None)
    if c2c is not None and isinstance(narrowest.protocol, C2cLink | MemoryLink):
        share = _C2C_SHARES["to the GPU" if path.devices[-1].startswith("gpu") else "back"]
        because = "copies over NVLink-C2C reach less of its rate back to the host than to the GPU"
        # The memory of a GH200 of 480 GB is slower than its NVLink-C2C, but not than what copies reach of that.
        rate = nvlink.limit(c2c)
        low = share.value * (rate.value if isinstance(rate, Limit) else limit.value)
        band = bandwidth_band(min(low, limit.value), limit.value, because, share.source)
        return limit, extend_doubt(band, _C2C_DOUBT * band.low, _WHY_C2C)
    return limit, find_band(narrowest, limit)


def expect_within_gpu(gpu: Device) -> Bounds:
    """Return the bounds of a copy within a GPU: half of the memory's rate, because each byte is counted once but read
    and written.
    """
    limit = memory.copy_limit(memory.gpu_memory_limit(gpu))
    if isinstance(limit, NoLimit):
        return limit, None
    low = _LOCAL_SHARE.value * limit.value
    return limit, bandwidth_band(low, limit.value, "an H200 reaches 0.85 of it", _LOCAL_SHARE.source)


def find_band(link: Link, limit: Limit) -> Expected | None:
    """Return the band of a link on healthy systems from its limit; None if no document gives it."""
    protocol, value = link.protocol, limit.value
    if isinstance(protocol, PcieLink) and (rates := pcie.rates(protocol)) is not None:
        because = "the payload rate with acknowledgements at the specified rate, up to the rate without"
        return bandwidth_band(rates.with_dllps, value, because, PCIE_BENCH)
    if isinstance(protocol, NvlinkLink):
        because = "large copies reach 0.8 or more of links x rate on healthy machines"
        return bandwidth_band(_NVLINK_SHARE.value * value, value, because, NCCL_TESTS_212, H200_MEASURED)
    if isinstance(protocol, EfaLink) and protocol.line_rate_bits_per_s is not None:
        because = "healthy EFA ports reach 0.969 of their line rate in large transfers"
        low = _EFA_SHARE.value * protocol.line_rate_bits_per_s / BITS_PER_BYTE
        return bandwidth_band(low, value, because, EFA_MEASURED)
    if isinstance(protocol, InfinibandLink) or (isinstance(protocol, EthernetLink) and protocol.rdma):
        because = "healthy RDMA ports reach their payload rate with large messages"
        return bandwidth_band(_RDMA_SHARE.value * value, value, because, RDMA_MEASURED)
    return None

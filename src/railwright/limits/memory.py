"""The rate of the memory of a NUMA node or GPU: transfers/s x bytes of its bus, reads and writes together."""

from __future__ import annotations

from msgspec.structs import replace

from railwright.limits.limit import Constant, Limit, NoLimit, Source, bandwidth_limit, no_bandwidth, rate_step
from railwright.limits.sources import CUDA_ATTRIBUTES, JEDEC_DDR, SMBIOS
from railwright.topology.devices import Device, Link, MemoryLink, Topology
from railwright.topology.gpus import TRANSFERS_A_MEMORY_CLOCK, memory_rate

TRANSFERS_A_CLOCK = Constant(TRANSFERS_A_MEMORY_CLOCK, "transfers per memory clock: double data rate", CUDA_ATTRIBUTES)


def limit(link: Link) -> Limit | NoLimit:
    """Return the limit of a node's memory channels."""
    protocol = link.protocol
    assert isinstance(protocol, MemoryLink)
    if not (protocol.channels and protocol.transfers_per_s and protocol.bus_bytes):
        why = "the number and the rate of its memory channels are unknown"
        return no_bandwidth(why, f"{link.id}: channels, rate")
    value = protocol.channels * protocol.transfers_per_s * protocol.bus_bytes
    mega = protocol.transfers_per_s / 1e6
    because = (
        f"{protocol.channels} memory channels at {mega:.0f} MT/s of {link.a}{' (assumed)' if protocol.assumed else ''}"
    )
    step = rate_step(f"{protocol.channels} channels x {mega:.0f} MT/s x {protocol.bus_bytes} B", value)
    read_from = () if protocol.assumed else (SMBIOS,)  # shapes have no table of the firmware
    found = bandwidth_limit(value, because, link.id, [step], (JEDEC_DDR, *read_from))
    return replace(found, assumed=protocol.assumed)


def gpu_memory_limit(gpu: Device) -> Limit | NoLimit:
    """Return the limit of a GPU's memory, reads and writes together: bus width x memory clock x 2."""
    rated = gpu.facts.get("hbm_bandwidth_bytes_per_s")
    bits, clock_hz = gpu.facts.get("memory_bus_bits"), gpu.facts.get("memory_clock_max_hz")
    if not isinstance(bits, int) or not isinstance(clock_hz, int | float) or bits <= 0 or clock_hz <= 0:
        if isinstance(rated, int | float) and rated > 0:  # shapes give the figure of the datasheet instead
            datasheet = Source(str(gpu.facts.get("source", "the GPU's datasheet")))
            return bandwidth_limit(rated, f"memory of {gpu.id}, {gpu.name}", gpu.id, (), (datasheet,))
        why = f"the memory clock and bus width of {gpu.id} are not known: only NVIDIA's library reports them"
        return no_bandwidth(why, f"{gpu.id}: memory clock, bus width")
    value, mega = memory_rate(bits, clock_hz), clock_hz / 1e6
    step = rate_step(f"{bits} bits x {mega:.0f} MHz x {TRANSFERS_A_CLOCK.value:.0f}", value)
    because = f"memory of {gpu.id}, {bits} bits at {mega:.0f} MHz"
    return bandwidth_limit(value, because, gpu.id, [step], (CUDA_ATTRIBUTES,))


def copy_limit(of_memory: Limit | NoLimit) -> Limit | NoLimit:
    """Return the limit of a copy within a memory: half of its rate, because every byte is read and written."""
    if isinstance(of_memory, NoLimit):
        return of_memory
    value = of_memory.value / 2
    step = rate_step("a copy reads and writes each byte: half", value)
    because = f"{of_memory.because}, read and written"
    return replace(of_memory, value=value, because=because, derivation=(*of_memory.derivation, step))


def limit_memory_copy(topology: Topology, memory: str) -> Limit | NoLimit:
    """Return the limit of a copy inside a memory; bytes count once."""
    for link in topology.links:
        if isinstance(link.protocol, MemoryLink) and memory in (link.a, link.b):
            return copy_limit(limit(link))
    return no_bandwidth(f"the topology does not say how {memory} is attached")

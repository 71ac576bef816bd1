"""The limit of the memory of a host or GPU, from its channels."""

from __future__ import annotations

from msgspec.structs import replace

from railwright.expected.files import expect_links
from railwright.expected.machine import Machine
from railwright.limits.limit import Bounds, Constant, Expected, Limit, NoLimit, Source
from railwright.limits.memory import gpu_memory_limit, limit_memory_copy
from railwright.limits.memory import limit as channels_limit
from railwright.limits.path import has_unknown_link
from railwright.results.declarations import no_limit
from railwright.results.workload import Memory
from railwright.topology.devices import MemoryLink
from railwright.units import format_size

_EPYC_9684X = Source("AMD EPYC 9684X product page", "L3 cache 1,152 MB")
LARGEST_CACHE = Constant(1.25 * 2**30, "bytes, above the largest last-level cache of a socket", _EPYC_9684X)
_CHANNEL_SHARE = 0.7
"""STREAM Triad with a thread for each core: 0.75 to 0.9 of the channels' rate in the vendors' own figures."""
_HBM_SHARE, _HALF = 0.8, 0.5
WHY_MEMORY = "the full rate needs a thread for each core on every socket, and arrays larger than the caches"


def expect_memory(workload: Memory, machine: Machine) -> Bounds:
    """Return the bounds from the memory channels of the path's memory, or without a path from those of all memories of
    a host, or from a GPU's memory.
    """
    if workload.copies:
        return _expect_copy(workload, machine)
    if workload.path:
        whole, _ = expect_links(workload, machine)
        path = machine.find_path(workload.path)
        if isinstance(whole, NoLimit) or path is None or has_unknown_link(path):
            return whole, None
        return whole, _band(whole, _CHANNEL_SHARE, 0.0)
    if workload.quantity != "bandwidth_bytes_per_s":
        return no_limit(workload, "memory has a limit only for bandwidth")
    if workload.on_gpu:
        gpus = machine.host.of_kind("gpu")
        limit = gpu_memory_limit(gpus[0]) if gpus else None
        if not isinstance(limit, Limit):
            return no_limit(workload, "the given machine lacks the memory rate of its GPU")
        return limit, _band(limit, _HBM_SHARE, _HALF)
    found = [channels_limit(link) for link in machine.host.links if isinstance(link.protocol, MemoryLink)]
    known = [limit for limit in found if isinstance(limit, Limit)]
    if not known or len(known) < len(found):
        none = next((limit for limit in found if isinstance(limit, NoLimit)), None)
        return (none, None) if none is not None else no_limit(workload, "no memory is known")
    nodes = f"{len(known)} x " if len(known) > 1 else ""
    whole = replace(known[0], value=sum(limit.value for limit in known), because=f"{nodes}{known[0].because}")
    return whole, _band(whole, _CHANNEL_SHARE, 0.0)


def _expect_copy(workload: Memory, machine: Machine) -> Bounds:
    """Return the bounds of a copy: the channels bound it only if no cache can hold it and one node's memory holds all
    of it.

    Between two nodes each byte is read from one memory and written to the other, so either's channels bound it.
    """
    memory, _, other = workload.path.partition(">")
    touched = 2 * (workload.size_bytes or 0) * workload.threads
    if memory != other:
        limit = expect_links(workload, machine)[0] if touched > LARGEST_CACHE.value else None
        none = no_limit(workload, "no document gives the rate between NUMA nodes")
        return (limit, None) if isinstance(limit, Limit) else none
    if touched <= LARGEST_CACHE.value:
        return no_limit(workload, f"a copy that touches {format_size(touched)} may stay in the caches")
    if len(machine.host.of_kind("memory")) > 1 and workload.threads != 1:
        return no_limit(workload, "threads on several NUMA nodes use several memories")
    return limit_memory_copy(machine.host, memory), None


def _band(limit: Limit, share: float, doubtful: float) -> Expected:
    return Expected(
        quantity=limit.quantity,
        low=share * limit.value,
        doubtful_to=doubtful * limit.value,
        doubt=WHY_MEMORY,
        because=f"{share:g} of the limit or more, as healthy machines reach",
        sources=limit.sources,
    )

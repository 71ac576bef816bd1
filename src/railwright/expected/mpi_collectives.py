"""Collectives by MPI: copies inside one host, links between hosts.

No document gives MPI's share of the links: libraries choose algorithms by size, and healthy libraries differ several
times. So the band is wide, and it exists only for sizes whose bytes decide the time.
"""

from __future__ import annotations

from msgspec.structs import replace

from railwright.expected import shared_memory
from railwright.expected.machine import Machine
from railwright.limits.choice import choose_at_size
from railwright.limits.collectives import build_limit
from railwright.limits.limit import Bounds, Expected
from railwright.results.declarations import no_limit
from railwright.results.workload import Collective

_LIMIT_SHARE = 0.5
_DOUBTFUL_TO = 0.1
_DOUBTFUL_IN_HOST_MEMORY = 0.05
"""osu_alltoall of 8 GPUs reaches 0.35 of the limit over Slingshot, and 0.03 over TCP (CSCS documentation, OpenMPI)."""
WHY_HOST_MEMORY = "no document says what MPI collectives in host memory should reach"
_BYTES_DECIDE_S = 50e-6
"""From this minimum time there is a band: the fixed time of a call between hosts is 10 to 50 us."""
NEEDS_RANKS = "the text lacks the number of ranks: include its command line, or give --ranks N"
WHY_EXCHANGE = "healthy MPI libraries differ by as much, because each chooses its own algorithms"


def expect_by_mpi(workload: Collective, machine: Machine) -> Bounds:
    """Return the minimum time that the machine allows, and the band of healthy machines."""
    if machine.measured is not None:
        return shared_memory.bound_collective(machine.measured, workload)
    if why := _explain_missing(workload, machine):
        return no_limit(workload, why)
    size = total_bytes(workload)
    if workload.quantity != "latency_s" or not size:
        return no_limit(workload, f"no limit is derived for {workload.quantity} of {workload.operation}")
    found = machine.algorithms(workload.operation, machine.supposed, workload.operation)
    best = max(algorithm.algbw_bytes_per_s.limit for algorithm in found)  # MPI has algorithms that NCCL lacks
    rate = build_limit(found, best)
    minimum = size / best
    limit = replace(rate, quantity="latency_s", value=minimum)
    if minimum < _BYTES_DECIDE_S:
        return limit, None
    _, of_nccl, _ = choose_at_size(machine.supposed.cluster, workload.operation, found, None)
    doubtful = _DOUBTFUL_IN_HOST_MEMORY if workload.in_host_memory else _DOUBTFUL_TO
    low = size / (of_nccl.expected_high or best)
    return limit, Expected(
        quantity="latency_s",
        low=low,
        high=max(low, minimum / _LIMIT_SHARE),
        doubtful_to=size / min(of_nccl.expected_low or best, doubtful * best),
        doubt=WHY_HOST_MEMORY if workload.in_host_memory else WHY_EXCHANGE,
        because="half of the rate that the links allow",
        sources=rate.sources,
    )


def total_bytes(workload: Collective) -> int:
    """Return the size of the whole operation, as nccl-tests counts it."""
    size = workload.size_bytes or 0
    return size * (workload.ranks or 1) if workload.of_each_rank else size


def _explain_missing(workload: Collective, machine: Machine) -> str:
    """Return the reason why no limit is derived for that collective, or an empty text."""
    cluster = machine.cluster
    if workload.ranks is None:
        return NEEDS_RANKS
    if cluster.hosts < 2:
        return f"no baseline is known for {workload.operation} inside one host; if it ran between hosts, give --count"
    if workload.ranks != cluster.ranks:
        return f"no limit is derived for {workload.ranks} processes on {cluster.ranks} GPUs"
    return ""

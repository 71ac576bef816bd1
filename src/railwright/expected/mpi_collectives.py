"""Collectives by MPI: copies inside one host, links between hosts.

No document gives MPI's share of the links: libraries choose algorithms by size, and healthy libraries differ several
times. So the band is wide, and it exists only for sizes whose bytes decide the time.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from msgspec.structs import replace

from railwright.expected import shared_memory
from railwright.expected.machine import Machine
from railwright.limits.choice import choose_at_size
from railwright.limits.collectives import build_limit
from railwright.limits.limit import Bounds, Expected, Limit
from railwright.limits.path import link_limit
from railwright.limits.traffic import ALGORITHMS
from railwright.results.declarations import no_limit
from railwright.results.workload import Collective
from railwright.topology.cluster import ports

_LIMIT_SHARE = 0.5
_EXCHANGE_SHARE = 0.35
_DOUBTFUL_TO = 0.1
_DOUBTFUL_IN_HOST_MEMORY = 0.05
"""osu_alltoall of 8 GPUs reaches 0.35 of the limit over Slingshot, and 0.03 over TCP (CSCS documentation, OpenMPI)."""
WHY_HOST_MEMORY = "no document says what MPI collectives in host memory should reach"
_CALL_S = 50e-6
"""The fixed time of a call between hosts is 10 to 50 us."""
_BYTES_COUNT_S = 5e-6
"""From this minimum time there is a band, because bytes count beside the fixed time."""
NEEDS_RANKS = "the text lacks the number of ranks: include its command line, or give --ranks N"
WHY_EXCHANGE = "healthy MPI libraries differ by as much, because each chooses its own algorithms"


_HOST_BYTES: Mapping[str, Callable[[float, float, int], float]] = {
    "all_reduce": lambda size, leaving, _: 2 * size * leaving,
    "all_gather": lambda size, leaving, _: size * leaving,
    "reduce_scatter": lambda size, leaving, _: size * leaving,
    "all_to_all": lambda size, leaving, each: size * each * leaving,
    "broadcast": lambda size, *_: size,
    "reduce": lambda size, *_: size,
    "gather": lambda size, leaving, _: size * leaving,
    "scatter": lambda size, leaving, _: size * leaving,
}
"""The bytes that the busiest host sends or receives, of a size as nccl-tests counts it, the share of the other hosts,
and the processes of a host.
"""


def expect_by_mpi(workload: Collective, machine: Machine) -> Bounds:
    """Return the minimum time that the machine allows, and the band of healthy machines."""
    if machine.measured is not None:
        return shared_memory.bound_collective(machine.measured, workload)
    if why := _explain_missing(workload, machine):
        return no_limit(workload, why)
    size = total_bytes(workload)
    if workload.quantity != "latency_s" or not size:
        return no_limit(workload, f"no limit is derived for {workload.quantity} of {workload.operation}")
    if workload.ranks != machine.cluster.ranks or workload.operation not in ALGORITHMS:
        return _expect_by_ports(workload, machine, size)
    found = machine.algorithms(workload.operation, machine.supposed, workload.operation)
    best = max(algorithm.algbw_bytes_per_s.limit for algorithm in found)  # MPI has algorithms that NCCL lacks
    rate = build_limit(found, best)
    minimum = size / best
    limit = replace(rate, quantity="latency_s", value=minimum)
    if minimum < _BYTES_COUNT_S:
        return limit, None
    share = _EXCHANGE_SHARE if workload.operation == "all_to_all" else _LIMIT_SHARE
    _, of_nccl, _ = choose_at_size(machine.supposed.cluster, workload.operation, found, None)
    doubtful = _DOUBTFUL_IN_HOST_MEMORY if workload.in_host_memory else _DOUBTFUL_TO
    low = size / (of_nccl.expected_high or best)
    return limit, Expected(
        quantity="latency_s",
        low=low,
        high=max(low, minimum / share + _CALL_S),
        doubtful_to=size / min(of_nccl.expected_low or best, doubtful * best) + _CALL_S / _DOUBTFUL_TO,
        doubt=WHY_HOST_MEMORY if workload.in_host_memory else WHY_EXCHANGE,
        because=f"{share:g} of the rate that the links allow, and the time of a call",
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
    if workload.operation not in _HOST_BYTES or (workload.ranks != cluster.ranks and workload.ranks % cluster.hosts):
        return f"no limit is derived for {workload.operation} of {workload.ranks} processes on {cluster.hosts} hosts"
    return ""


def _expect_by_ports(workload: Collective, machine: Machine, size: int) -> Bounds:
    """Return the minimum time of any number of processes a host: what a host must send, over all its ports.

    Libraries that ignore hosts send the data of each process, so the time may be that many times as long.
    """
    cluster = machine.supposed.cluster
    port_limits = [link_limit(port) for _, port in ports(cluster.host)]
    known = [limit for limit in port_limits if isinstance(limit, Limit)]
    if len(known) < len(port_limits) or not known:
        return no_limit(workload, "no document gives the rate of a port")
    each = (workload.ranks or cluster.hosts) // cluster.hosts
    leaving = (cluster.hosts - 1) / cluster.hosts
    minimum = _HOST_BYTES[workload.operation](size, leaving, each) / sum(limit.value for limit in known)
    because = f"what a host sends over {len(known)} ports, each: {known[0].because}"
    limit = replace(known[0], quantity="latency_s", value=minimum, because=because)
    if minimum < _BYTES_COUNT_S:
        return limit, None
    return limit, Expected(
        quantity="latency_s",
        low=minimum,
        high=minimum * each / _LIMIT_SHARE + _CALL_S,
        doubtful_to=minimum * each / _DOUBTFUL_IN_HOST_MEMORY + _CALL_S / _DOUBTFUL_TO,
        doubt=WHY_HOST_MEMORY,
        because=f"up to {each} times as long if a library sends the data of each process, at half of the rate",
        sources=limit.sources,
    )

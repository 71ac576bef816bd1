"""The collectives of MPI, whose times are held against what the machine's links allow.

What MPI reaches of that no document tells: its algorithms are chosen by size and by library, and healthy ones differ
by a factor of several. So a band is only where bytes decide, and wide.
"""

from __future__ import annotations

from collections.abc import Callable

from railwright.limits.case import Case
from railwright.limits.collectives import algorithms, as_limit
from railwright.limits.limit import Bounds, Expected, Limit
from railwright.limits.rates import Algorithm
from railwright.results.bounds import no_limit
from railwright.results.readers.foreign_file import ForeignFile
from railwright.results.records import Result, size_of
from railwright.topology.cluster import Cluster

_OF_LIMIT = 0.5
DOUBTFUL_TO = 0.1
"""Over Slingshot osu_alltoall of 8 GPUs is at 0.35 of the limit, over TCP at 0.03 (CSCS documentation, OpenMPI)."""
_BYTES_DECIDE_S = 50e-6
"""From this least time on: the fixed time of a call between hosts is 10 to 50 us."""
NEEDS_RANKS = "the text does not say how many ranks there were on how many hosts: its command line would"


def find_exchange(file: ForeignFile, cluster: Cluster) -> Callable[[Result], Bounds]:
    """What gives each row the least time that the links allow, and the time that a healthy machine takes."""
    if why := lacks(file, cluster):
        return lambda result: no_limit(result, why)
    found = algorithms(Case(cluster=cluster), file.subject.operation)
    return lambda result: _bounds(result, file, found)


def lacks(file: ForeignFile, cluster: Cluster) -> str:
    """Why nothing is derived for that table; empty where something is."""
    if file.ranks is None:
        return NEEDS_RANKS
    if cluster.hosts < 2:
        return f"inside one host no limit is known for {file.test}; if it ran between hosts, give --count"
    if file.ranks != cluster.ranks:
        return f"no limit is derived for {file.ranks} processes on {cluster.ranks} GPUs"
    return ""


def total_bytes(file: ForeignFile, size: int) -> int:
    """The size of the whole operation, as nccl-tests counts it."""
    return size * (file.ranks or 1) if file.subject.of_each_rank else size


def _bounds(result: Result, file: ForeignFile, found: tuple[Algorithm, ...]) -> Bounds:
    size = total_bytes(file, size_of(result.parameters) or 0)
    if result.quantity != "latency_s" or not size:
        return no_limit(result, f"no limit is derived for {result.quantity} of {file.test}")
    best = max(one.algbw_bytes_per_s.limit for one in found)  # MPI has algorithms that NCCL has not
    rate = as_limit(found, best)
    least = size / best
    limit = Limit(
        quantity="latency_s",
        value=least,
        kind="derived",
        because=rate.because,
        bottleneck=rate.bottleneck,
        sources=rate.sources,
    )
    if least < _BYTES_DECIDE_S:
        return limit, None
    expected = Expected(
        quantity="latency_s",
        low=least,
        high=least / _OF_LIMIT,
        doubtful_to=least / DOUBTFUL_TO,
        because="half of what the links allow",
        sources=rate.sources,
    )
    return limit, expected


def measured(file: ForeignFile) -> dict[int, float]:
    """Bytes of the whole operation -> algbw in bytes/s, of the sizes from which bytes decide on any network."""
    rates: dict[int, float] = {}
    for result in file.results:
        size = total_bytes(file, size_of(result.parameters) or 0)
        if result.quantity == "latency_s" and result.summary is not None and size >= 2**20:
            rates[size] = size / result.summary.median
    return rates

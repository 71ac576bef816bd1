"""Reports ranks that were slower than the median rank at the same work at the same time. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from railwright.checks.finding import BenchmarkPlace, Finding
from railwright.diagnosis.peers.gpus import AGAIN, SLOWER_BY
from railwright.limits.linpack import WHOLE_CORES
from railwright.results.records import Evidence, Result

_MIN_RANKS = 3
"""With two ranks it is unknown which one is healthy."""


def slower_ranks(results: Iterable[Result]) -> tuple[Finding, ...]:
    """Return a finding for each rank that is slow in every launch, by the launch with the smallest loss.

    A run whose ranks shared their cores with other work gives no findings.
    """
    by_rank: dict[tuple[str, str], list[tuple[float, Result]]] = {}
    launches: dict[str, set[int]] = {}
    for result in results:
        times = result.settings.get("slowest_times_median")
        share = result.settings.get("cpu_share", 1.0)
        if result.ranks < _MIN_RANKS or not isinstance(times, int | float) or not isinstance(share, int | float):
            continue
        if share < WHOLE_CORES.value or result.settings.get("functional") is True:
            continue
        launches.setdefault(result.benchmark, set()).add(result.launch)
        by_rank.setdefault((result.benchmark, _format_slowest(result)), []).append((float(times), result))
    found = []
    for (benchmark, name), seen in by_rank.items():
        times, result = min(seen, key=lambda item: item[0])
        if times > 1 + SLOWER_BY and {launched.launch for _, launched in seen} == launches[benchmark]:
            found.append(_build_finding(name, times, result, len(launches[benchmark])))
    return tuple(found)


def _format_slowest(result: Result) -> str:
    """Format the slowest rank as `rank 3 on node7`, with its GPU if it has one."""
    gpu = result.settings.get("slowest_gpu")
    place = f"rank {result.settings.get('slowest_rank')} on {result.settings.get('slowest_host')}"
    return f"{gpu} ({place})" if gpu else place


def _build_finding(name: str, times: float, result: Result, launches: int) -> Finding:
    return Finding(
        fault="rank_slower_than_siblings",
        where=(BenchmarkPlace(result.benchmark),),
        certainty="possible" if launches < 2 else "likely",
        says=f"{name} took {times:.2f} times as long as the median rank for the same matrix products",
        costs="work shared by all ranks runs at the rate of the slowest",
        remedy=(AGAIN if launches < 2 else "") + "compare clocks, power limits and temperatures with another",
        evidence=(Evidence(claim="slowest_times_median", value=f"{times:.3f}", seen=f"{launches} launches"),),
    )

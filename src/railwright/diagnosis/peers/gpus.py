"""GPUs that are slower than their siblings at the same work.

The rules and the sources of their figures are in docs/gpu-health.md.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from itertools import pairwise

from railwright.checks.finding import Finding, PartPlace, PathPlace
from railwright.diagnosis.verdicts.judged import Judged
from railwright.diagnosis.verdicts.verdict import format_quantity
from railwright.results.records import Evidence, find_size
from railwright.results.statistics import quantile
from railwright.topology.devices import Topology
from railwright.topology.paths import Graph
from railwright.units import format_size

SLOWER_BY = 0.05
"""Our choice: well above the noise of large copies, well below the loss of a lane or link."""
EVENT_RESOLUTION_S = 0.5e-6
"""The resolution of the GPU's own clock: CUDA Driver API, cuEventElapsedTime, "a resolution of around 0.5
microseconds".
"""
_SAME_GROUP_WITHIN = SLOWER_BY / 2
"""Our choice: GPUs whose values differ by less belong to one group."""
GPU_ID = re.compile(r"gpu\d{1,6}")
_LONE_REMEDY = (
    "compare {name} with another: nvidia-smi -q -d CLOCK,POWER,PERFORMANCE,ECC, its PCIe link under load"
    " (lspci -vv, LnkSta), nvidia-smi nvlink -e, dmesg | grep Xid"
)
AGAIN = "measure again with --launches 3; if it persists, "
_GROUP_REMEDY = (
    "check whether they are on another socket: nvidia-smi topo -m, for a virtual machine on its host; or compare their"
    " PCIe links under load (lspci -vv, LnkSta)"
)


def slower_than_siblings(points: Iterable[Judged], topology: Topology) -> tuple[Finding, ...]:
    """Return a finding per slow GPU or group, benchmark and quantity, at the size with the largest loss."""
    graph = Graph(topology)
    kinds: dict[str, tuple[str, ...]] = {}
    alike: dict[tuple[object, ...], list[Judged]] = defaultdict(list)
    for point in points:
        if point.value and point.launches and GPU_ID.search(point.path) and _depends_on_gpu(point):
            kind = kinds.setdefault(point.path, kind_of_path(point.path, graph))
            if kind:
                alike[(point.benchmark, point.quantity, kind, *sorted(point.parameters.items()))].append(point)
    worst: dict[tuple[object, ...], tuple[float, Finding]] = {}
    for group in alike.values():
        for names in _slow_groups(group):
            mine, rest = _split_points(group, names)
            lost = _compute_loss(mine, rest)
            far = _may_be_far(group, names)
            key = ("" if far else names[0], group[0].benchmark, group[0].quantity)
            if key not in worst or lost > worst[key][0]:
                worst[key] = (lost, _build_finding(names, lost, mine, rest, far=far))
    return tuple(finding for _, finding in worst.values())


def _depends_on_gpu(point: Judged) -> bool:
    """Report whether the GPU could be the cause of a worse value."""
    if point.quantity == "latency_s" and point.parameters.get("clock") == "host":
        return False  # the host's clock includes the CPU that starts the work
    # In both directions at once through host memory, plain CUDA C++ reached 33 and 51 GB/s in two processes on one
    # healthy GPU (docs/measured/4xh200); of eight GPUs, four reach 45 and four 52 GB/s.
    return not (point.parameters.get("direction") == "both" and _crosses_host([point]))


def _crosses_host(points: Iterable[Judged]) -> bool:
    return any(not GPU_ID.fullmatch(end) for point in points for end in point.path.split(">"))


def kind_of_path(path: str, graph: Graph) -> tuple[str, ...]:
    """Return the key of comparable paths: the kinds of their ends and of the path; empty for an unknown path."""
    ends = [graph.devices.get(end) for end in path.split(">")]
    if len(ends) != 2 or ends[0] is None or ends[1] is None:
        return ()
    found = graph.find(ends[0].id, ends[1].id)
    kind = found.kind if found is not None else ""
    return (kind, *(f"{end.kind} {end.name}" if end.kind in ("gpu", "memory") else end.id for end in ends if end))


def _gpu_names(points: Iterable[Judged]) -> list[str]:
    """Return the GPUs of the paths, sorted by number."""
    return sorted({name for point in points for name in GPU_ID.findall(point.path)}, key=lambda name: int(name[3:]))


def _split_points(group: Sequence[Judged], names: Iterable[str]) -> tuple[list[Judged], list[Judged]]:
    """Split the points into those that involve one of the GPUs and the others."""
    wanted = set(names)
    parts: tuple[list[Judged], list[Judged]] = ([], [])
    for point in group:
        parts[wanted.isdisjoint(GPU_ID.findall(point.path))].append(point)
    return parts


def _slow_groups(group: Sequence[Judged]) -> list[tuple[str, ...]]:
    """Return the slow GPUs, grouped if a common cause such as another socket may explain them."""
    names = _gpu_names(group)
    slow = [name for name in names if _compute_loss(*_split_points(group, (name,))) > SLOWER_BY]
    if not slow or not _crosses_host(group):
        return [(name,) for name in slow]
    found = []
    for cluster in _cluster_gpus(group, names):
        concerned = [name for name in cluster if name in slow]
        if concerned:
            # If all GPUs form one cluster, those that are not slow are left out.
            found.append(tuple(cluster) if len(cluster) < len(names) else tuple(concerned))
    return found


def _cluster_gpus(group: Sequence[Judged], names: Iterable[str]) -> list[list[str]]:
    """Cluster the GPUs by their medians, split where the step exceeds noise."""
    medians = sorted((_median(_split_points(group, (name,))[0]), name) for name in names)
    clusters = [[medians[0][1]]]
    for (below, _), (value, name) in pairwise(medians):
        if value > below * (1 + _SAME_GROUP_WITHIN):
            clusters.append([])
        clusters[-1].append(name)
    return [sorted(cluster, key=lambda name: int(name[3:])) for cluster in clusters]


def _may_be_far(group: Sequence[Judged], names: Sequence[str]) -> bool:
    """Report whether another socket explains the loss as well as a fault: several GPUs are alike, or only two exist."""
    return _crosses_host(group) and (len(names) > 1 or len(_gpu_names(group)) < 3)


def _compute_loss(mine: list[Judged], rest: list[Judged]) -> float:
    """Return the loss of one GPU as a share of the others' median; 0 if within noise."""
    if not mine or not rest:
        return 0.0
    median, others = _median(mine), _median(rest)
    by_event = mine[0].quantity == "latency_s" and mine[0].parameters.get("clock") == "gpu"
    if abs(median - others) < max(
        _interval_width(mine), _interval_width(rest), EVENT_RESOLUTION_S if by_event else 0.0
    ):
        return 0.0
    # Transfers through host memory vary more between processes than within one, so every launch must agree.
    best = _extreme_bound if _crosses_host(mine) else _median_bound
    if mine[0].quantity == "latency_s":
        outside = best(mine, low=True) > _median_bound(rest, low=False)
        return median / others - 1 if outside else 0.0
    outside = best(mine, low=False) < _median_bound(rest, low=True)
    return 1 - median / others if outside else 0.0


def _interval_width(points: list[Judged]) -> float:
    """Return the width of the 95 % interval: samples that vary more than two GPUs differ cannot distinguish them."""
    return _median_bound(points, low=False) - _median_bound(points, low=True)


def _median(points: list[Judged]) -> float:
    return quantile(sorted(point.value for point in points if point.value), 0.5)


def _median_bound(points: list[Judged], *, low: bool) -> float:
    """Return the median of the lower or upper ends of the launches' 95 % intervals."""
    ends = [launch.median_low if low else launch.median_high for point in points for launch in point.launches]
    return quantile(sorted(ends), 0.5)


def _extreme_bound(points: list[Judged], *, low: bool) -> float:
    """Return the lowest lower end or the highest upper end of the launches' 95 % intervals."""
    if low:
        return min(launch.median_low for point in points for launch in point.launches)
    return max(launch.median_high for point in points for launch in point.launches)


def _build_finding(
    names: tuple[str, ...], lost: float, mine: list[Judged], rest: list[Judged], *, far: bool
) -> Finding:
    """Return the finding for a slow GPU, or for GPUs that may only be farther from the host's memory (`far`)."""
    through_the_host, all_of_them = _crosses_host(mine), ", ".join(names)
    once = through_the_host and max(len(point.launches) for point in mine) < 2
    pairs = not through_the_host and any(len(set(GPU_ID.findall(point.path))) > 1 for point in mine)
    others = ", ".join(_gpu_names(rest)) if far else "its siblings"
    verb = "is" if len(names) == 1 else "are"
    says = f"{all_of_them} {verb} {lost:.0%} slower than {others} in {_format_values(mine, rest)}"
    return Finding(
        fault="gpu_group_slower" if far else "gpu_slower_than_siblings",
        where=(*map(PartPlace, names), *dict.fromkeys(PathPlace(point.path) for point in mine)),
        certainty="possible" if far or once else "likely",
        says=f"{says}: they may be farther away, on another socket or PCIe switch" if far else says,
        costs="a collective runs at the rate of its slowest GPU" if pairs else "",
        remedy=_GROUP_REMEDY if far else (AGAIN if once else "") + _LONE_REMEDY.format(name=all_of_them),
        evidence=_build_evidence(all_of_them, mine, rest),
    )


def _format_values(mine: list[Judged], rest: list[Judged]) -> str:
    first = mine[0]
    size = find_size(first.parameters)
    at = f" at {format_size(size)}" if size is not None else ""
    value, others = (format_quantity(first.quantity, _median(points)) for points in (mine, rest))
    return f"{first.benchmark}{at}: {value} instead of {others}"


def _build_evidence(names: str, mine: list[Judged], rest: list[Judged]) -> tuple[Evidence, ...]:
    quantity = mine[0].quantity
    return tuple(
        Evidence(claim=quantity, value=f"{format_quantity(quantity, _median(points))} ({who})",
                 seen=f"{len(points)} points")
        for who, points in ((names, mine), ("others", rest))
    )  # fmt: skip

"""GPUs that are slower than their siblings at the same work.

The rules, and where their figures come from, are in docs/gpu-health.md.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from itertools import pairwise

from railwright.checks.finding import Finding, OfPart, OfPath
from railwright.diagnosis.verdicts.judged import Judged
from railwright.diagnosis.verdicts.verdict import format_quantity
from railwright.results.records import Evidence, size_of
from railwright.results.statistics import quantile
from railwright.topology.devices import Topology
from railwright.topology.paths import Graph
from railwright.units import format_size

SLOWER_BY = 0.05
"""Our choice: well above the noise of large copies, well below what a lost lane or link takes."""
EVENT_RESOLUTION_S = 0.5e-6
"""How finely the GPU's own clock tells times: CUDA Driver API, cuEventElapsedTime, "a resolution of around 0.5
microseconds".
"""
_ALIKE = SLOWER_BY / 2
"""Our choice: GPUs whose values are nearer than this to the next one's belong together."""
GPU_ID = re.compile(r"gpu\d{1,6}")
_LONE_REMEDY = (
    "compare {name} with another: nvidia-smi -q -d CLOCK,POWER,PERFORMANCE,ECC, its PCIe link under load"
    " (lspci -vv, LnkSta), nvidia-smi nvlink -e, dmesg | grep Xid"
)
AGAIN = "measure again with --launches 3; if it stays, "
_GROUP_REMEDY = (
    "see whether they are on another socket: nvidia-smi topo -m, in a virtual machine on its host; else compare their"
    " PCIe links under load (lspci -vv, LnkSta)"
)


def slower_than_siblings(points: Iterable[Judged], topology: Topology) -> tuple[Finding, ...]:
    """One finding for each GPU or group of GPUs, benchmark and quantity, of the size that shows it most."""
    graph = Graph(topology)
    kinds: dict[str, tuple[str, ...]] = {}
    alike: dict[tuple[object, ...], list[Judged]] = defaultdict(list)
    for point in points:
        if point.value and point.launches and GPU_ID.search(point.path) and _tells_of_the_gpu(point):
            kind = kinds.setdefault(point.path, _kind_of_path(point.path, graph))
            if kind:
                alike[(point.benchmark, point.quantity, kind, *sorted(point.parameters.items()))].append(point)
    worst: dict[tuple[object, ...], tuple[float, Finding]] = {}
    for group in alike.values():
        for names in _slow_groups(group):
            mine, rest = _parted(group, names)
            lost = _lost(mine, rest)
            far = _may_be_far(group, names)
            key = ("" if far else names[0], group[0].benchmark, group[0].quantity)
            if key not in worst or lost > worst[key][0]:
                worst[key] = (lost, _slower(names, lost, mine, rest, far=far))
    return tuple(finding for _, finding in worst.values())


def _tells_of_the_gpu(point: Judged) -> bool:
    """Whether a worse value could be the GPU's doing."""
    if point.quantity == "latency_s" and point.parameters.get("clock") == "host":
        return False  # by the host's clock it is the CPU that starts the work
    # Both ways at once through host memory, plain CUDA C++ went 33 and 51 GB/s in two processes on one healthy GPU
    # (docs/measured/4xh200); of eight, four GPUs have 45 and four 52 GB/s.
    return not (point.parameters.get("direction") == "both" and _through_the_host([point]))


def _through_the_host(points: Iterable[Judged]) -> bool:
    return any(not GPU_ID.fullmatch(end) for point in points for end in point.path.split(">"))


def _kind_of_path(path: str, graph: Graph) -> tuple[str, ...]:
    """What paths must share to be compared: what is at their ends, and NCCL's kind; empty for an unknown path."""
    ends = [graph.devices.get(end) for end in path.split(">")]
    if len(ends) != 2 or ends[0] is None or ends[1] is None:
        return ()
    found = graph.find(ends[0].id, ends[1].id)
    kind = found.kind if found is not None else ""
    return (kind, *(f"{end.kind} {end.name}" if end.kind in ("gpu", "memory") else end.id for end in ends if end))


def _names(points: Iterable[Judged]) -> list[str]:
    """The GPUs of those paths, by number."""
    return sorted({name for point in points for name in GPU_ID.findall(point.path)}, key=lambda name: int(name[3:]))


def _parted(group: Sequence[Judged], names: Iterable[str]) -> tuple[list[Judged], list[Judged]]:
    """The points in which one of those GPUs takes part, and the others."""
    wanted = set(names)
    parts: tuple[list[Judged], list[Judged]] = ([], [])
    for point in group:
        parts[wanted.isdisjoint(GPU_ID.findall(point.path))].append(point)
    return parts


def _slow_groups(group: Sequence[Judged]) -> list[tuple[str, ...]]:
    """The GPUs that are too slow, grouped if one common reason may explain them, such as another socket."""
    names = _names(group)
    slow = [name for name in names if _lost(*_parted(group, (name,))) > SLOWER_BY]
    if not slow or not _through_the_host(group):
        return [(name,) for name in slow]
    found = []
    for cluster in _clusters(group, names):
        concerned = [name for name in cluster if name in slow]
        if concerned:
            # Where all GPUs are one cluster, those are left out that nobody would call slow.
            found.append(tuple(cluster) if len(cluster) < len(names) else tuple(concerned))
    return found


def _clusters(group: Sequence[Judged], names: Iterable[str]) -> list[list[str]]:
    """The GPUs by their medians, split where the step from one to the next is too large to be noise."""
    medians = sorted((_median(_parted(group, (name,))[0]), name) for name in names)
    clusters = [[medians[0][1]]]
    for (below, _), (value, name) in pairwise(medians):
        if value > below * (1 + _ALIKE):
            clusters.append([])
        clusters[-1].append(name)
    return [sorted(cluster, key=lambda name: int(name[3:])) for cluster in clusters]


def _may_be_far(group: Sequence[Judged], names: Sequence[str]) -> bool:
    """Whether another socket would explain it as well as a fault: several GPUs are alike, or there are only two."""
    return _through_the_host(group) and (len(names) > 1 or len(_names(group)) < 3)


def _lost(mine: list[Judged], rest: list[Judged]) -> float:
    """How much slower the points of one GPU are, as a share of the others' median; 0 within the noise of the two."""
    if not mine or not rest:
        return 0.0
    one, others = _median(mine), _median(rest)
    by_event = mine[0].quantity == "latency_s" and mine[0].parameters.get("clock") == "gpu"
    if abs(one - others) < max(_width(mine), _width(rest), EVENT_RESOLUTION_S if by_event else 0.0):
        return 0.0
    # What crosses host memory differs more between processes than within one: there every launch has to agree.
    best = _best_end if _through_the_host(mine) else _bounds
    if mine[0].quantity == "latency_s":
        outside = best(mine, low=True) > _bounds(rest, low=False)
        return one / others - 1 if outside else 0.0
    outside = best(mine, low=False) < _bounds(rest, low=True)
    return 1 - one / others if outside else 0.0


def _width(points: list[Judged]) -> float:
    """Of the 95 % interval: samples that lie further apart than two GPUs do cannot tell them apart."""
    return _bounds(points, low=False) - _bounds(points, low=True)


def _median(points: list[Judged]) -> float:
    return quantile(sorted(point.value for point in points if point.value), 0.5)


def _bounds(points: list[Judged], *, low: bool) -> float:
    """The middle of the launches' 95 % intervals, at their lower or upper ends."""
    ends = [one.median_low if low else one.median_high for point in points for one in point.launches]
    return quantile(sorted(ends), 0.5)


def _best_end(points: list[Judged], *, low: bool) -> float:
    """The lowest lower end or the highest upper end of the launches' 95 % intervals."""
    if low:
        return min(one.median_low for point in points for one in point.launches)
    return max(one.median_high for point in points for one in point.launches)


def _slower(names: tuple[str, ...], lost: float, mine: list[Judged], rest: list[Judged], *, far: bool) -> Finding:
    """Of one GPU, or of GPUs whose longer way to the host's memory (`far`) would explain it as well as a fault."""
    through_the_host, all_of_them = _through_the_host(mine), ", ".join(names)
    once = through_the_host and max(len(point.launches) for point in mine) < 2
    pairs = not through_the_host and any(len(set(GPU_ID.findall(point.path))) > 1 for point in mine)
    others = ", ".join(_names(rest)) if far else "its siblings"
    says = f"{all_of_them} {'is' if len(names) == 1 else 'are'} {lost:.0%} slower than {others} in {_says(mine, rest)}"
    return Finding(
        fault="gpu_group_slower" if far else "gpu_slower_than_siblings",
        where=(*map(OfPart, names), *dict.fromkeys(OfPath(point.path) for point in mine)),
        certainty="possible" if far or once else "likely",
        says=f"{says}: they may be farther away, on another socket or PCIe switch" if far else says,
        costs="a collective goes at the rate of its slowest GPU" if pairs else "",
        remedy=_GROUP_REMEDY if far else (AGAIN if once else "") + _LONE_REMEDY.format(name=all_of_them),
        evidence=_evidence(all_of_them, mine, rest),
    )


def _says(mine: list[Judged], rest: list[Judged]) -> str:
    first = mine[0]
    size = size_of(first.parameters)
    at = f" at {format_size(size)}" if size is not None else ""
    value, others = (format_quantity(first.quantity, _median(points)) for points in (mine, rest))
    return f"{first.benchmark}{at}: {value}, they have {others}"


def _evidence(names: str, mine: list[Judged], rest: list[Judged]) -> tuple[Evidence, ...]:
    quantity = mine[0].quantity
    return tuple(
        Evidence(claim=quantity, value=f"{format_quantity(quantity, _median(points))} ({who})",
                 seen=f"{len(points)} points")
        for who, points in ((names, mine), ("others", rest))
    )  # fmt: skip

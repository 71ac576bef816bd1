"""GPUs that held a run back: slowed down while they worked, or slower than their siblings at the same work.

The rules, and where their figures come from, are in docs/gpu-health.md.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Sequence

from railwright.diagnosis.model import Judged
from railwright.diagnosis.verdict import format_quantity
from railwright.faults.model import Certainty, Finding
from railwright.results.model import Evidence, Result
from railwright.results.statistics import quantile
from railwright.topology.model import Device, Topology
from railwright.topology.paths import Graph

NOT_THROTTLED = "none"
"""Setting `gpu_throttle` of a result during which no GPU was slowed down."""
SWITCHED_OFF, TOO_SHORT = "sampling is switched off", "too short: no two samples under load fell into it"
"""Setting `gpu_not_watched` where nothing is wrong with that."""
SLOWER_BY = 0.05
"""Our choice: well above the noise of large copies, well below what a lost lane or link takes."""
_AT_THE_LIMIT = "software power cap"
_POWER_REMEDY = (
    "a GPU at full load is held at its power limit by design: compare the limit in nvidia-smi -q -d POWER with its"
    " default"
)
_REMEDY = (
    "nvidia-smi -q -d PERFORMANCE,TEMPERATURE,POWER under load; then cooling, power supplies and the BMC's event log"
)
_GPU = re.compile(r"gpu\d{1,6}")


def look(results: Sequence[Result], points: Sequence[Judged], topology: Topology) -> tuple[Finding, ...]:
    """What the samples of all results and the values of all points say of single GPUs."""
    found = (*_throttled(results), *_dropped(results, topology), *_slower_than_siblings(points, topology))
    return (*found, *_not_watched(results))


def _not_watched(results: Iterable[Result]) -> tuple[Finding, ...]:
    """Results during which nobody could look at the GPUs, though somebody should have."""
    of_gpus = [result for result in results if "gpu_samples" in result.settings]
    blind: dict[str, list[Result]] = defaultdict(list)
    for result in of_gpus:
        why = str(result.settings.get("gpu_not_watched", ""))
        if why not in ("", SWITCHED_OFF, TOO_SHORT):
            blind[why].append(result)
    watched = sum(bool(result.settings["gpu_samples"]) for result in of_gpus)
    return tuple(
        Finding(
            fault="gpu_not_watched",
            where=_benchmarks(those),
            certainty="could not look",
            says=f"{watched} of {len(of_gpus)} GPU results were watched: {why}",
            costs="whether GPUs were slowed down during the others is not known",
            remedy="see whether `nvidia-smi -q -d PERFORMANCE` answers here",
        )
        for why, those in blind.items()
    )


def _throttled(results: Iterable[Result]) -> tuple[Finding, ...]:
    found: dict[tuple[str, str], list[Result]] = defaultdict(list)
    for result in results:
        reasons = str(result.settings.get("gpu_throttle", NOT_THROTTLED))
        if reasons != NOT_THROTTLED:
            found[(reasons, str(result.settings.get("gpu_throttle_of", "")))].append(result)
    findings = []
    for (reasons, names), those in found.items():
        power_only = reasons == _AT_THE_LIMIT
        certainty: Certainty = "possible" if power_only else "seen"
        slowest = _lowest([result.settings.get("gpu_clock_min_hz") for result in those])
        hottest = _highest([result.settings.get("gpu_temperature_max_c") for result in those])
        seen = ", ".join(words for words in (_clock(slowest), f"{hottest:.0f} C" if hottest else "") if words)
        findings.append(
            Finding(
                fault="gpu_throttled",
                where=(*_split(names), *_benchmarks(those)),
                certainty=certainty,
                says=f"{names.replace(',', ', ')} slowed down while measured: {reasons}",
                costs="" if power_only else "its clocks were lowered, and with them compute and SM-driven copies",
                remedy=_POWER_REMEDY if power_only else _REMEDY,
                evidence=(Evidence(claim="clock event reasons", value=f"{reasons}; {seen}", seen=_sampled(those)),),
            )
        )
    return tuple(findings)


def _dropped(results: Iterable[Result], topology: Topology) -> tuple[Finding, ...]:
    """Clocks under load below what the GPU is set to, without a reason among those that slow it down."""
    devices = {gpu.id: gpu for gpu in topology.of_kind("gpu")}
    usual = _usual_clocks(results)
    low: dict[str, list[Result]] = defaultdict(list)
    for result in results:
        name, clock = str(result.settings.get("gpu_clock_min_of", "")), result.settings.get("gpu_clock_min_hz")
        if name not in devices or not isinstance(clock, int | float):
            continue
        if result.settings.get("gpu_throttle", NOT_THROTTLED) != NOT_THROTTLED:
            continue
        if clock < (1 - SLOWER_BY) * _due_clock(devices[name], usual):
            low[name].append(result)
    findings = []
    for name, those in low.items():
        slowest, due = _lowest([one.settings["gpu_clock_min_hz"] for one in those]), _due_clock(devices[name], usual)
        findings.append(
            Finding(
                fault="gpu_clock_dropped",
                where=(name, *_benchmarks(those)),
                certainty="possible",
                says=f"the SM clock of {name} was {_clock(slowest)} under load, {_clock(due)} are due",
                costs=f"{1 - (slowest or due) / due:.0%} of what the clock decides: compute and SM-driven copies",
                remedy="nvidia-smi -q -d CLOCK: clocks that were set by hand go back with nvidia-smi -rgc and -rac",
                evidence=(Evidence(claim="SM clock", value=_clock(slowest), seen=_sampled(those)),),
            )
        )
    return tuple(findings)


def _usual_clocks(results: Iterable[Result]) -> float:
    """The median of the results' medians, 0 without any."""
    clocks = [result.settings.get("gpu_clock_median_hz") for result in results]
    known = sorted(clock for clock in clocks if isinstance(clock, int | float))
    return quantile(known, 0.5) if known else 0.0


def _due_clock(gpu: Device, usual: float) -> float:
    """What it is set to, else what it had for most of the run, in Hz."""
    clock = gpu.facts.get("sm_clock_application_hz") or gpu.facts.get("sm_clock_max_hz")
    return max(usual, clock) if isinstance(clock, int | float) else usual


def _slower_than_siblings(points: Iterable[Judged], topology: Topology) -> tuple[Finding, ...]:
    graph = Graph(topology)
    kinds: dict[str, tuple[str, ...]] = {}
    alike: dict[tuple[object, ...], list[Judged]] = defaultdict(list)
    for point in points:
        if point.value and point.launches and _GPU.search(point.path) and not _is_of_the_cpu(point):
            kind = kinds.setdefault(point.path, _kind_of_path(point.path, graph))
            if kind:
                alike[(point.benchmark, point.quantity, kind, *sorted(point.parameters.items()))].append(point)
    worst: dict[tuple[str, str, str], tuple[float, Finding]] = {}
    for group in alike.values():
        for name in sorted({name for point in group for name in _GPU.findall(point.path)}):
            mine = [point for point in group if name in _GPU.findall(point.path)]
            rest = [point for point in group if name not in _GPU.findall(point.path)]
            lost = _lost(mine, rest)
            key = (name, group[0].benchmark, group[0].quantity)
            if lost > SLOWER_BY and (key not in worst or lost > worst[key][0]):
                worst[key] = (lost, _slower(name, lost, mine, rest))
    return tuple(finding for _, finding in worst.values())


def _is_of_the_cpu(point: Judged) -> bool:
    """Microseconds by the host's clock tell of the CPU that starts the work, not of the GPU."""
    return point.quantity == "latency_s" and point.parameters.get("clock") == "host"


def _kind_of_path(path: str, graph: Graph) -> tuple[str, ...]:
    """What paths must share to be compared: what is at their ends, and NCCL's kind; empty for an unknown path."""
    ends = [graph.devices.get(end) for end in path.split(">")]
    if len(ends) != 2 or ends[0] is None or ends[1] is None:
        return ()
    found = graph.find(ends[0].id, ends[1].id)
    kind = found.kind if found is not None else ""
    return (kind, *(f"{end.kind} {end.name}" if end.kind in ("gpu", "memory") else end.id for end in ends if end))


def _lost(mine: list[Judged], rest: list[Judged]) -> float:
    """How much slower the points of one GPU are, as a share of the others' median; 0 within the noise of the two."""
    if not rest:
        return 0.0
    one, others = _median(mine), _median(rest)
    if mine[0].quantity == "latency_s":
        outside = _bounds(mine, low=True) > _bounds(rest, low=False)
        return one / others - 1 if outside else 0.0
    outside = _bounds(mine, low=False) < _bounds(rest, low=True)
    return 1 - one / others if outside else 0.0


def _median(points: list[Judged]) -> float:
    return quantile(sorted(point.value for point in points if point.value), 0.5)


def _bounds(points: list[Judged], *, low: bool) -> float:
    """The middle of the launches' 95 % intervals, at their lower or upper ends."""
    ends = [one.median_low if low else one.median_high for point in points for one in point.launches]
    return quantile(sorted(ends), 0.5)


def _slower(name: str, lost: float, mine: list[Judged], rest: list[Judged]) -> Finding:
    first = mine[0]
    value, others = format_quantity(first.quantity, _median(mine)), format_quantity(first.quantity, _median(rest))
    size = first.parameters.get("size_bytes")
    at = f" at {size} bytes" if isinstance(size, int) else ""
    return Finding(
        fault="gpu_slower_than_siblings",
        where=(name, *dict.fromkeys(point.path for point in mine)),
        certainty="likely",
        says=f"{name} is {lost:.0%} slower than its siblings in {first.benchmark}{at}: {value}, they have {others}",
        costs="a collective goes at the rate of its slowest GPU",
        remedy=f"compare {name} with another: nvidia-smi -q -d CLOCK,POWER,PERFORMANCE,ECC, its PCIe link under load"
        " (lspci -vv, LnkSta), nvidia-smi nvlink -e, dmesg | grep Xid",
        evidence=(
            Evidence(claim=first.quantity, value=f"{value} ({name})", seen=f"{len(mine)} points"),
            Evidence(claim=first.quantity, value=f"{others} (others)", seen=f"{len(rest)} points"),
        ),
    )


def _split(names: str) -> tuple[str, ...]:
    return tuple(name for name in names.split(",") if _GPU.fullmatch(name))


def _benchmarks(results: Iterable[Result]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(result.benchmark for result in results))


def _sampled(results: Iterable[Result]) -> str:
    counts = [result.settings.get("gpu_samples", 0) for result in results]
    return f"NVML, {sum(count for count in counts if isinstance(count, int))} samples under load"


def _lowest(values: Iterable[object]) -> float | None:
    return min((float(value) for value in values if isinstance(value, int | float)), default=None)


def _highest(values: Iterable[object]) -> float | None:
    return max((float(value) for value in values if isinstance(value, int | float)), default=None)


def _clock(hertz: float | None) -> str:
    return f"{hertz / 1e6:.0f} MHz" if hertz is not None else ""

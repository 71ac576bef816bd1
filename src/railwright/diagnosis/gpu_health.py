"""GPUs that held a run back: slowed down while they worked, or slower than their siblings at the same work.

The rules, and where their figures come from, are in docs/gpu-health.md.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence

from railwright.diagnosis.gpu_siblings import GPU_ID, SLOWER_BY, slower_than_siblings
from railwright.diagnosis.model import Judged
from railwright.faults.model import Certainty, Finding, OfBenchmark, OfPart
from railwright.results.model import Evidence, Result
from railwright.results.statistics import quantile
from railwright.topology.model import Device, Topology

NOT_THROTTLED = "none"
"""Setting `gpu_throttle` of a result during which no GPU was slowed down."""
SWITCHED_OFF, TOO_SHORT = "sampling is switched off", "too short: no two samples under load fell into it"
"""Setting `gpu_not_watched` where nothing is wrong with that."""
OF_LAUNCH, OF_RESULT_BEFORE = "launch", "the result before it"
"""Setting `gpu_samples_of` of a result that has none of its own: those of its launch, or of what came with it."""
WATCHED = frozenset({
    "gpu_samples", "gpu_samples_of", "gpu_not_watched", "gpu_clock_min_hz", "gpu_clock_min_of", "gpu_clock_median_hz",
    "gpu_clock_median_of",
    "gpu_memory_clock_min_hz", "gpu_power_max_w", "gpu_temperature_max_c", "gpu_throttle", "gpu_throttle_of",
})  # fmt: skip
"""All settings that sampling adds to a result: what was seen, not what was chosen."""
_AT_THE_LIMIT = "software power cap"
_POWER_REMEDY = (
    "a GPU at full load is held at its power limit by design: compare the limit in nvidia-smi -q -d POWER with its"
    " default"
)
_REMEDY = (
    "nvidia-smi -q -d PERFORMANCE,TEMPERATURE,POWER under load; then cooling, power supplies and the BMC's event log"
)


def look(results: Sequence[Result], points: Sequence[Judged], topology: Topology) -> tuple[Finding, ...]:
    """What the samples of all results and the values of all points say of single GPUs."""
    found = (*_throttled(results), *_dropped(results, topology), *slower_than_siblings(points, topology))
    return (*found, *_not_watched(results))


def watched_words(results: Iterable[Result]) -> str:
    """What sampling saw, and of how many results, in one line: `clocks 1980 MHz, up to 245 W and 61 C, no throttling;
    66 of 153 GPU results sampled themselves, 75 by their launch, 12 not: too short`. Empty without a GPU result.
    """
    of_gpus = [result for result in results if "gpu_samples" in result.settings]
    if not of_gpus:
        return ""
    watched = [result for result in of_gpus if result.settings["gpu_samples"]]
    of_launch = sum(result.settings.get("gpu_samples_of") == OF_LAUNCH for result in watched)
    counts = [f"{len(watched) - of_launch} of {len(of_gpus)} GPU results sampled themselves"]
    if of_launch:
        counts.append(f"{of_launch} by their launch")
    blind: dict[str, int] = defaultdict(int)
    for result in of_gpus:
        if not result.settings["gpu_samples"]:
            why = str(result.settings.get("gpu_not_watched") or "the reason is not known")
            blind["too short" if why == TOO_SHORT else why] += 1
    counts += [f"{number} not: {why}" for why, number in blind.items()]
    return f"{_seen_words(watched)}; {', '.join(counts)}"


def _seen_words(watched: Sequence[Result]) -> str:
    """Clocks, power, temperature and throttling of results that have samples."""
    lowest = [result.settings.get("gpu_clock_min_hz") for result in watched]
    slowest, fastest = _lowest(lowest), _highest(lowest)
    words = "clocks not known"
    if slowest is not None:
        words = f"clocks {'' if _clock(slowest) == _clock(fastest) else 'from '}{_clock(slowest)}"
    power = _highest([result.settings.get("gpu_power_max_w") for result in watched])
    temperature = _highest([result.settings.get("gpu_temperature_max_c") for result in watched])
    most = [f"{power:.0f} W" if power is not None else "", f"{temperature:.0f} C" if temperature is not None else ""]
    if any(most):
        words += f", up to {' and '.join(one for one in most if one)}"
    told = [str(result.settings["gpu_throttle"]) for result in watched if "gpu_throttle" in result.settings]
    reasons = dict.fromkeys(reason for each in told if each != NOT_THROTTLED for reason in each.split(", "))
    if reasons:
        return f"{words}, slowed down: {', '.join(reasons)}"
    return f"{words}, {'no throttling' if told else 'throttling not known'}"


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
            costs=f"whether GPUs were slowed down{' during the others' if watched else ''} is not known",
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
    """Clocks under load below what the GPU is set to, without a reason among those that slow it down.

    By the median of the samples: one of five can be low because the GPU's work has only begun.
    """
    devices = {gpu.id: gpu for gpu in topology.of_kind("gpu")}
    usual = _usual_clocks(results)
    low: dict[str, list[Result]] = defaultdict(list)
    for result in results:
        clock, name = result.settings.get("gpu_clock_median_hz"), _slowest_gpu(result)
        if name not in devices or not isinstance(clock, int | float):
            continue
        if result.settings.get("gpu_throttle", NOT_THROTTLED) != NOT_THROTTLED:
            continue
        if clock < (1 - SLOWER_BY) * _due_clock(devices[name], usual):
            low[name].append(result)
    findings = []
    for name, those in low.items():
        slowest, due = _lowest([one.settings["gpu_clock_median_hz"] for one in those]), _due_clock(devices[name], usual)
        findings.append(
            Finding(
                fault="gpu_clock_dropped",
                where=(OfPart(name), *_benchmarks(those)),
                certainty="possible",
                says=f"the SM clock of {name} was {_clock(slowest)} under load, {_clock(due)} are due",
                costs=f"{1 - (slowest or due) / due:.0%} of what the clock decides: compute and SM-driven copies",
                remedy="nvidia-smi -q -d CLOCK: clocks that were set by hand go back with nvidia-smi -rgc and -rac",
                evidence=(Evidence(claim="SM clock", value=_clock(slowest), seen=_sampled(those)),),
            )
        )
    return tuple(findings)


def _slowest_gpu(result: Result) -> str:
    """Whose median clock a result has; until 0.1 that of the GPU with the lowest sample."""
    return str(result.settings.get("gpu_clock_median_of") or result.settings.get("gpu_clock_min_of", ""))


def _usual_clocks(results: Iterable[Result]) -> float:
    """The median of the results' medians, 0 without any."""
    clocks = [result.settings.get("gpu_clock_median_hz") for result in results]
    known = sorted(clock for clock in clocks if isinstance(clock, int | float))
    return quantile(known, 0.5) if known else 0.0


def _due_clock(gpu: Device, usual: float) -> float:
    """What it is set to, else what it had for most of the run, in Hz."""
    clock = gpu.facts.get("sm_clock_application_hz") or gpu.facts.get("sm_clock_max_hz")
    return max(usual, clock) if isinstance(clock, int | float) else usual


def _split(names: str) -> tuple[OfPart, ...]:
    return tuple(OfPart(name) for name in names.split(",") if GPU_ID.fullmatch(name))


def _benchmarks(results: Iterable[Result]) -> tuple[OfBenchmark, ...]:
    return tuple(dict.fromkeys(OfBenchmark(result.benchmark) for result in results))


def _sampled(results: Sequence[Result]) -> str:
    """How many samples these results rest on, each counted once however many results share it."""
    of_results = [_samples_in(one) for one in results if "gpu_samples_of" not in one.settings]
    # Where no result has its own, the one that took most of its launch has at least so many different ones.
    number = sum(of_results) or max((_samples_in(one) for one in results), default=0)
    return f"NVML, {number} samples under load"


def _samples_in(result: Result) -> int:
    count = result.settings.get("gpu_samples", 0)
    return count if isinstance(count, int) else 0


def _lowest(values: Iterable[object]) -> float | None:
    return min((float(value) for value in values if isinstance(value, int | float)), default=None)


def _highest(values: Iterable[object]) -> float | None:
    return max((float(value) for value in values if isinstance(value, int | float)), default=None)


def _clock(hertz: float | None) -> str:
    return f"{hertz / 1e6:.0f} MHz" if hertz is not None else ""

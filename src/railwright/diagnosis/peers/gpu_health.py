"""GPUs that held a run back: slowed down while they worked, or slower than their siblings at the same work.

The rules, and where their figures come from, are in docs/gpu-health.md.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence

from railwright.checks.finding import Finding, OfBenchmark, OfPart
from railwright.diagnosis.peers.gpus import GPU_ID, SLOWER_BY, slower_than_siblings
from railwright.diagnosis.verdicts.judged import Judged
from railwright.groups import grouped
from railwright.results.records import Evidence, Result
from railwright.results.statistics import quantile
from railwright.topology.devices import Device, Topology

NOT_THROTTLED = "none"
"""Setting `gpu_throttle` of a result during which no GPU was slowed down."""
SWITCHED_OFF, TOO_SHORT = "sampling is switched off", "too short: no two samples under load fell into it"
"""Values of the setting `gpu_not_watched` that are no fault."""
OF_LAUNCH, OF_RESULT_BEFORE = "launch", "the result before it"
"""Values of the setting `gpu_samples_of`: where the samples come from if the result has none of its own."""
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
    siblings = slower_than_siblings(points, topology)
    return (*_throttled(results), *_dropped(results, topology), *siblings, *_not_watched(results))


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
    blind = (result.settings for result in of_gpus if not result.settings["gpu_samples"])
    whys = (str(settings.get("gpu_not_watched") or "the reason is not known") for settings in blind)
    reasons = Counter("too short" if why == TOO_SHORT else why for why in whys)
    counts += [f"{number} not: {why}" for why, number in reasons.items()]
    return f"{_seen_words(watched)}; {', '.join(counts)}"


def _seen_words(watched: Sequence[Result]) -> str:
    """Clocks, power, temperature and throttling of results that have samples."""
    clocks, words = _told(watched, "gpu_clock_min_hz"), "clocks not known"
    if clocks:
        slowest, fastest = _clock(min(clocks)), _clock(max(clocks))
        words = f"clocks {'' if slowest == fastest else 'from '}{slowest}"
    power, temperature = _told(watched, "gpu_power_max_w"), _told(watched, "gpu_temperature_max_c")
    most = [f"{max(power):.0f} W" if power else "", f"{max(temperature):.0f} C" if temperature else ""]
    if any(most):
        words += f", up to {' and '.join(one for one in most if one)}"
    told = [str(result.settings["gpu_throttle"]) for result in watched if "gpu_throttle" in result.settings]
    reasons = dict.fromkeys(reason for each in told if each != NOT_THROTTLED for reason in each.split(", "))
    if reasons:
        return f"{words}, slowed down: {', '.join(reasons)}"
    return f"{words}, {'no throttling' if told else 'throttling not known'}"


def _not_watched(results: Iterable[Result]) -> Iterator[Finding]:
    """Results during which the GPUs should have been watched and could not be."""
    of_gpus = [result for result in results if "gpu_samples" in result.settings]
    watched = sum(bool(result.settings["gpu_samples"]) for result in of_gpus)
    for why, those in grouped(of_gpus, lambda one: str(one.settings.get("gpu_not_watched", ""))):
        if why in ("", SWITCHED_OFF, TOO_SHORT):
            continue
        yield Finding(
            fault="gpu_not_watched",
            where=_benchmarks(those),
            certainty="could not look",
            says=f"{watched} of {len(of_gpus)} GPU results were watched: {why}",
            costs=f"whether GPUs were slowed down{' during the others' if watched else ''} is not known",
            remedy="see whether `nvidia-smi -q -d PERFORMANCE` answers here",
        )


def _throttled(results: Iterable[Result]) -> Iterator[Finding]:
    def said(result: Result) -> tuple[str, str]:
        names = result.settings.get("gpu_throttle_of", "")
        return str(result.settings.get("gpu_throttle", NOT_THROTTLED)), str(names)

    for (reasons, names), those in grouped(results, said):
        if reasons == NOT_THROTTLED:
            continue
        power_only = reasons == _AT_THE_LIMIT
        clocks, hottest = _told(those, "gpu_clock_min_hz"), max(_told(those, "gpu_temperature_max_c"), default=0.0)
        words = (_clock(min(clocks)) if clocks else "", f"{hottest:.0f} C" if hottest else "")
        seen = ", ".join(filter(None, words))
        gpus = tuple(OfPart(name) for name in names.split(",") if GPU_ID.fullmatch(name))
        yield Finding(
            fault="gpu_throttled",
            where=(*gpus, *_benchmarks(those)),
            certainty="possible" if power_only else "seen",
            says=f"{names.replace(',', ', ')} slowed down while measured: {reasons}",
            costs="" if power_only else "its clocks were lowered, and with them compute and SM-driven copies",
            remedy=_POWER_REMEDY if power_only else _REMEDY,
            evidence=(Evidence(claim="clock event reasons", value=f"{reasons}; {seen}", seen=_sampled(those)),),
        )


def _dropped(results: Sequence[Result], topology: Topology) -> Iterator[Finding]:
    """Clocks under load below what the GPU is set to, without a reason among those that slow it down.

    By the median of the samples: one of five can be low because the GPU's work has only begun.
    """
    clocks = sorted(_told(results, "gpu_clock_median_hz"))
    usual = quantile(clocks, 0.5) if clocks else 0.0
    due = {gpu.id: _due_clock(gpu, usual) for gpu in topology.of_kind("gpu")}
    low: dict[str, list[Result]] = defaultdict(list)
    for result in results:
        clock, name = result.settings.get("gpu_clock_median_hz"), _slowest_gpu(result)
        if name not in due or not isinstance(clock, int | float):
            continue
        if result.settings.get("gpu_throttle", NOT_THROTTLED) != NOT_THROTTLED:
            continue
        if clock < (1 - SLOWER_BY) * due[name]:
            low[name].append(result)
    for name, those in low.items():
        slowest = min(_told(those, "gpu_clock_median_hz"))
        yield Finding(
            fault="gpu_clock_dropped",
            where=(OfPart(name), *_benchmarks(those)),
            certainty="possible",
            says=f"the SM clock of {name} was {_clock(slowest)} under load, {_clock(due[name])} are due",
            costs=f"{1 - slowest / due[name]:.0%} of what the clock decides: compute and SM-driven copies",
            remedy="nvidia-smi -q -d CLOCK: clocks that were set by hand go back with nvidia-smi -rgc and -rac",
            evidence=(Evidence(claim="SM clock", value=_clock(slowest), seen=_sampled(those)),),
        )


def _slowest_gpu(result: Result) -> str:
    """The GPU that a result's median clock is of. Until 0.1 it was the GPU with the lowest sample."""
    return str(result.settings.get("gpu_clock_median_of") or result.settings.get("gpu_clock_min_of", ""))


def _due_clock(gpu: Device, usual: float) -> float:
    """What it is set to, else what it had for most of the run, in Hz."""
    clock = gpu.facts.get("sm_clock_application_hz") or gpu.facts.get("sm_clock_max_hz")
    return max(usual, clock) if isinstance(clock, int | float) else usual


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


def _told(results: Iterable[Result], setting: str) -> list[float]:
    """What the results say of a quantity, where they do."""
    found = (result.settings.get(setting) for result in results)
    return [float(value) for value in found if isinstance(value, int | float)]


def _clock(hertz: float) -> str:
    return f"{hertz / 1e6:.0f} MHz"

"""GPUs that held a run back: throttled under load, or slower than their siblings at the same work.

The rules and the sources of their figures are in docs/gpu-health.md.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence

from railwright.checks.finding import BenchmarkPlace, Finding, PartPlace
from railwright.diagnosis.peers.gpus import GPU_ID, SLOWER_BY, slower_than_siblings
from railwright.diagnosis.verdicts.judged import Judged
from railwright.groups import group_by_key
from railwright.results.records import Evidence, Result
from railwright.results.statistics import quantile
from railwright.topology.devices import Device, Topology

NOT_THROTTLED = "none"
"""The setting `gpu_throttle` of a result during which no GPU was throttled."""
SWITCHED_OFF, TOO_SHORT = "sampling is switched off", "too short: no two samples under load fell into it"
"""Values of the setting `gpu_not_watched` that are not faults."""
OF_LAUNCH, OF_RESULT_BEFORE = "launch", "the result before it"
"""Values of the setting `gpu_samples_of`: the origin of the samples if the result has none of its own."""
WATCHED = frozenset({
    "gpu_samples", "gpu_samples_of", "gpu_not_watched", "gpu_clock_min_hz", "gpu_clock_min_of", "gpu_clock_median_hz",
    "gpu_clock_median_of",
    "gpu_memory_clock_min_hz", "gpu_power_max_w", "gpu_temperature_max_c", "gpu_throttle", "gpu_throttle_of",
})  # fmt: skip
"""All settings that sampling adds to a result, which are observations and not choices."""
_AT_THE_LIMIT = "software power cap"
_POWER_REMEDY = (
    "a GPU at full load runs at its power limit by design: compare the limit in nvidia-smi -q -d POWER with its default"
)
_REMEDY = (
    "nvidia-smi -q -d PERFORMANCE,TEMPERATURE,POWER under load; then check cooling, power supplies and the BMC's event"
    " log"
)


def find_unhealthy_gpus(results: Sequence[Result], points: Sequence[Judged], topology: Topology) -> tuple[Finding, ...]:
    """Return findings about single GPUs from the samples of all results and the values of all points."""
    siblings = slower_than_siblings(points, topology)
    return (*_find_throttled(results), *_find_dropped_clocks(results, topology), *siblings, *_find_unsampled(results))


def format_samples(results: Iterable[Result]) -> str:
    """Summarize the samples in one line; empty without a GPU result.

    `clocks 1980 MHz, up to 245 W and 61 C, no throttling; 66 of 153 GPU results sampled themselves, 75 by their launch,
    12 not: too short`.
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
    whys = (str(settings.get("gpu_not_watched") or "the reason is unknown") for settings in blind)
    reasons = Counter("too short" if why == TOO_SHORT else why for why in whys)
    counts += [f"{number} not: {why}" for why, number in reasons.items()]
    return f"{_format_observations(watched)}; {', '.join(counts)}"


def _format_observations(watched: Sequence[Result]) -> str:
    """Format the clocks, power, temperature and throttling of results that have samples."""
    clocks, words = _setting_values(watched, "gpu_clock_min_hz"), "clocks unknown"
    if clocks:
        slowest, fastest = _format_clock(min(clocks)), _format_clock(max(clocks))
        words = f"clocks {'' if slowest == fastest else 'from '}{slowest}"
    power, temperature = _setting_values(watched, "gpu_power_max_w"), _setting_values(watched, "gpu_temperature_max_c")
    maxima = [f"{max(power):.0f} W" if power else "", f"{max(temperature):.0f} C" if temperature else ""]
    if any(maxima):
        words += f", up to {' and '.join(word for word in maxima if word)}"
    throttling = [str(result.settings["gpu_throttle"]) for result in watched if "gpu_throttle" in result.settings]
    reasons = dict.fromkeys(reason for value in throttling if value != NOT_THROTTLED for reason in value.split(", "))
    if reasons:
        return f"{words}, throttled: {', '.join(reasons)}"
    return f"{words}, {'no throttling' if throttling else 'throttling unknown'}"


def _find_unsampled(results: Iterable[Result]) -> Iterator[Finding]:
    """Report results during which the GPUs could not be sampled."""
    of_gpus = [result for result in results if "gpu_samples" in result.settings]
    watched = sum(bool(result.settings["gpu_samples"]) for result in of_gpus)
    for why, unwatched in group_by_key(of_gpus, lambda result: str(result.settings.get("gpu_not_watched", ""))):
        if why in ("", SWITCHED_OFF, TOO_SHORT):
            continue
        yield Finding(
            fault="gpu_not_watched",
            where=_benchmark_places(unwatched),
            certainty="could not look",
            says=f"{watched} of {len(of_gpus)} GPU results were sampled: {why}",
            costs=f"throttling of GPUs{' during the others' if watched else ''} is unknown",
            remedy="check whether `nvidia-smi -q -d PERFORMANCE` works on this host",
        )


def _find_throttled(results: Iterable[Result]) -> Iterator[Finding]:
    def throttling(result: Result) -> tuple[str, str]:
        names = result.settings.get("gpu_throttle_of", "")
        return str(result.settings.get("gpu_throttle", NOT_THROTTLED)), str(names)

    for (reasons, names), affected in group_by_key(results, throttling):
        if reasons == NOT_THROTTLED:
            continue
        power_only = reasons == _AT_THE_LIMIT
        clocks, hottest = (
            _setting_values(affected, "gpu_clock_min_hz"),
            max(_setting_values(affected, "gpu_temperature_max_c"), default=0.0),
        )
        words = (_format_clock(min(clocks)) if clocks else "", f"{hottest:.0f} C" if hottest else "")
        seen = ", ".join(filter(None, words))
        gpus = tuple(PartPlace(name) for name in names.split(",") if GPU_ID.fullmatch(name))
        yield Finding(
            fault="gpu_throttled",
            where=(*gpus, *_benchmark_places(affected)),
            certainty="possible" if power_only else "seen",
            says=f"{names.replace(',', ', ')} throttled during the measurement: {reasons}",
            costs="" if power_only else "lower clocks, and so slower compute and SM-driven copies",
            remedy=_POWER_REMEDY if power_only else _REMEDY,
            evidence=(
                Evidence(claim="clock event reasons", value=f"{reasons}; {seen}", seen=_format_sample_count(affected)),
            ),
        )


def _find_dropped_clocks(results: Sequence[Result], topology: Topology) -> Iterator[Finding]:
    """Report clocks under load below the GPU's setting without a throttle reason.

    The median of the samples decides, because a sample can be low when the GPU's work has just begun.
    """
    clocks = sorted(_setting_values(results, "gpu_clock_median_hz"))
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
    for name, affected in low.items():
        slowest = min(_setting_values(affected, "gpu_clock_median_hz"))
        yield Finding(
            fault="gpu_clock_dropped",
            where=(PartPlace(name), *_benchmark_places(affected)),
            certainty="possible",
            says=f"the SM clock of {name} was {_format_clock(slowest)} under load"
            f" instead of {_format_clock(due[name])}",
            costs=f"{1 - slowest / due[name]:.0%} of compute and SM-driven copies, which depend on the clock",
            remedy="nvidia-smi -q -d CLOCK: nvidia-smi -rgc and -rac reset clocks that were set manually",
            evidence=(Evidence(claim="SM clock", value=_format_clock(slowest), seen=_format_sample_count(affected)),),
        )


def _slowest_gpu(result: Result) -> str:
    """Return the GPU of a result's median clock. Before 0.1 records named the GPU with the lowest sample."""
    return str(result.settings.get("gpu_clock_median_of") or result.settings.get("gpu_clock_min_of", ""))


def _due_clock(gpu: Device, usual: float) -> float:
    """Return the expected clock in Hz: the configured clock, but at least that of most of the run."""
    clock = gpu.facts.get("sm_clock_application_hz") or gpu.facts.get("sm_clock_max_hz")
    return max(usual, clock) if isinstance(clock, int | float) else usual


def _benchmark_places(results: Iterable[Result]) -> tuple[BenchmarkPlace, ...]:
    return tuple(dict.fromkeys(BenchmarkPlace(result.benchmark) for result in results))


def _format_sample_count(results: Sequence[Result]) -> str:
    """Format the number of samples of the results, counting shared samples once."""
    of_results = [_count_samples(result) for result in results if "gpu_samples_of" not in result.settings]
    # Without own samples, the largest share of a launch's samples is a lower bound.
    number = sum(of_results) or max((_count_samples(result) for result in results), default=0)
    return f"NVML, {number} samples under load"


def _count_samples(result: Result) -> int:
    count = result.settings.get("gpu_samples", 0)
    return count if isinstance(count, int) else 0


def _setting_values(results: Iterable[Result], setting: str) -> list[float]:
    """Return the values of a setting in the results that have it."""
    found = (result.settings.get(setting) for result in results)
    return [float(value) for value in found if isinstance(value, int | float)]


def _format_clock(hertz: float) -> str:
    return f"{hertz / 1e6:.0f} MHz"

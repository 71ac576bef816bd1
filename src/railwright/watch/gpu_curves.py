"""Analyses GPU counters of a job: work over time, throttled GPUs, and GPUs slower than their siblings."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import NamedTuple

import msgspec

from railwright.diagnosis.iterations.updates import Steps, update_s
from railwright.diagnosis.peers.gpus import SLOWER_BY
from railwright.results.statistics import quantile
from railwright.sampling.recording import Recorded

_AT_WORK_PERCENT = 5.0
"""The minimum share of time with a kernel running for a GPU to count as part of the job. Our choice."""
_HELD_MATTERS = 0.01
"""The minimum share of time below the requested clocks for a GPU to be reported as held back. Our choice."""
_READINGS = 3
"""The fewest consecutive readings that make a GPU slower; a single one may fall between two kernels."""
_CHANCE, _RARE = 0.01, 0.01
"""The accepted probability of a run of low readings by chance, and the least share of low readings that is assumed."""


class HeldBack(msgspec.Struct, frozen=True, kw_only=True):
    """A GPU whose clocks were below the requested ones."""

    gpu: str
    by: str
    """`power` or `heat`."""
    from_s: float
    """Seconds since the start of the recording."""
    fraction: float
    """The fraction of the time since then."""


class SlowerGpu(msgspec.Struct, frozen=True, kw_only=True):
    """A GPU whose SM clock was below that of its siblings, all of them working."""

    gpu: str
    from_s: float
    to_s: float
    clock_hz: float
    siblings_hz: float
    why: tuple[str, ...]
    """The reasons by the GPU's own throttle counters; empty if they show none."""


def find_working_gpus(recorded: Recorded) -> list[str]:
    """Return the GPUs on which kernels ran for at least 5 % of the time; an empty list if NVML reports no use."""
    use = {name: recorded.moved[number] for name, number in _source_numbers(recorded, "use.kernels").items()}
    if not use:
        return []
    return [name for name, values in use.items() if _mean(values) >= _AT_WORK_PERCENT]


def find_power_sources(recorded: Recorded, gpus: Sequence[str]) -> list[int]:
    """Return the power sources of those GPUs."""
    return [number for name, number in _source_numbers(recorded, "power").items() if name in gpus]


def sum_energy(recorded: Recorded, numbers: Sequence[int]) -> Steps:
    """Return the energy of the GPUs together, in joules, at the pace of the slowest update of power.

    Each GPU's power holds until it changes. GPUs update at different times, so the sum is taken at its own times.
    """
    times = recorded.times_s
    begin_s = times[0] if times else 0.0
    pace = max((update_s(convert_gauge(recorded, number)) for number in numbers), default=0.0)
    now = [math.nan] * len(numbers)
    ends, moved, total, since = [], [], 0.0, begin_s
    for at, at_s in enumerate(times):
        if at and all(value == value for value in now):
            total += sum(now) * (at_s - times[at - 1])
        for place, number in enumerate(numbers):
            values = recorded.moved[number][at]
            now[place] = values if values == values else now[place]
        over = at_s - since >= 0.99 * pace
        ends.append(at_s - begin_s)
        moved.append(total if over else math.nan)
        if over:
            total, since = 0.0, at_s
    return Steps(ends, moved)


def convert_gauge(recorded: Recorded, number: int) -> Steps:
    """Return a gauge as a counter that moves when the gauge changes."""
    begin_s = recorded.times_s[0] if recorded.times_s else 0.0
    moved, before = [], math.nan
    for values in recorded.moved[number]:
        moved.append(math.nan if values != values else float(values != before))
        before = values if values == values else before
    return Steps([at_s - begin_s for at_s in recorded.times_s], moved)


def find_held_back(recorded: Recorded) -> tuple[HeldBack, ...]:
    """Return the GPUs that power or heat held back for at least 1 % of the time, an entry for each GPU and reason."""
    found = []
    for by in ("power", "heat"):
        for gpu, number in _source_numbers(recorded, f"held_back.{by}").items():
            values = [(at_s, step) for at_s, step in _read(recorded, number) if step > 0]
            if not values:
                continue
            first_s = values[0][0] - values[0][1]  # it began at least this long before it was read
            lasts_s = max(recorded.times_s[-1] - recorded.times_s[0] - first_s, values[0][1])
            fraction = min(1.0, math.fsum(step for _, step in values) / lasts_s)
            if fraction >= _HELD_MATTERS:
                found.append(HeldBack(gpu=gpu, by=by, from_s=max(0.0, first_s), fraction=fraction))
    return tuple(found)


def find_slower_gpus(recorded: Recorded) -> tuple[SlowerGpu, ...]:
    """Return the working GPUs whose clock was below their siblings' in consecutive readings.

    Under a power limit the clocks of all GPUs swing, so that each has low readings. There must be more in a row than
    would come by chance if the GPU had low readings as often as its siblings do. Each GPU has its first such period.
    """
    working = find_working_gpus(recorded)
    clocks = {gpu: dict(_read(recorded, number)) for gpu, number in _source_numbers(recorded, "clock").items()}
    clocks = {gpu: values for gpu, values in clocks.items() if gpu in working}
    compared = {gpu: _compare_clocks(gpu, clocks) for gpu in clocks}
    count = sum(map(len, compared.values()))
    found = []
    for gpu, readings in compared.items():
        least = _run_by_chance([others for name, others in compared.items() if name != gpu], count)
        for is_slow, run in groupby(readings, key=lambda reading: reading.is_slow):
            those = list(run)
            if is_slow and len(those) >= max(_READINGS, least):
                found.append(_build_slower_gpu(recorded, gpu, those))
                break
    return tuple(found)


class _Compared(NamedTuple):
    """A reading of a GPU's clock, and the median of its siblings' clocks at that time."""

    at_s: float
    clock_hz: float
    siblings_hz: float

    @property
    def is_slow(self) -> bool:
        """The clock is lower than the siblings' by more than `SLOWER_BY`."""
        return self.clock_hz < (1 - SLOWER_BY) * self.siblings_hz


def _compare_clocks(gpu: str, clocks: Mapping[str, Mapping[float, float]]) -> list[_Compared]:
    found = []
    for at_s, clock in clocks[gpu].items():
        others = sorted(values[at_s] for name, values in clocks.items() if name != gpu and at_s in values)
        found.append(_Compared(at_s, clock, quantile(others, 0.5) if others else 0.0))
    return found


def _run_by_chance(siblings: Sequence[Sequence[_Compared]], count: int) -> float:
    """Return the length from which a run of low readings is not chance among `count` readings of all GPUs.

    At each reading such a run begins with at most the probability p^length, where p is the share of low readings of
    the median sibling.
    """
    shares = sorted(sum(one.is_slow for one in readings) / len(readings) for readings in siblings if readings)
    low = max(_RARE, quantile(shares, 0.5)) if shares else _RARE
    return math.log(_CHANCE / max(1, count)) / math.log(low) if low < 1 else math.inf


def _build_slower_gpu(recorded: Recorded, gpu: str, those: Sequence[_Compared]) -> SlowerGpu:
    from_s, to_s = those[0].at_s, those[-1].at_s
    why = [
        by
        for by in ("power", "heat")
        for name, number in _source_numbers(recorded, f"held_back.{by}").items()
        if name == gpu and any(step > 0 for at_s, step in _read(recorded, number) if from_s <= at_s <= to_s)
    ]
    return SlowerGpu(
        gpu=gpu,
        from_s=from_s,
        to_s=to_s,
        clock_hz=quantile(sorted(one.clock_hz for one in those), 0.5),
        siblings_hz=quantile(sorted(one.siblings_hz for one in those), 0.5),
        why=tuple(why),
    )


def _source_numbers(recorded: Recorded, kind: str) -> dict[str, int]:
    """Return the index of each GPU's source of this kind, by GPU."""
    split = ((number, *source.name.partition(".")) for number, source in enumerate(recorded.about.sources))
    return {gpu: number for number, gpu, _, rest in split if rest == kind and gpu.startswith("gpu")}


def _read(recorded: Recorded, number: int) -> list[tuple[float, float]]:
    """Return the readings of a source: seconds since the start, and value."""
    begin_s = recorded.times_s[0] if recorded.times_s else 0.0
    pairs = zip(recorded.times_s, recorded.moved[number], strict=True)
    return [(at_s - begin_s, values) for at_s, values in pairs if values == values]


def _mean(values: Sequence[float]) -> float:
    read = [value for value in values if value == value]
    return math.fsum(read) / len(read) if read else 0.0

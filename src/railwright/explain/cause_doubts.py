"""Reasons to name no likely cause: a table that is too short, a pipeline that still fills, causes that fit alike."""

from __future__ import annotations

import math
from collections.abc import Sequence

from msgspec.structs import replace

from railwright.diagnosis.verdicts.judged import Judged, Verdict
from railwright.expected.machine import Machine
from railwright.explain.curve_shape import best_rates
from railwright.explain.fitted import ALIKE, Fitted
from railwright.limits.limit import Constant, Source
from railwright.results.readers.foreign_file import ForeignFile
from railwright.results.workload import Collective, Copy, Message
from railwright.topology.cluster import Cluster
from railwright.units import format_count, format_size

_CHUNK = Constant(
    512 * 1024,
    "bytes that a rank passes on at a time on one channel",
    Source(
        "NCCL, src/include/device.h and src/init.cc", "DEFAULT_BUFFSIZE 4 MiB / NCCL_STEPS 8, BROADCAST_CHUNKSTEPS 1"
    ),
)
_PIPELINED = ("broadcast", "reduce")
"""The collectives that pass all data along all ranks in turn. Others divide it among the ranks."""
_CHANNELS_PER_NIC = 2
_NEAR_BAND = 0.4
"""A rate below this share of the band is slow even while a pipeline fills."""
_ALIKE = 1.2
"""Causes are alike if their distances from the table differ by no more than this factor."""
_UNEXPLAINED = 0.15
"""The share of the logarithmic distance from a healthy curve that the nearest fault may leave unexplained."""
_UNEXPLAINED_ALONE = 0.35
"""The same for a fault that no other comes near to. With it, the curves of 8 public outputs have a likely cause, and of
3 without it; all are right (docs/explain-public-outputs.md, Likely causes)."""
_ALONE = 1.5
"""A fault is alone if every other is farther from the table by this factor."""
_OF_MANY_STRENGTHS = ("few_channels",)
"""Faults with a number that may be chosen: one of their curves lies near many tables."""
_STILL_RISES = 1.5
"""A rate that grows by this factor when the size doubles: half of the time is a fixed one."""
_ENOUGH_SIZES = 3
_OF_GPU_LINK = "pcie_below_maximum"


def doubt_filling_rows(file: ForeignFile, rows: Sequence[Judged], placed: Cluster) -> tuple[Judged, ...]:
    """Turn slow rows of a pipelined collective into unknown ones if its pipeline still fills at the largest size."""
    why = describe_filling(file, rows, placed)
    return tuple(
        replace(row, verdict=Verdict(state="unknown", why=f"{row.verdict.why}, but {why}"))
        if why
        and row.verdict.state == "slow"
        and row.value
        and row.expected
        and row.value >= _NEAR_BAND * row.expected.low
        else row
        for row in rows
    )


def describe_filling(file: ForeignFile, rows: Sequence[Judged], placed: Cluster) -> str:
    """Return why the pipeline of the table's collective is not full at its largest size; empty if it is."""
    workload, ranks = file.workload, file.ranks or 0
    if not isinstance(workload, Collective) or workload.by != "nccl" or workload.operation not in _PIPELINED:
        return ""
    largest = max(best_rates(rows), default=0)
    nics = len(placed.host.of_kind("nic")) if placed.hosts > 1 else 0
    filled = (ranks - 1) * int(_CHUNK.value) * _CHANNELS_PER_NIC * max(1, nics)
    if not 0 < largest < filled:
        return ""
    return (
        f"the pipeline over {ranks} ranks still fills at {format_size(largest)}: about {format_size(filled)} are under"
        " way in it"
    )


def doubt_cause(file: ForeignFile, rows: Sequence[Judged], fitted: Sequence[Fitted], placed: Machine) -> str:
    """Return why no fault can be named as the likely cause; empty if the nearest can."""
    if len(fitted) < 2:
        return ""
    if filling := describe_filling(file, rows, placed.cluster):
        return filling
    sizes = len(fitted[0].predicted)
    if not isinstance(file.workload, Copy) and sizes < _ENOUGH_SIZES:
        return f"{format_count(sizes, 'size')} of the table can be compared, and such a rate has many causes"
    if rise := _describe_rise(file, rows):
        return rise
    healthy, nearest = fitted[:2]
    if healthy.distance > 1 and math.log(nearest.distance) > _share_unexplained(fitted) * math.log(healthy.distance):
        left = f"a factor of {nearest.distance:.2f} remains unexplained"
        return f"{ALIKE} {nearest.fault} from a fault that is not modelled, since {left}"
    if nearest.fault == _OF_GPU_LINK and placed.cluster.hosts > 1 and _crosses_gpu(file, placed):
        return f"{nearest.says} would give this rate, and so would a NIC that is not below the GPU's own PCIe switch"
    rivals = dict.fromkeys(
        other.fault
        for other in fitted[2:]
        if other.distance <= _ALIKE * nearest.distance and other.fault != nearest.fault
    )
    return f"{ALIKE} {nearest.fault} from {', '.join(rivals)}" if rivals else ""


def _share_unexplained(fitted: Sequence[Fitted]) -> float:
    nearest = fitted[1]
    others = (other for other in fitted[2:] if other.fault != nearest.fault)
    is_alone = all(other.distance >= _ALONE * nearest.distance for other in others)
    return _UNEXPLAINED_ALONE if is_alone and nearest.fault not in _OF_MANY_STRENGTHS else _UNEXPLAINED


def _crosses_gpu(file: ForeignFile, placed: Machine) -> bool:
    """Report whether messages end in GPU memory, by the table or by the given path."""
    return isinstance(file.workload, Message) and (file.workload.crosses_gpu or "gpu" in placed.path)


def _describe_rise(file: ForeignFile, rows: Sequence[Judged]) -> str:
    """Return why the fixed time of a call decides even at the largest size of a collective."""
    rates = sorted(best_rates(rows).items())
    if not isinstance(file.workload, Collective) or len(rates) < 2:
        return ""
    (before, low), (largest, high) = rates[-2:]
    if largest < 2 * before or high < _STILL_RISES * low:
        return ""
    return (
        f"from {format_size(before)} to {format_size(largest)} the rate still rises by {high / low:.1f}: the fixed time"
        " of a call decides, not a link"
    )

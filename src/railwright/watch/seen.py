"""The analysis of a recording: the curves for computing and traffic, and the iterations in them."""

from __future__ import annotations

import math
from array import array
from collections.abc import Sequence

import msgspec
from msgspec.structs import replace

from railwright.diagnosis.iterations.analysis import estimate_iterations
from railwright.diagnosis.iterations.records import Estimate, Iterations
from railwright.diagnosis.iterations.samples import Curve, Role, interval_s
from railwright.diagnosis.iterations.updates import Steps, build_rate_curve, update_s
from railwright.sampling.recording import Recorded
from railwright.sampling.sources import Source
from railwright.units import format_duration
from railwright.watch.gpu_curves import (
    HeldBack,
    SlowerGpu,
    convert_gauge,
    find_held_back,
    find_power_sources,
    find_slower_gpus,
    find_working_gpus,
    sum_energy,
)

_MATTERS = 0.05
"""A counter below this fraction of the busiest of its kind is left out: it would dictate the pace."""
_LATER = "{} that it started later; computing is therefore the whole machine's processor time"
_TOO_SELDOM = 3.0
"""Traffic read this many times less often than computing is left out if it hides the iterations."""
_QUIET_CPU = 0.05
"""The CPU seconds per second below which a job counts as idle. Our choice."""
_QUIET_W = 1.0
"""Constant power of working GPUs counts as idle only below this."""
_OFF_POWER = 0.7
"""GPUs at a higher share of their power compute all the time. Our choice: waiting for a loader took 0.19 of it, NCCL's
kernels alone 0.55 (docs/measured/1xh100), and the lowest phase of a training that computes throughout 0.8 (4xh200)."""
_QUIET_BYTES_PER_S = 1e6
"""Less traffic than this may be from shells and monitors. Our choice."""


class SeenSource(msgspec.Struct, frozen=True, kw_only=True):
    """A counter over the whole recording."""

    name: str
    unit: str
    update_s: float
    """The interval at which it changes while it moves; 0 if it hardly moved."""
    mean_per_s: float
    """The mean rate; for a gauge the mean value, in its own unit."""
    shared: str
    """The other users whose activity it counts as well."""
    stands_for: str = ""
    """`compute` or `traffic` if the iterations were found in it."""


class Watched(msgspec.Struct, frozen=True, kw_only=True, tag_field="record", tag="watch"):
    """The record of `railwright watch`."""

    scope: str
    """The owner of the processor time."""
    command: tuple[str, ...]
    command_status: int | None
    """The exit status of the command, negative for a signal; None if none was started."""
    begun_unix_s: float
    seconds: float
    ticks: int
    interval_s: float
    lost_ticks: int | None
    """Ticks that were late or found no room; None for a recording from a file."""
    sampling_cpu_share: float | None
    """CPU time of the sampling thread, as a fraction of a core; None for a recording from a file."""
    sources: tuple[SeenSource, ...]
    missing: dict[str, str]
    """Sources that could not be read, with the reason."""
    estimates: tuple[Estimate, ...]
    """The estimates, longest period first; times count from the start of the recording."""
    why_none: str
    held_back: tuple[HeldBack, ...] = ()
    slower_gpus: tuple[SlowerGpu, ...] = ()
    cut: str = ""
    """The reason why the recording ends early."""


class Run(msgspec.Struct, frozen=True, kw_only=True):
    """Facts about the recording process, if known."""

    started_later: int = 0
    """The number of the command's processes that are not among the sources."""
    command_status: int | None = None
    lost_ticks: int | None = None
    sampling_cpu_s: float | None = None
    gpus_trouble: str = ""
    """The reason why the GPUs were not sampled to the end."""


def analyse(recorded: Recorded, run: Run) -> Watched:
    """Analyse a recording."""
    about = recorded.about
    chosen = {role: choose_sources(recorded, role, run) for role in ("compute", "traffic")}
    curves = compute_curves(recorded, run)
    found, too_seldom = _estimate(curves)
    seconds = recorded.times_s[-1] - recorded.times_s[0] if len(recorded.times_s) > 1 else 0.0
    share = run.sampling_cpu_s / seconds if run.sampling_cpu_s is not None and seconds else None
    missing = dict(about.missing)
    if run.started_later:
        missing["processes"] = _LATER.format(run.started_later)
    if too_seldom:
        of_gpus = any(about.sources[number].kind == "nvlink" for number in chosen["traffic"])
        missing["traffic"] = too_seldom + "; --gpu-cpu lets GPUs be read more often" * of_gpus
    if run.gpus_trouble:
        missing["GPUs"] = run.gpus_trouble
    return Watched(
        scope=about.scope,
        command=about.command,
        command_status=run.command_status,
        begun_unix_s=about.begun_unix_s,
        seconds=seconds,
        ticks=len(recorded.times_s),
        interval_s=about.interval_s,
        lost_ticks=run.lost_ticks,
        sampling_cpu_share=share,
        sources=tuple(_source(recorded, number, seconds, chosen) for number in range(len(about.sources))),
        missing=missing,
        estimates=found.estimates,
        why_none=found.why_none,
        held_back=find_held_back(recorded),
        slower_gpus=find_slower_gpus(recorded),
        cut=recorded.cut,
    )


def _estimate(curves: list[Curve]) -> tuple[Iterations, str]:
    """Estimate iterations. If slowly read traffic hides them, leave it out and return the reason as well."""
    found = estimate_iterations(curves)
    slow = [curve.role for curve in curves if interval_s([curve]) > _TOO_SELDOM * interval_s(curves[:1])]
    if found.estimates or slow != ["traffic"]:
        return found, ""
    alone = estimate_iterations(curves[:1])
    if not alone.estimates:
        return found, ""
    why = f"read every {format_duration(interval_s(curves))}: too seldom for these iterations"
    estimates = tuple(replace(estimate, why_no_shares=f"traffic is {why}") for estimate in alone.estimates)
    return replace(alone, estimates=estimates), why


def _source(recorded: Recorded, number: int, seconds: float, chosen: dict[str, list[int]]) -> SeenSource:
    source = recorded.about.sources[number]
    total, steps = _total(recorded.moved[number]), _steps(recorded, number)
    over = sum(told == told for told in recorded.moved[number]) if source.gauge else seconds
    return SeenSource(
        name=source.name,
        unit=source.unit,
        update_s=update_s(convert_gauge(recorded, number) if source.gauge else steps),
        mean_per_s=total / over if over else 0.0,
        shared=source.shared,
        stands_for=next((role for role, numbers in chosen.items() if number in numbers), ""),
    )


def compute_curves(recorded: Recorded, run: Run) -> list[Curve]:
    """Return the curves of computing and of traffic that exist; times count from the start of the recording."""
    found = []
    quiet: dict[Role, float] = {"compute": _QUIET_CPU, "traffic": _QUIET_BYTES_PER_S}
    for role, quiet_below in quiet.items():
        numbers = choose_sources(recorded, role, run)
        if role == "compute" and any(recorded.about.sources[number].kind == "gpu" for number in numbers):
            found.append(
                build_rate_curve(role, [sum_energy(recorded, numbers)], _QUIET_W)._replace(off_share=_OFF_POWER)
            )
        elif numbers:
            found.append(build_rate_curve(role, [_steps(recorded, number) for number in numbers], quiet_below))
    return [curve for curve in found if curve.ends_s]


def choose_sources(recorded: Recorded, role: Role, run: Run) -> list[int]:
    """Return the sources of a role.

    For compute these are the power of the working GPUs, or else the job's user time; for traffic, network interfaces,
    RDMA ports and NVLinks. All but power are left out below 5 % of the busiest source of the role.
    The loopback is included if it carries a substantial part of the traffic.
    """
    if role == "compute" and (powers := find_power_sources(recorded, find_working_gpus(recorded))):
        return powers
    sources = recorded.about.sources
    totals = [_total(moved) for moved in recorded.moved]
    wanted = [number for number, source in enumerate(sources) if _has_role(source, role)]
    if role == "compute" and any(sources[number].is_of_a_process for number in wanted):
        wanted = [number for number in wanted if sources[number].is_of_a_process != bool(run.started_later)]
    busiest = max((totals[number] for number in wanted), default=0.0)
    return [number for number in wanted if totals[number] > _MATTERS * busiest]


def _has_role(source: Source, role: Role) -> bool:
    if role == "compute":  # a rank that waits for a message spends system time in sockets, or polls
        return source.kind == "processor" and source.name.endswith((".user", ".nice"))
    return source.kind in ("network", "rdma", "nvlink")


def _steps(recorded: Recorded, number: int) -> Steps:
    begin_s = recorded.times_s[0] if recorded.times_s else 0.0
    return Steps([at_s - begin_s for at_s in recorded.times_s], recorded.moved[number])


def _total(moved: array[float] | Sequence[float]) -> float:
    return math.fsum(step for step in moved if step == step)

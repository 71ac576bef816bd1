"""The joint analysis of several hosts' recordings, on a common time axis."""

from __future__ import annotations

from array import array
from collections.abc import Mapping, Sequence

import msgspec
from msgspec.structs import replace

from railwright.diagnosis.iterations.records import Estimate
from railwright.diagnosis.iterations.samples import Curve, interval_s
from railwright.diagnosis.iterations.singles import find_singles
from railwright.diagnosis.iterations.stragglers import Compared, HostIterations, Straggler, compare_hosts, stragglers
from railwright.sampling.offset import CLOCK, interpolate_change, select_known_changes
from railwright.sampling.recording import Recorded
from railwright.watch.seen import Run, Watched, analyse, compute_curves

_OF_DAY = "clocks were not measured, only each host's time of day: later starts cannot be compared"
_ONE_MACHINE = "{} share CPUs, so computing cannot be told apart: watch each host's --job or --cgroup"


class SeenHost(msgspec.Struct, frozen=True, kw_only=True):
    """A watched host."""

    host: str
    trouble: str
    """The reason why it was not watched, or not to the end; empty if there is none."""
    begins_s: float | None = None
    """The start of its recording on the common time axis; None without a recording."""
    clock_offset_s: float | None = None
    """The offset added to its monotonic clock for the watching machine's; None if its time of day was used."""
    clock_half_width_s: float | None = None
    """Half of the shortest round trip."""
    clock_drift_s: float | None = None
    """The change of the offset until its last measurement."""
    compared: Compared | None = None
    watched: Watched | None = None
    """The host's analysis; times count from the start of its own recording."""


class WatchedHosts(msgspec.Struct, frozen=True, kw_only=True, tag_field="record", tag="watch-hosts"):
    """The record of `railwright watch --hosts`."""

    command: tuple[str, ...]
    command_status: int | None
    hosts: tuple[SeenHost, ...]
    stragglers: tuple[Straggler, ...]
    """Hosts that differ from the others."""
    why_not: str
    """The reason why the hosts could not be compared; empty if they were."""


class HostRecording(msgspec.Struct, frozen=True, kw_only=True):
    """The recording received from a host."""

    recorded: Recorded | None
    """None if nothing was received."""
    trouble: str = ""


def analyse_hosts(
    hosts: Mapping[str, HostRecording], command: tuple[str, ...] = (), command_status: int | None = None
) -> WatchedHosts:
    """Analyse the recordings of all hosts."""
    there = {name: one.recorded for name, one in hosts.items() if one.recorded is not None and one.recorded.times_s}
    one_clock = has_one_clock(list(there.values()))
    zero_s = min((CommonTime(one, one_clock)(one.times_s[0]) for one in there.values()), default=0.0)
    watched = {name: analyse(one, Run()) for name, one in there.items()}
    iterations = {
        name: _find_iterations(there[name], watched[name].estimates[0], zero_s, one_clock=one_clock)
        for name in there
        if watched[name].estimates
    }
    shared = _find_shared_cpus(there)
    every = {} if shared else compare_hosts(iterations, one_clock=one_clock)
    silent = [name for name in there if name not in iterations]
    found = [] if shared else stragglers(iterations, silent, every)
    why_not = _ONE_MACHINE.format(" and ".join(shared)) if shared else "" if one_clock else _OF_DAY
    return WatchedHosts(
        command=command,
        command_status=command_status,
        hosts=tuple(
            _host(name, one, there.get(name), watched.get(name), every.get(name), zero_s, one_clock=one_clock)
            for name, one in hosts.items()
        ),
        stragglers=tuple(found),
        why_not=why_not if len(there) > 1 else "",
    )


def has_one_clock(recordings: Sequence[Recorded]) -> bool:
    """Report whether all clocks were measured against the same clock."""
    to = {one.about.offset.to_boot if one.about.offset is not None else "" for one in recordings}
    return len(to) == 1 and "" not in to


class CommonTime:
    """Converts times of a host's clock to the common time, by its measured offset or its time of day."""

    def __init__(self, recorded: Recorded, one_clock: bool) -> None:
        about = recorded.about
        self._changes: list[tuple[float, float]] = []
        if not one_clock or about.offset is None:
            self._offset_s = about.begun_unix_s - about.begun_s
            return
        self._offset_s = about.offset.seconds
        column = _find_offset_column(recorded)
        if column is not None:
            self._changes = [(recorded.times_s[0], 0.0), *select_known_changes(recorded.times_s, column)]

    def __call__(self, at_s: float) -> float:
        """Return the common time of a time on the host's monotonic clock."""
        return at_s + self._offset_s + interpolate_change(self._changes, at_s)

    @property
    def drift_s(self) -> float:
        """The change of the offset, in seconds."""
        return self._changes[-1][1] if self._changes else 0.0


def _find_offset_column(recorded: Recorded) -> array[float] | None:
    names = [source.name for source in recorded.about.sources]
    return recorded.moved[names.index(CLOCK)] if CLOCK in names else None


def align_curves(recorded: Recorded, zero_s: float, *, one_clock: bool) -> list[Curve]:
    """Return a host's curves on the common time axis."""
    axis, first_s = CommonTime(recorded, one_clock), recorded.times_s[0]
    return [
        curve._replace(
            begin_s=axis(first_s + curve.begin_s) - zero_s,
            ends_s=array("d", (axis(first_s + end_s) - zero_s for end_s in curve.ends_s)),
        )
        for curve in compute_curves(recorded, Run())
    ]


def _find_iterations(recorded: Recorded, found: Estimate, zero_s: float, *, one_clock: bool) -> HostIterations:
    """Return the iterations of the longest period."""
    axis, first_s, offset = CommonTime(recorded, one_clock), recorded.times_s[0], recorded.about.offset

    def common(at_s: float) -> float:
        return axis(first_s + at_s) - zero_s

    curves = compute_curves(recorded, Run())
    computing = [curve for curve in curves if curve.role == "compute"]
    singles = find_singles(computing[0], found) if computing else None
    one = HostIterations(
        period_s=found.period_s,
        period_half_width_s=found.period_half_width_s,
        from_s=common(found.from_s),
        to_s=common(found.to_s),
        recorded_to_s=common(recorded.times_s[-1] - first_s),
        sample_s=interval_s(curves),
        clock_half_width_s=offset.half_width_s if offset is not None else 0.0,
    )
    if singles is None:
        return one
    return replace(one, begins_s=tuple(map(common, singles.begins_s)), computed_s=tuple(singles.computed_s))


def _find_shared_cpus(there: Mapping[str, Recorded]) -> list[str]:
    """Return two hosts with the same kernel that sampled the whole machine's CPUs; empty if there are none."""
    of_boot: dict[str, str] = {}
    for name, one in there.items():
        whole = any(source.kind == "processor" and source.shared for source in one.about.sources)
        if one.about.offset is not None and whole and one.about.scope == "this machine":
            if one.about.offset.boot in of_boot:
                return [of_boot[one.about.offset.boot], name]
            of_boot[one.about.offset.boot] = name
    return []


def _host(
    name: str,
    one: HostRecording,
    recorded: Recorded | None,
    watched: Watched | None,
    held: Compared | None,
    zero_s: float,
    *,
    one_clock: bool,
) -> SeenHost:
    trouble = one.trouble or ("" if recorded is not None else "no data was received")
    if recorded is None or watched is None:
        return SeenHost(host=name, trouble=trouble)
    axis, offset = CommonTime(recorded, one_clock), recorded.about.offset
    found = SeenHost(
        host=name,
        trouble=trouble or recorded.cut,
        begins_s=axis(recorded.times_s[0]) - zero_s,
        compared=held,
        watched=watched,
    )
    if not one_clock or offset is None:
        return found
    return replace(found, clock_offset_s=offset.seconds, clock_half_width_s=offset.half_width_s,
                   clock_drift_s=axis.drift_s)  # fmt: skip

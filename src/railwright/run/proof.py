"""A complete measuring run: plan, feasibility checks, measurement, and records that are written as they come."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

import msgspec

from railwright import __version__
from railwright.diagnosis.peers.growth import is_healthy
from railwright.errors import UsageError
from railwright.launch.hosts import Hosts
from railwright.launch.session import PlannedLaunch
from railwright.results.records import Disturbed, End, Fabric, Record, Result, ResultFile, Run
from railwright.results.store import StoreFull, Writer
from railwright.run.context import gather_context
from railwright.run.exclusive import measuring_alone, refuse_busy_host
from railwright.run.measure import DEFAULT_SILENCE_S, Measurement
from railwright.run.other_work import OtherWork
from railwright.run.plan import PlannedProof
from railwright.secrecy import hide_secrets
from railwright.topology.cluster import Fabric as Switches
from railwright.topology.sources.available_memory import available_memory_bytes
from railwright.topology.sources.counters import find_counters, read_counters, subtract_counters
from railwright.topology.sources.root import live_root
from railwright.units import format_duration, format_size

_MAX_MEMORY_SHARE = 0.8
_MAX_PLAN_S = 4 * 3600.0
_MIN_HOSTS = 2
_RECORDED_ABOVE = 0.2
"""The share of CPU time above which other work is recorded. A smaller share shifts results within the bands."""


Recorded = TypeVar("Recorded", Run, Result)


@dataclass(kw_only=True)
class Proof(PlannedProof):
    """A plan that can be run on its hosts."""

    command: tuple[str, ...]
    mpirun: str | None = None
    hosts: Hosts | None = None
    fabric: Fabric | None = None
    """The fabric between the hosts, if their reach does not know it."""
    switches: Switches | None = None
    """The fabric of the cluster file, if one was given."""
    silence_s: float = DEFAULT_SILENCE_S
    force: bool = False
    on_step: Callable[[PlannedLaunch, str], None] = field(default=lambda _planned, _text: None)
    on_done: Callable[[PlannedLaunch], None] = field(default=lambda _planned: None)

    def __post_init__(self) -> None:
        super().__post_init__()
        self._measurement = Measurement(self.hosts, self.mpirun, self.silence_s)
        self.lost: dict[str, str] = {}
        """The hosts that were lost, each with the cause."""
        self.trouble: StoreFull | None = None
        """The reason why the results file is incomplete. None if it is complete."""

    def _iterate_launches(self, results: list[Result]) -> Iterator[PlannedLaunch]:
        """Yield the launches of the plan. If groups grow, the `results` so far determine the next ones.

        A launch that lost hosts is repeated without them, and the remaining launches run without them too.
        """
        if self.place is not None:
            yield from self.plan_growth(lambda group: is_healthy(group.members, results))
            return
        left = list(self.plan)
        while left:
            yield left[0]
            lost, hosts = self._measurement.lost, self.hosts
            kept = tuple(name for name in hosts.names if name not in lost) if hosts is not None else ()
            if not lost or hosts is None or len(kept) < _MIN_HOSTS:
                left = left[1:]
                continue
            self.lost |= dict.fromkeys(lost, results[-1].reason)
            self.hosts = hosts.part(kept)
            try:
                left = list(self.plan_rounds())[-len(left) :]
            except UsageError:  # options that fit the number of hosts, like ranks=
                left = left[1:]

    def refuse_impossible(self) -> None:
        """Raise UsageError for a plan over its limits, or if --mpirun names no program.

        A launch may use at most 80 % of the available memory. Without `force`, the plan may take at most four hours.
        Raises CannotJudge if the MPI of --mpirun is unknown.
        """
        self._measurement.refuse_wrong_mpirun(self.plan)
        available = available_memory_bytes()
        for launch in self.plan:
            need = launch.plan.memory_bytes
            if not launch.plan.waived and available is not None and need > _MAX_MEMORY_SHARE * available:
                reason = f"{launch.benchmark.name} would need {format_size(need)} of memory"
                raise UsageError(
                    f"{reason}, more than {_MAX_MEMORY_SHARE:.0%} of the {format_size(available)} that are free",
                    hint="choose smaller sizes",
                )
        if self.seconds > _MAX_PLAN_S and not self.force:
            hint = "choose smaller sizes or fewer launches, or use --force"
            raise UsageError(
                f"the plan would take about {format_duration(self.seconds)}, more than {format_duration(_MAX_PLAN_S)}",
                hint=hint,
            )

    def refuse_unreachable_hosts(self) -> None:
        """Raise CannotJudge for an unreachable host.

        Hosts that are measured separately, and groups that grow, are not checked here.
        """
        if self.hosts is not None and not self.screens and self.place is None:
            self.hosts.reach.check()

    def run(self, output: Path) -> ResultFile:
        """Measure everything. Results are kept however the run ends.

        Raises CannotJudge if another run is active or the host is busy, unless `force` is set or everything is waived.
        """
        # If everything is waived, other work neither disturbs nor is disturbed.
        may_share = self.force or all(launch.plan.waived for launch in self.plan)
        with measuring_alone(may_share):
            context = gather_context(self.topology)
            refuse_busy_host(context.busy_fraction, may_share)
            run = _without_secrets(
                Run(
                    railwright=__version__,
                    started_at=_now(),
                    command=self.command,
                    context=context,
                    topology=self.topology,
                    fabric=self.fabric or (self.hosts.fabric if self.hosts is not None else None),
                    switches=self.switches,
                )
            )
            return self._measure(Writer(output, run), run)

    def _measure(self, writer: Writer, run: Run) -> ResultFile:
        results: list[Result] = []
        disturbed: list[Disturbed] = []
        root = live_root()
        paths = find_counters(root)
        before = read_counters(root, paths)
        interrupted = ""
        try:
            for launch in self._iterate_launches(results):
                others = OtherWork()
                for result in map(_without_secrets, self._run_launch(launch)):
                    results.append(result)
                    writer.append(result)
                if found := _make_disturbed(launch, others.share()):
                    disturbed.append(found)
                    writer.append(found)
                self.on_done(launch)
        except KeyboardInterrupt as error:
            interrupted = f"interrupted by {str(error) or 'Ctrl-C'}"
        except StoreFull as error:
            self.trouble, interrupted = error, error.message
        if interrupted:
            results.extend(self._waive_missing(writer, results, interrupted))
        end = End(
            finished_at=_now(),
            interrupted=interrupted,
            counters_moved=subtract_counters(before, read_counters(root, paths)),
        )
        self._keep_if_possible(writer, [end])
        writer.close()
        return ResultFile(run=run, results=tuple(results), disturbed=tuple(disturbed), end=end)

    def _run_launch(self, planned: PlannedLaunch) -> Iterable[Result]:
        self._measurement.on_step = lambda text: self.on_step(planned, text)
        return self._measurement.results(planned)

    def _waive_missing(self, writer: Writer, results: list[Result], why: str) -> list[Result]:
        """Write and return a waived record for each series without a result, so that nothing is omitted silently."""
        seen = [(result.benchmark, result.parameters.items()) for result in results]
        missing = [
            launch.make_unmeasured("waived", why)
            for launch in self.plan
            if launch.job.round == 0
            and not any(
                name == launch.benchmark.name and launch.job.case.parameters().items() <= has for name, has in seen
            )
        ]
        self._keep_if_possible(writer, missing)
        return missing

    def _keep_if_possible(self, writer: Writer, records: Iterable[Record]) -> None:
        try:
            for record in records:
                writer.append(record)
        except StoreFull as error:
            self.trouble = self.trouble or error


def _make_disturbed(planned: PlannedLaunch, others: float | None) -> Disturbed | None:
    """Build the record of a launch that other work disturbed. None if it was not disturbed.

    None also for ranks on hosts: they are not our children, so their own work would count as other work.
    """
    if others is None or others <= _RECORDED_ABOVE or planned.job.hosts or planned.plan.waived:
        return None
    parameters = dict(planned.job.case.parameters())
    return Disturbed(
        benchmark=planned.benchmark.name,
        parameters=parameters,
        launch=planned.job.round,
        others_fraction=round(others, 3),
    )


def _without_secrets(record: Recorded) -> Recorded:
    """Return the record, or a copy without the secrets in its texts: a command, an error message of a library."""
    text = msgspec.json.encode(record).decode()
    hidden = hide_secrets(text)
    return record if hidden == text else msgspec.json.decode(hidden, type=type(record))


def _now() -> str:
    return dt.datetime.now(dt.timezone.utc).isoformat(timespec="seconds")

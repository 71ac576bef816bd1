"""The launch of a benchmark: supervises the ranks and turns every outcome into results.

A rank that is killed, hangs or crashes fails only its own launch: its earlier results are kept, and a `failed` result
names the rank, its host, its process and its last step.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import msgspec

from railwright.benchmarks.benchmark import AnyBenchmark, AnyJob, Plan
from railwright.errors import CannotJudge, RailwrightError
from railwright.launch import rank as rank_program
from railwright.launch.blame import Placement, RankState, summarize_end, summarize_output
from railwright.launch.causes import count_memory_kills, observe
from railwright.launch.gpus.clock_lock import ClockLock
from railwright.launch.gpus.watch import GpuWatch
from railwright.launch.local import LocalLauncher
from railwright.launch.scratch import scratch_folder
from railwright.launch.stream import Asked, Bye, Emitted, Failure, Hello, Listener, Lost, Meet, Message, Step
from railwright.process import Child, ChildResult
from railwright.results.records import Outcome, Result
from railwright.units import format_count, format_duration
from railwright.writing import write_file

_TICK_S = 0.2
_PROBE_EVERY_S = 10.0
"""The interval at which the hosts of a silent launch are probed. A probe uses a little of their CPU and links."""
_FAILED_PROBES = 2
"""The number of consecutive failed probes after which a host counts as unreachable."""
_LEAVING_S = 10.0
"""The time that a launcher has to exit after its ranks have ended."""


@dataclass(frozen=True)
class PlannedLaunch:
    """A planned launch."""

    benchmark: AnyBenchmark
    job: AnyJob
    plan: Plan

    @property
    def title(self) -> str:
        """The benchmark and the parameters of this launch."""
        varied = " ".join(str(value) for value in self.job.case.parameters().values())
        return f"{self.benchmark.name} {varied}".rstrip()

    def make_unmeasured(self, outcome: Outcome, reason: str) -> Result:
        """Build the record of a launch without results."""
        return self.benchmark.blank(
            self.plan.path,
            self.job.case,
            outcome=outcome,
            reason=reason,
            launch=self.job.round,
            ranks=self.job.ranks,
            hosts=max(1, len(self.job.hosts)),
        )


@dataclass
class Session:
    """A running launch. It counts as hung when all ranks have been silent for `silence_s`."""

    planned: PlannedLaunch
    launcher: LocalLauncher
    base_environment: dict[str, str]
    silence_s: float
    on_step: Callable[[str], None] = field(default=lambda _text: None)

    def results(self) -> Iterator[Result]:
        """Yield the results as they arrive. The last one has outcome `failed` if the launch failed."""
        self._ranks: dict[int, RankState] = {}
        self._placement = Placement(self.planned.job.ranks, self.planned.job.hosts)
        self._first_lost: int | None = None
        self._trouble = ""
        self._probes = self._unreachable = 0
        self.crashed = False
        """Whether a rank ended without a message, because the measured library crashed or the rank was killed."""
        self.blamed: set[int] = set()
        """The ranks that ended too early or kept the others waiting."""
        self.is_cause_open = False
        """True if the blamed ranks of several hosts wait for each other, so that some of them may be healthy."""
        self._waiting: set[int] = set()
        self._memory_kills = count_memory_kills()
        started = time.time()
        try:
            yield from self._launch()
        except (RailwrightError, OSError, msgspec.MsgspecError) as error:
            cause = error.message if isinstance(error, RailwrightError) else error
            self._trouble = self._trouble or f"{self.launcher.name}: {cause}"
        finally:
            if not self._all_done():  # also after an interruption
                self.launcher.clean_up(started)
                self.planned.benchmark.clean_up(self.planned.job)
        if self._trouble:
            yield self.planned.make_unmeasured("failed", self._trouble)

    def _launch(self) -> Iterator[Result]:
        self.launcher.check()
        job = msgspec.json.encode(self.planned.job)
        with scratch_folder() as scratch, Listener(self.launcher.door(scratch, job)) as listener:
            self._are_here, self._release = listener.is_here, listener.release
            write_file(scratch / rank_program.JOB_FILE, job)
            inherited = {k: v for k, v in self.base_environment.items() if k not in rank_program.RANK_VARIABLES}
            environment = self.launcher.translate(
                inherited
                | self.launcher.environment(scratch)
                | self.planned.job.launch.environment
                | {rank_program.STREAM_VARIABLE: listener.address, rank_program.SCRATCH_VARIABLE: str(scratch)}
            )
            self._watch = GpuWatch(self.planned.job, self.base_environment)
            argv = self.launcher.command(self.planned.job.ranks, scratch, environment)
            locked = ClockLock(self.planned.job, self.base_environment)
            with locked, self._watch, Child(argv, environment) as child:
                try:
                    yield from self._follow(listener, child)
                    yield from self._explain_loss(listener, child) if self.crashed else self._drain(listener)
                    if not self._trouble:  # all ranks have finished, so the launcher's status is irrelevant
                        child.wait(_LEAVING_S)
                except KeyboardInterrupt:
                    # Slurm ends the job when a node is lost. The trouble recorded before that is the cause.
                    if self._trouble:
                        yield self.planned.make_unmeasured("failed", self._trouble)
                    raise

    def _follow(self, listener: Listener, child: Child) -> Iterator[Result]:
        """Yield results until all ranks are done, one is lost, or all are silent."""
        heard = time.monotonic()
        while not self._trouble:
            exited = child.poll() is not None
            messages = list(listener.wait(_TICK_S))
            for number, message in messages:
                heard = time.monotonic()
                yield from self._process(number, message)
            if self._all_done():
                return
            if not self._trouble:
                silent_s = time.monotonic() - heard
                ended = exited and not messages
                self._trouble = self._describe_early_end(child) if ended else self._judge_silence(silent_s, child)

    def _judge_silence(self, silent_s: float, child: Child) -> str:
        """Return the reason to end a silent launch, or an empty string if it may continue.

        A step may be silent for a long time, so hosts are probed meanwhile. A host counts as unreachable only after the
        second failure, because packets are also lost when a benchmark fills the links.
        """
        hung = silent_s > self.silence_s
        if not hung and (not self.planned.job.hosts or silent_s < _PROBE_EVERY_S * (self._probes + 1)):
            if silent_s < _PROBE_EVERY_S:
                self._probes = self._unreachable = 0
            return ""
        self._probes += 1
        why = self._probe_hosts()
        self._unreachable = self._unreachable + 1 if why else 0
        if not hung and self._unreachable < _FAILED_PROBES:
            return ""
        waiting = [(n, state) for n, state in sorted(self._ranks.items()) if not state.said_bye]
        missing = sorted(set(range(self.planned.job.ranks)) - self._ranks.keys()) if self._ranks else []
        known, late = self._placement.find_named(why) or self._find_stopped() or set(missing), self._find_late()
        self.blamed |= known or late
        self.is_cause_open = not known and len(self._placement.find_hosts(late)) > 1
        stuck = [state.describe(n) + state.describe_activity() for n, state in waiting]
        stuck += [f"{format_count(len(missing), 'rank')} sent no message: {', '.join(map(str, missing[:8]))}"] * bool(
            missing
        )
        names = "; ".join(stuck) or "no rank had started"
        # A launcher may print why it cannot go on, and then wait for ever.
        said = summarize_output(list(child.output))
        told = f"; {self.launcher.name}: {said}" if said else ""
        return f"hung: silent for {format_duration(silent_s)}, ended by us: {names}{why}{told}"

    def _find_late(self) -> set[int]:
        """Return the ranks that have neither finished nor reached the barrier."""
        done = {number for number, state in self._ranks.items() if state.said_bye}
        return set(range(self.planned.job.ranks)) - self._waiting - done

    def _find_stopped(self) -> set[int]:
        """Return the stopped ranks of this machine, which hold up the others."""
        return {number for number, state in self._ranks.items() if not state.said_bye and state.is_stopped()}

    def _probe_hosts(self) -> str:
        """Probe the hosts. Returns `; ` and the hosts that cannot be reached, with the causes. Empty if all can be."""
        try:
            self.launcher.check()
        except CannotJudge as error:
            return f"; {error.message}"
        return ""

    def _drain(self, listener: Listener, wait_s: float = 0.0) -> Iterator[Result]:
        """Yield the results that have been sent. Messages after the first failure are its consequences."""
        while messages := list(listener.wait(wait_s)):
            for number, message in messages:
                yield from self._process(number, message)

    def _process(self, number: int | None, message: Message | Lost) -> Iterator[Result]:
        """Process a message of a rank, or its loss, and yield its result. A rank without a number can only be lost."""
        if number is None:
            self._lose(None, RankState())
            return
        state = self._ranks.setdefault(number, RankState())
        match message:
            case Hello(rank=_, host=host, pid=pid):
                state.host, state.pid, state.is_here = host, pid, self._are_here
            case Step(text=text):
                state.step = text
                self._watch.mark()
                self.on_step(text)
            case Emitted(result=result):
                yield self._watch.add_samples(self._place(result))
            case Meet():
                self._meet(number)
            case Bye():
                state.said_bye = True
            case Failure(message=text):
                # The first failure is the cause: the launcher then ends the other ranks.
                if not self._trouble:
                    self.blamed.add(number)
                    self._trouble = f"{state.describe(number)}: {text}"
            case Asked():
                state.was_asked = True
            case Lost():
                self._lose(number, state)

    def _place(self, result: Result) -> Result:
        """Add the launch and its hosts to a result. A benchmark that measures some of the hosts names them itself."""
        job = self.planned.job
        if not job.hosts:
            return msgspec.structs.replace(result, launch=job.round, hosts=1)
        hosts = str(result.settings.get("hosts", ",".join(job.hosts)))
        added = {"hosts": hosts, "reached_by": job.machine.reached_by, "started_by": self.launcher.name}
        settings = {**result.settings, **added}
        return msgspec.structs.replace(result, launch=job.round, hosts=hosts.count(",") + 1, settings=settings)

    def _meet(self, number: int) -> None:
        """Record that a rank waits for the others. The last one releases all."""
        self._waiting.add(number)
        if len(self._waiting) == self.planned.job.ranks:
            self._waiting.clear()
            self._release()

    def _lose(self, number: int | None, state: RankState) -> None:
        """Record a socket that closed without `Bye`: its rank crashed, was killed, or was ended by the launcher."""
        state.is_lost = True
        if not self._trouble:
            self._first_lost, self.crashed = number, True
            self._trouble = f"{_describe_rank(number, state)} ended without a message"
            self._trouble += f", and the run was interrupted before {self.launcher.name} ended"

    def _explain_loss(self, listener: Listener, child: Child) -> Iterator[Result]:
        """Find out which rank ended first and why, from the launcher's status and the last messages of all ranks."""
        finished = child.wait(_LEAVING_S)
        until = time.monotonic() + _LEAVING_S
        while not all(state.has_ended() for state in self._ranks.values()) and time.monotonic() < until:
            yield from self._drain(listener, _TICK_S)
        yield from self._drain(listener)
        if finished.returncode < 0 and not finished.timed_out and self.planned.job.ranks > 1:
            self._trouble = self._describe_early_end(child)  # the launcher was killed, and its ranks died with it
            return
        first = self._first_lost
        told = self._find_told(finished)  # also a rank that died before it sent its number
        silent = self._placement.find_silent(self._ranks)
        lost = {first} if first is not None else set()
        self.blamed = told or silent or self._find_in_last(finished) or lost
        blamed = first if first in self.blamed else min(self.blamed, default=None)
        state = self._ranks.get(blamed, RankState()) if blamed is not None else RankState()
        ending = "received SIGTERM" if state.was_asked else "ended without a message"
        self._trouble = f"{_describe_rank(blamed, state)} {ending}; {self.launcher.name}: {self._summarize(finished)}"

    def _describe_early_end(self, child: Child) -> str:
        finished = child.wait(_LEAVING_S)
        missing = set(range(self.planned.job.ranks)) - self._ranks.keys()
        unfinished = [state.describe(n) for n, state in sorted(self._ranks.items()) if not state.said_bye]
        before = "; ".join(unfinished) or "any rank had started"
        why = self._probe_hosts() if finished.returncode >= 0 else ""  # if mpirun was killed, that is the cause
        named = self._placement.find_named(why) or self._find_told(finished) or self._find_in_last(finished)
        gone = self._placement.find_ranks(self.launcher.runs_on) if finished.returncode < 0 else set()
        self.blamed |= gone or named or missing or self._find_late()
        return f"{self.launcher.name} ended ({self._summarize(finished)}) before {before}{why}"

    def _find_told(self, finished: ChildResult) -> set[int]:
        """Return the ranks that ended first by the launcher's messages."""
        return self._placement.find_first_ended(finished.output, are_tasks_ranks=self.launcher.starts_ranks_as_tasks)

    def _find_in_last(self, finished: ChildResult) -> set[int]:
        """Return the ranks of the host in the last line. The last line of srun is of a task that it ended itself."""
        if self.launcher.starts_ranks_as_tasks:
            return set()
        return self._placement.find_named("".join(finished.output[-1:]))

    def _summarize(self, finished: ChildResult) -> str:
        return summarize_end(finished, observe(self._memory_kills))

    def _all_done(self) -> bool:
        return len(self._ranks) == self.planned.job.ranks and all(state.said_bye for state in self._ranks.values())


def _describe_rank(number: int | None, state: RankState) -> str:
    return state.describe(number) if number is not None else "a rank that had not sent its number"

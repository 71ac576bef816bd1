"""A Slurm job that runs this command on its nodes: cost, submission, and end.

`sbatch` starts the job independently: it continues if our process is killed, and writes its results itself.
"""

from __future__ import annotations

import contextlib
import re
import shlex
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from railwright.errors import CannotJudge, RailwrightError, UsageError
from railwright.launch.followed import FollowedFile
from railwright.launch.slurm.allocation import ask_slurm, read_job_fields
from railwright.process import hold_signals
from railwright.units import format_count, format_duration

SUBMITTED = "RAILWRIGHT_SUBMITTED"
"""Set in the environment of a job that we submitted, so that its command line is run instead of submitted again."""
_MIN_LIMIT_S, _PLAN_FACTOR = 600.0, 3.0
_POLL_S = (0.2, 5.0)
_GONE_WITHIN_S = 60.0
"""The time that a cancelled job has to end. Slurm kills its processes after KillWait, 30 s by default."""
_LIMIT = re.compile(r"(?:(\d{1,4})-)?(\d{1,6})(?::(\d{1,2}))?(?::(\d{1,2}))?")
_GPUS = re.compile(r"gpu(?::[^:,()]+)?:(\d+)")
_WORD = re.compile(r"[A-Za-z0-9_.,+-]{1,200}")
_RESERVED_OPTIONS = (
    "--parsable",
    "--wrap",
    "--output",
    "--error",
    "--array",
    "--nodes",
    "--time",
    "--no-requeue",
    "--requeue",
    "--help",
)
_UNUSABLE_STATES = ("down", "drain", "fail", "maint", "unk", "power", "reboot", "no_respond")
_HOPELESS_REASONS = (
    *("PartitionNodeLimit", "PartitionTimeLimit", "PartitionDown", "PartitionInactive", "BadConstraints"),
    *("AccountNotAllowed", "QOSNotAllowed", "InvalidAccount", "InvalidQOS", "JobHeldAdmin", "JobHeldUser"),
    *("AssociationJobLimit", "AssociationTimeLimit", "QOSTimeLimit", "QOSJobLimit"),
)
"""Pending reasons that do not resolve without a change by a user or an administrator."""
_ENDINGS = {
    "TIMEOUT": "ended at its time limit of {limit}",
    "CANCELLED": "was cancelled",
    "NODE_FAIL": "ended because one of its nodes failed",
    "OUT_OF_MEMORY": "ended because it ran out of memory",
    "PREEMPTED": "was preempted by a job of higher priority",
    "BOOT_FAIL": "ended because one of its nodes did not boot",
    "DEADLINE": "ended at its deadline",
}
_HINTS = {
    "TIMEOUT": "raise --time",
    "NODE_FAIL": "find the failed node: sinfo --list-reasons",
    "OUT_OF_MEMORY": "choose smaller sizes, or give --sbatch=--mem=0",
}
_LIVE_STATES = ("PENDING", "CONFIGURING", "RUNNING", "COMPLETING", "SUSPENDED", "STOPPED", "REQUEUED", "SIGNALING",
          "STAGE_OUT", "RESIZING")  # fmt: skip


@dataclass(frozen=True)
class SlurmRequest:
    """The requested job. Raises UsageError for values that sbatch could misread."""

    nodes: int
    ranks_per_node: int = 1
    partition: str = ""
    account: str = ""
    limit_s: float | None = None
    gpus_per_node: int = 0
    more: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for name, value in (("--partition", self.partition), ("--account", self.account)):
            if value and (not _WORD.fullmatch(value) or value.startswith("-")):
                raise UsageError(f"{name} must be a name, got {value[:60]!r}", hint="see: sinfo, sacctmgr show assoc")
        for word in self.more:
            if not word.startswith("--") or not word.isprintable():
                raise UsageError(
                    f"--sbatch must be an option of sbatch, got {word[:60]!r}", hint="write --sbatch=--qos=high"
                )
            if word.partition("=")[0] in _RESERVED_OPTIONS:
                raise UsageError(f"{word[:60]} is reserved: railwright sets it", hint="leave it out")

    def choose_limit(self, plan_s: float) -> float:
        """Return the time limit in seconds, rounded up to whole minutes.

        It is the requested limit, or else three times the plan but at least 10 min.
        """
        wished = self.limit_s if self.limit_s is not None else max(_MIN_LIMIT_S, _PLAN_FACTOR * plan_s)
        return max(1, -(-wished // 60)) * 60.0

    def sbatch_command(self, limit_s: float, folder: Path) -> list[str]:
        """Return the sbatch command line. The job is exclusive, because other jobs on its nodes would disturb it."""
        found = ["sbatch", "--parsable", "--job-name=railwright", "--no-requeue", "--exclusive"]
        found += [f"--output={folder / 'slurm-%j.out'}", f"--error={folder / 'slurm-%j.log'}"]
        found += [f"--nodes={self.nodes}", f"--ntasks-per-node={self.ranks_per_node}", f"--time={limit_s / 60:.0f}"]
        found += [f"--partition={self.partition}"] if self.partition else []
        found += [f"--account={self.account}"] if self.account else []
        found += [f"--gpus-per-node={self.gpus_per_node}"] if self.gpus_per_node else []
        return found + list(self.more)


def parse_limit(text: str) -> float:
    """Parse Slurm's MIN, MIN:SS, H:MM:SS, D-H, D-H:MM and D-H:MM:SS as seconds.

    Raises UsageError for other text and for 0.
    """
    found = _LIMIT.fullmatch(text.strip())
    if found is None:
        raise UsageError(
            f"--time must be a time limit, got {text[:60]!r}", hint="write minutes or H:MM:SS, like --time 30"
        )
    days, first, second, third = (int(part or 0) for part in found.groups())
    in_hours = found[1] is not None or found[4] is not None
    seconds = days * 86400 + (first * 3600 + second * 60 + third if in_hours else first * 60 + second)
    if seconds <= 0:
        raise UsageError(f"--time must be above 0, got {text[:60]!r}", hint="write minutes, like --time 30")
    return float(seconds)


class NodeGroup(NamedTuple):
    """A group of nodes with the same state and resources, from `sinfo`."""

    size: int
    state: str
    gpus: int
    names: str
    reason: str

    @property
    def is_usable(self) -> bool:
        """Whether a job can get the nodes, now or later."""
        return not self.state.rstrip("*$~#@!%^-").startswith(_UNUSABLE_STATES) and not self.state.endswith("*")


def parse_groups(lines: Iterable[str], partition: str) -> list[NodeGroup]:
    """Parse a partition's node groups from the sinfo lines of `find_groups`. An empty name is the default partition."""
    found = []
    for line in lines:
        size, name, state, gres, names, reason = (line.strip().split("|", 5) + [""] * 6)[:6]
        wanted = name.rstrip("*") == partition if partition else name.endswith("*")
        if size.isdecimal() and wanted:
            gpus = sum(int(number) for number in _GPUS.findall(gres))
            found.append(NodeGroup(int(size), state, gpus, names, "" if reason == "none" else reason))
    return found


def find_groups(wanted: SlurmRequest) -> list[NodeGroup]:
    """List the node groups of the requested partition.

    Raises CannotJudge if it has too few usable nodes, and UsageError if it does not exist.
    """
    lines = ask_slurm("sinfo", "--noheader", "--format=%D|%P|%T|%G|%N|%E").output
    groups = parse_groups(lines, wanted.partition)
    if not groups:
        known = sorted({line.split("|")[1].rstrip("*") for line in lines if line.count("|") >= 5})
        reason = f"there is no partition {wanted.partition!r}" if wanted.partition else "there is no default partition"
        raise UsageError(reason, hint=f"give --partition with one of: {', '.join(known)[:200] or 'none'}")
    usable = sum(group.size for group in groups if group.is_usable)
    if usable < wanted.nodes:
        lost = [f"{group.names} {group.state}" + f" ({group.reason[:80]})" * bool(group.reason)
                for group in groups if not group.is_usable]  # fmt: skip
        place = f"partition {wanted.partition}" if wanted.partition else "the default partition"
        why = "; ".join(lost)[:400] or "it has no more nodes"
        reason = f"--nodes must be at most {usable}, the usable nodes of {place}, got {wanted.nodes}: {why}"
        raise CannotJudge(reason, hint="give fewer --nodes, or another --partition")
    return groups


def describe_cost(wanted: SlurmRequest, groups: Sequence[NodeGroup], limit_s: float, plan_s: float) -> str:
    """Describe the job's nodes, time limit and GPU hours. The job is exclusive, so all GPUs of its nodes count."""
    usable = [group for group in groups if group.is_usable]
    gpus = wanted.gpus_per_node or max((group.gpus for group in usable), default=0)
    hours = wanted.nodes * limit_s / 3600
    where = f"partition {wanted.partition}" if wanted.partition else "the default partition"
    words = f"Slurm: {format_count(wanted.nodes, 'node')} of {where} for at most {format_duration(limit_s)}: "
    if not gpus:
        return words + f"{hours:.2g} node hours, no GPU hours"
    by_plan = wanted.nodes * gpus * plan_s / 3600
    words += f"at most {hours * gpus:.2g} GPU hours ({wanted.nodes} x {gpus} GPUs), {by_plan:.2g} by the plan"
    return words if wanted.gpus_per_node else words + f"; it can use them only with --gpus-per-node {gpus}"


@dataclass
class SlurmJob:
    """A submitted job."""

    number: str
    log: Path
    limit_s: float
    tell: Callable[[str], None]
    state: str = ""
    _last_report: str = field(default="", init=False)

    def follow(self) -> None:
        """Report state changes and forward the log until the job ends. `state` is then its final state.

        A job that would never start is cancelled, and CannotJudge is raised.
        """
        log = FollowedFile(self.log)
        pause_s = _POLL_S[0]
        while True:
            found = self._read_state()
            with contextlib.suppress(OSError):
                for line in log.lines():
                    self.tell(line.decode("utf-8", "replace"))
            if self.state not in _LIVE_STATES:
                return
            self._report_change(found)
            time.sleep(pause_s)
            pause_s = min(1.5 * pause_s, _POLL_S[1])

    def cancel(self) -> None:
        """Cancel the job and wait until its processes have ended, for at most 60 s. Signals wait as long."""
        trouble, is_asked, until = "", False, time.monotonic() + _GONE_WITHIN_S
        with hold_signals():
            while time.monotonic() < until:
                try:
                    self._read_state()
                    if self.state not in _LIVE_STATES:
                        return
                    trouble = f"it is still {self.state.lower()}"
                    if not is_asked:  # a second SIGTERM would cut its orderly end short
                        ask_slurm("scancel", self.number)
                        is_asked = True
                except CannotJudge as error:
                    trouble = error.message
                time.sleep(_POLL_S[0])
            self.tell(f"job {self.number} has not ended: {trouble}; to end it, run: scancel {self.number}")

    def _read_state(self) -> dict[str, str]:
        """Read the fields of `scontrol show job`, and update `state`. Empty for a job that Slurm has purged."""
        try:
            found = read_job_fields(self.number)
        except CannotJudge as error:
            if "Invalid job id" not in error.message:
                raise
            self.state = self.state if self.state not in _LIVE_STATES else ""
            return {}
        self.state = found.get("JobState", "").split(" ")[0].rstrip("+")
        return found

    def _report_change(self, found: dict[str, str]) -> None:
        reason = found.get("Reason", "None").split(" ")[0]
        words = f"job {self.number}: {self.state.lower()}"
        if self.state == "PENDING":
            words += f" ({reason})" * (reason != "None")
        elif found.get("NodeList", "(null)") != "(null)":
            words += f" on {found['NodeList'][:200]}"
        if words != self._last_report:
            self.tell(words)
            self._last_report = words
        if self.state == "PENDING" and reason.startswith(_HOPELESS_REASONS):
            with contextlib.suppress(RailwrightError):
                ask_slurm("scancel", self.number)
            hint = "see the limits: scontrol show partition, sacctmgr show assoc, sacctmgr show qos"
            raise CannotJudge(f"job {self.number} would never start ({reason}) and was cancelled", hint=hint)

    def explain_end(self) -> CannotJudge | None:
        """Return the error for a job that was cut short. None if its command ran to completion, with any status."""
        ending = _ENDINGS.get(self.state)
        if ending is None:
            return None
        words = f"job {self.number} {ending.format(limit=format_duration(self.limit_s))}"
        return CannotJudge(words, hint=_HINTS.get(self.state, f"see its log: {self.log}"))


def submit(
    wanted: SlurmRequest, command: Sequence[str], folder: Path, limit_s: float, tell: Callable[[str], None]
) -> SlurmJob:
    """Submit a job that runs a command. A signal that arrives meanwhile cancels it.

    Raises as `ask_slurm`, and CannotJudge if sbatch does not print a job id.
    """
    script = f"#!/bin/sh\n{SUBMITTED}=1 exec {shlex.join(command)}\n"
    job: SlurmJob | None = None
    try:
        with hold_signals():
            output = ask_slurm(*wanted.sbatch_command(limit_s, folder), given=script.encode()).output
            number = next((line.strip().partition(";")[0] for line in reversed(output) if line.strip()), "")
            if not number.isdecimal():
                raise CannotJudge(f"sbatch must print a job id, got {number[:80]!r}")
            job = SlurmJob(number, folder / f"slurm-{number}.log", limit_s, tell)
    except KeyboardInterrupt:
        if job is not None:
            job.cancel()
        raise
    return job

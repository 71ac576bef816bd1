"""A Slurm job that runs this command on its nodes: what it costs, how it is submitted, and how it ends.

`sbatch` starts it without us: it goes on when the login shell is gone, and what it measures is in its own files.
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
from railwright.units import count, format_duration

SUBMITTED = "RAILWRIGHT_SUBMITTED"
"""In the environment of a job that we submitted: it is inside, whatever its words say of the job."""
_LEAST_LIMIT_S, _TIMES_PLAN = 600.0, 3.0
_POLL_S = (0.2, 5.0)
_LIMIT = re.compile(r"(?:(\d{1,4})-)?(\d{1,6})(?::(\d{1,2}))?(?::(\d{1,2}))?")
_GPUS = re.compile(r"gpu(?::[^:,()]+)?:(\d+)")
_WORD = re.compile(r"[A-Za-z0-9_.,+-]{1,200}")
_OURS = (
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
_UNUSABLE = ("down", "drain", "fail", "maint", "unk", "power", "reboot", "no_respond")
_HOPELESS = (
    *("PartitionNodeLimit", "PartitionTimeLimit", "PartitionDown", "PartitionInactive", "BadConstraints"),
    *("AccountNotAllowed", "QOSNotAllowed", "InvalidAccount", "InvalidQOS", "JobHeldAdmin", "JobHeldUser"),
    *("AssociationJobLimit", "AssociationTimeLimit", "QOSTimeLimit", "QOSJobLimit"),
)
"""Reasons for which a job waits until somebody changes something."""
_ENDINGS = {
    "TIMEOUT": "ended at its time limit of {limit}",
    "CANCELLED": "was cancelled",
    "NODE_FAIL": "ended because a node of it failed",
    "OUT_OF_MEMORY": "ended because its memory was used up",
    "PREEMPTED": "gave its nodes to a job of a higher priority",
    "BOOT_FAIL": "ended because a node of it did not boot",
    "DEADLINE": "ended at its deadline",
}
_NEXT = {
    "TIMEOUT": "give it more: --time",
    "NODE_FAIL": "see which is down: sinfo --list-reasons",
    "OUT_OF_MEMORY": "choose smaller sizes, or --sbatch=--mem=0",
}
_LIVES = ("PENDING", "CONFIGURING", "RUNNING", "COMPLETING", "SUSPENDED", "STOPPED", "REQUEUED", "SIGNALING",
          "STAGE_OUT", "RESIZING")  # fmt: skip


@dataclass(frozen=True)
class SlurmRequest:
    """The job that was asked for. Raises UsageError for words that sbatch could misread."""

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
                raise UsageError(f"{name} is not a name: {value[:60]!r}", hint="see: sinfo, sacctmgr show assoc")
        for word in self.more:
            if not word.startswith("--") or not word.isprintable():
                raise UsageError(f"not an option of sbatch: {word[:60]!r}", hint="write --sbatch=--qos=high")
            if word.partition("=")[0] in _OURS:
                raise UsageError(f"{word[:60]} is set by railwright itself", hint="leave it out")

    def limited(self, plan_s: float) -> float:
        """The time limit in seconds, of whole minutes, for a plan of that length."""
        wished = self.limit_s if self.limit_s is not None else max(_LEAST_LIMIT_S, _TIMES_PLAN * plan_s)
        return max(1, -(-wished // 60)) * 60.0

    def words(self, limit_s: float, folder: Path) -> list[str]:
        """The words of sbatch. Other jobs on its nodes would disturb what is measured."""
        found = ["sbatch", "--parsable", "--job-name=railwright", "--no-requeue", "--exclusive"]
        found += [f"--output={folder / 'slurm-%j.out'}", f"--error={folder / 'slurm-%j.log'}"]
        found += [f"--nodes={self.nodes}", f"--ntasks-per-node={self.ranks_per_node}", f"--time={limit_s / 60:.0f}"]
        found += [f"--partition={self.partition}"] if self.partition else []
        found += [f"--account={self.account}"] if self.account else []
        found += [f"--gpus-per-node={self.gpus_per_node}"] if self.gpus_per_node else []
        return found + list(self.more)


def parse_limit(text: str) -> float:
    """Slurm's MIN, MIN:SS, H:MM:SS, D-H, D-H:MM and D-H:MM:SS in seconds. Raises UsageError."""
    found = _LIMIT.fullmatch(text.strip())
    if found is None:
        raise UsageError(f"not a time limit: {text[:60]!r}", hint="write minutes, or H:MM:SS: --time 30")
    days, first, second, third = (int(part or 0) for part in found.groups())
    in_hours = found[1] is not None or found[4] is not None
    seconds = days * 86400 + (first * 3600 + second * 60 + third if in_hours else first * 60 + second)
    if seconds <= 0:
        raise UsageError(f"a time limit of nothing: {text[:60]!r}", hint="write minutes: --time 30")
    return float(seconds)


class NodeGroup(NamedTuple):
    """Nodes that are alike, by `sinfo`."""

    size: int
    state: str
    gpus: int
    names: str
    reason: str

    @property
    def is_usable(self) -> bool:
        """Whether a job may get them, now or later."""
        return not self.state.rstrip("*$~#@!%^-").startswith(_UNUSABLE) and not self.state.endswith("*")


def parse_groups(lines: Iterable[str], partition: str) -> list[NodeGroup]:
    """The groups of nodes of a partition, or of the default one where it is empty; from lines of `find_groups`'s format."""
    found = []
    for line in lines:
        size, name, state, gres, names, reason = (line.strip().split("|", 5) + [""] * 6)[:6]
        wanted = name.rstrip("*") == partition if partition else name.endswith("*")
        if size.isdecimal() and wanted:
            gpus = sum(int(number) for number in _GPUS.findall(gres))
            found.append(NodeGroup(int(size), state, gpus, names, "" if reason == "none" else reason))
    return found


def find_groups(wanted: SlurmRequest) -> list[NodeGroup]:
    """The nodes that the job may be given. Raises CannotJudge where there are too few, UsageError without such."""
    lines = ask_slurm("sinfo", "--noheader", "--format=%D|%P|%T|%G|%N|%E").output
    groups = parse_groups(lines, wanted.partition)
    if not groups:
        known = sorted({line.split("|")[1].rstrip("*") for line in lines if line.count("|") >= 5})
        what = f"there is no partition {wanted.partition!r}" if wanted.partition else "there is no default partition"
        raise UsageError(what, hint=f"give --partition one of {', '.join(known)[:200] or 'none'}")
    usable = sum(group.size for group in groups if group.is_usable)
    if usable < wanted.nodes:
        lost = [f"{group.names} {group.state}" + f" ({group.reason[:80]})" * bool(group.reason)
                for group in groups if not group.is_usable]  # fmt: skip
        of = f"partition {wanted.partition}" if wanted.partition else "the default partition"
        why = "; ".join(lost)[:400] or "it is no larger"
        reason = f"{of} has {count(usable, 'node')} to give, {wanted.nodes} were asked for: {why}"
        raise CannotJudge(reason, hint="give fewer --nodes, or another --partition")
    return groups


def describe_cost(wanted: SlurmRequest, groups: Sequence[NodeGroup], limit_s: float, plan_s: float) -> str:
    """What the job takes from others: its nodes are its alone, so that each of their GPUs counts."""
    usable = [group for group in groups if group.is_usable]
    gpus = wanted.gpus_per_node or max((group.gpus for group in usable), default=0)
    hours = wanted.nodes * limit_s / 3600
    where = f"partition {wanted.partition}" if wanted.partition else "the default partition"
    said = f"Slurm: {count(wanted.nodes, 'node')} of {where} for at most {format_duration(limit_s)}: "
    if not gpus:
        return said + f"{hours:.2g} node hours, no GPU hours"
    by_plan = wanted.nodes * gpus * plan_s / 3600
    said += f"at most {hours * gpus:.2g} GPU hours ({wanted.nodes} x {gpus} GPUs), {by_plan:.2g} by the plan"
    return said if wanted.gpus_per_node else said + f"; it gets to use none of them without --gpus-per-node {gpus}"


@dataclass
class SlurmJob:
    """A submitted job."""

    number: str
    log: Path
    limit_s: float
    tell: Callable[[str], None]
    state: str = ""
    _said: str = field(default="", init=False)

    def follow(self) -> None:
        """Tell what becomes of it and pass its log on, until it has ended; then `state` says how.

        Raises CannotJudge for a job that would wait for ever, and cancels it.
        """
        log = FollowedFile(self.log)
        pause_s = _POLL_S[0]
        while True:
            found = self._look()
            with contextlib.suppress(OSError):
                for line in log.lines():
                    self.tell(line.decode("utf-8", "replace"))
            if self.state not in _LIVES:
                return
            self._tell_change(found)
            time.sleep(pause_s)
            pause_s = min(1.5 * pause_s, _POLL_S[1])

    def _look(self) -> dict[str, str]:
        """The fields of `scontrol show job`; none of a job that Slurm has forgotten, which has ended then."""
        try:
            found = read_job_fields(self.number)
        except CannotJudge as error:
            if "Invalid job id" not in error.message:
                raise
            self.state = self.state if self.state not in _LIVES else ""
            return {}
        self.state = found.get("JobState", "").split(" ")[0].rstrip("+")
        return found

    def _tell_change(self, found: dict[str, str]) -> None:
        reason = found.get("Reason", "None").split(" ")[0]
        words = f"job {self.number}: {self.state.lower()}"
        if self.state == "PENDING":
            words += f" ({reason})" * (reason != "None")
        elif found.get("NodeList", "(null)") != "(null)":
            words += f" on {found['NodeList'][:200]}"
        if words != self._said:
            self.tell(words)
            self._said = words
        if self.state == "PENDING" and reason.startswith(_HOPELESS):
            with contextlib.suppress(RailwrightError):
                ask_slurm("scancel", self.number)
            hint = "see the limits: scontrol show partition, sacctmgr show assoc, sacctmgr show qos"
            raise CannotJudge(f"job {self.number} would wait for ever ({reason}), and was cancelled", hint=hint)

    def explain_end(self) -> CannotJudge | None:
        """Why it did not reach its end, None where it did, whatever its exit status says of the results."""
        said = _ENDINGS.get(self.state)
        if said is None:
            return None
        words = f"job {self.number} {said.format(limit=format_duration(self.limit_s))}"
        return CannotJudge(words, hint=_NEXT.get(self.state, f"its own words are in {self.log}"))


def submit(
    wanted: SlurmRequest, command: Sequence[str], folder: Path, limit_s: float, tell: Callable[[str], None]
) -> SlurmJob:
    """Submit the job that runs a command. Raises CannotJudge with sbatch's own words."""
    script = f"#!/bin/sh\n{SUBMITTED}=1 exec {shlex.join(command)}\n"
    output = ask_slurm(*wanted.words(limit_s, folder), given=script.encode()).output
    number = next((line.strip().partition(";")[0] for line in reversed(output) if line.strip()), "")
    if not number.isdecimal():
        raise CannotJudge(f"sbatch says no job's number: {number[:80]!r}")
    return SlurmJob(number, folder / f"slurm-{number}.log", limit_s, tell)

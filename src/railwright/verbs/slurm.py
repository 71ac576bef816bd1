"""`--slurm`: on the nodes of the job that we are in, or by a job that is submitted, followed and judged here."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from railwright.errors import CannotJudge, UsageError
from railwright.launch.hosts import NoReach, PlannedHosts
from railwright.launch.slurm.allocation import is_inside
from railwright.launch.slurm.job import SUBMITTED, SlurmJob, Wanted, cost_words, look, parse_limit, submit
from railwright.results.store import RESULTS_NAME, load
from railwright.verbs.judged import note, report
from railwright.verbs.requirements import the_requirements

NAMES = ("slurm", "nodes", "partition", "account", "limit", "gpus_per_node", "more", "start_by", "no_wait")
"""The parameters of `cli.slurm_option` and `cli.job_option`."""
_SHARED = ("--nodes", "--time", "--gpus-per-node")
"""What a job of Kubernetes has as well."""


@dataclass(frozen=True)
class Slurm:
    """What the options of `cli.slurm_option` say."""

    nodes: int | None
    partition: str | None
    account: str | None
    limit: str | None
    gpus_per_node: int | None
    more: tuple[str, ...]
    start_by: str
    no_wait: bool

    @property
    def starts(self) -> str | None:
        """What starts ranks in the job that we are in; None where one is to be submitted. Raises UsageError."""
        if not is_inside(os.environ):
            return None
        given = self._of_job()
        if given and SUBMITTED not in os.environ:
            number = os.environ["SLURM_JOB_ID"]
            hint = "leave it out; --hosts chooses some of its nodes"
            raise UsageError(f"{given} is for a job that is to be submitted, and this is job {number}", hint=hint)
        return self.start_by

    def _of_job(self) -> str:
        asked = {"--nodes": self.nodes, "--partition": self.partition, "--account": self.account, "--time": self.limit,
                 "--gpus-per-node": self.gpus_per_node, "--sbatch": self.more, "--no-wait": self.no_wait}  # fmt: skip
        return next((name for name, value in asked.items() if value), "")

    def to_come(self, hosts: str | None, ranks_per_host: int | None) -> PlannedHosts:
        """The nodes of the job that is to be submitted, under names for the plan. Raises UsageError."""
        if hosts is not None:
            hint = "--sbatch=--nodelist=NODE,NODE asks for some"
            raise UsageError("--hosts names nodes of a job that one is inside of", hint=hint)
        if self.nodes is None:
            raise UsageError("no job surrounds us, and how many nodes a new one needs is not said", hint="--nodes 4")
        names = tuple(f"node{number}" for number in range(self.nodes))
        return PlannedHosts(names, ranks_per_host or 1, NoReach("slurm"))

    def job(self, ranks_per_node: int) -> Wanted:
        """The job to submit. Raises UsageError."""
        assert self.nodes is not None
        limit_s = parse_limit(self.limit) if self.limit is not None else None
        return Wanted(self.nodes, ranks_per_node, self.partition or "", self.account or "", limit_s,
                      self.gpus_per_node or 0, self.more)  # fmt: skip


def taken_from(asked: dict[str, Any]) -> Slurm | None:
    """The options of Slurm, taken out of all that were given; None without --slurm. Raises UsageError."""
    given = {name: asked.pop(name) for name in NAMES}
    is_wanted = given.pop("slurm")
    found = Slurm(**given)
    if is_wanted:
        return found
    lone = found._of_job() or ("--start-by" if found.start_by != "auto" else "")
    if lone:
        ways = "--slurm or --kubernetes" if lone in _SHARED else "--slurm"
        raise UsageError(f"{lone} says nothing without {ways}", hint=f"write {ways} as well")
    return None


def submitting(slurm: Slurm, hosts: PlannedHosts, asked: dict[str, Any]) -> Callable[[float], int]:
    """What is done with a plan of some seconds instead of measuring it here."""
    wanted = slurm.job(hosts.ranks_per_host)
    required = the_requirements(asked["require"])
    folder = Path(asked["output"]).absolute()

    def submit_it(plan_s: float) -> int:
        limit_s = wanted.limited(plan_s)
        note(f"  {cost_words(wanted, look(wanted), limit_s, plan_s)}")
        if asked["dry_run"]:
            return 0
        folder.mkdir(parents=True, exist_ok=True)
        before = _stamp(folder)
        job = submit(wanted, _command(), folder, limit_s, note)
        note(f"job {job.number} is submitted; it goes on without this shell, and writes to {folder}")
        if slurm.no_wait:
            return 0
        _follow(job, folder)
        ending = job.ending()
        if _stamp(folder) == before:
            said = "it wrote no results; its own words are in" if ending is None else "before any result:"
            raise ending or CannotJudge(f"job {job.number} ended, and {said} {job.log}", hint=f"cat {job.log}")
        status = report(load(folder / RESULTS_NAME), folder, as_json=asked["as_json"], required=required,
                        verbose=asked["verbose"])  # fmt: skip
        if ending is not None:
            raise ending
        return status

    return submit_it


def _follow(job: SlurmJob, folder: Path) -> None:
    try:
        job.follow()
    except KeyboardInterrupt:
        hint = f"railwright judge {folder / RESULTS_NAME} shows what it measures; scancel {job.number} ends it"
        raise CannotJudge(f"job {job.number} is left to itself", hint=hint) from None


def _command() -> list[str]:
    """These very words, for the job."""
    program = Path(sys.argv[0])
    started = [str(program.absolute())] if program.name == "railwright" and program.exists() else []
    return [*(started or [sys.executable, "-P", "-m", "railwright"]), *sys.argv[1:]]


def _stamp(folder: Path) -> tuple[int, int]:
    """What changes when a run writes its results anew; zeros where there are none."""
    try:
        found = (folder / RESULTS_NAME).stat()
    except OSError:
        return 0, 0
    return found.st_ino, found.st_mtime_ns

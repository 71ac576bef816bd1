"""`--slurm`: on the nodes of the job that we are in, or by a job that is submitted, followed and judged here."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path

from railwright.errors import CannotJudge, UsageError
from railwright.launch.hosts import NoReach, PlannedHosts
from railwright.launch.slurm.allocation import is_inside_job
from railwright.launch.slurm.job import (
    SUBMITTED,
    SlurmJob,
    SlurmRequest,
    describe_cost,
    find_groups,
    parse_limit,
    submit,
)
from railwright.options.arguments import Arguments
from railwright.results.store import RESULTS_NAME, load
from railwright.runs.judged import note, report
from railwright.runs.requirements import load_requirements

NAMES = ("slurm", "nodes", "partition", "account", "limit", "gpus_per_node", "more", "start_by", "no_wait")
"""The parameters of `slurm_options` and `job_options`."""
_SHARED = ("--nodes", "--time", "--gpus-per-node")
"""What a job of Kubernetes has as well."""


def choose_starter(arguments: Arguments) -> str | None:
    """What starts ranks in the job that we are in; None where one is to be submitted. Raises UsageError."""
    if not is_inside_job(os.environ):
        return None
    given = _of_job(arguments)
    if given and SUBMITTED not in os.environ:
        number = os.environ["SLURM_JOB_ID"]
        hint = "leave it out; --hosts chooses some of its nodes"
        raise UsageError(f"{given[0]} is for a job that is to be submitted, and this is job {number}", hint=hint)
    return str(arguments.start_by)


def refuse_without_slurm(arguments: Arguments) -> None:
    """Raises UsageError for an option of a job of Slurm, where none is wanted."""
    given = [*_of_job(arguments), *["--start-by"] * (arguments.start_by != "auto")]
    lone = next((name for name in given if not (arguments.kubernetes and name in _SHARED)), "")
    if lone:
        ways = "--slurm or --kubernetes" if lone in _SHARED else "--slurm"
        raise UsageError(f"{lone} says nothing without {ways}", hint=f"write {ways} as well")


def _of_job(arguments: Arguments) -> list[str]:
    given = {"--nodes": arguments.nodes, "--partition": arguments.partition, "--account": arguments.account, "--time": arguments.limit,
             "--gpus-per-node": arguments.gpus_per_node, "--sbatch": arguments.more, "--no-wait": arguments.no_wait}  # fmt: skip
    return [name for name, value in given.items() if value]


def plan_hosts(arguments: Arguments) -> PlannedHosts:
    """The nodes of the job that is to be submitted, under names for the plan. Raises UsageError."""
    if arguments.hosts is not None:
        hint = "--sbatch=--nodelist=NODE,NODE asks for some"
        raise UsageError("--hosts names nodes of a job that one is inside of", hint=hint)
    if arguments.nodes is None:
        raise UsageError("no job surrounds us, and how many nodes a new one needs is not said", hint="--nodes 4")
    names = tuple(f"node{number}" for number in range(arguments.nodes))
    return PlannedHosts(names, arguments.ranks_per_host or 1, NoReach("slurm"))


def make_submitter(hosts: PlannedHosts, arguments: Arguments) -> Callable[[float], int]:
    """What is done with a plan of some seconds instead of measuring it here. Raises UsageError."""
    wanted = SlurmRequest(arguments.nodes, hosts.ranks_per_host, arguments.partition or "", arguments.account or "",
                    parse_limit(arguments.limit) if arguments.limit is not None else None, arguments.gpus_per_node or 0,
                    arguments.more)  # fmt: skip
    required = load_requirements(arguments.require)
    folder = Path(arguments.output).absolute()

    def submit_it(plan_s: float) -> int:
        limit_s = wanted.limited(plan_s)
        note(f"  {describe_cost(wanted, find_groups(wanted), limit_s, plan_s)}")
        if arguments.dry_run:
            return 0
        folder.mkdir(parents=True, exist_ok=True)
        before = _stamp(folder)
        job = submit(wanted, _command(), folder, limit_s, note)
        note(f"job {job.number} is submitted; it goes on without this shell, and writes to {folder}")
        if arguments.no_wait:
            return 0
        _follow(job, folder)
        ending = job.explain_end()
        if _stamp(folder) == before:
            said = "it wrote no results; its own words are in" if ending is None else "before any result:"
            raise ending or CannotJudge(f"job {job.number} ended, and {said} {job.log}", hint=f"cat {job.log}")
        status = report(
            load(folder / RESULTS_NAME), folder, as_json=arguments.as_json, required=required, verbose=arguments.verbose
        )
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

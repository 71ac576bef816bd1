"""`--slurm`: a run on the nodes of the surrounding job, or in a new job that is submitted, followed and judged."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable
from pathlib import Path

from railwright.errors import CannotJudge, UsageError
from railwright.installation import PYTHON
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
from railwright.workflows.judged import note, report
from railwright.workflows.requirements import load_requirements

NAMES = ("slurm", "nodes", "partition", "account", "limit", "gpus_per_node", "more", "start_by", "no_wait")
"""The parameters of `slurm_options` and `job_options`."""
_SHARED_OPTIONS = ("--nodes", "--time", "--gpus-per-node")
"""Options that a Kubernetes job has as well."""


def choose_starter(arguments: Arguments) -> str | None:
    """Choose the launcher in the surrounding job. None if a job must be submitted.

    Raises UsageError for options that apply only to a new job.
    """
    if not is_inside_job(os.environ):
        return None
    given = _given_job_options(arguments)
    if given and SUBMITTED not in os.environ:
        number = os.environ["SLURM_JOB_ID"]
        hint = "leave it out; use --hosts to choose some of its nodes"
        raise UsageError(f"{given[0]} applies only to a new job, but this is job {number}", hint=hint)
    return str(arguments.start_by)


def refuse_without_slurm(arguments: Arguments) -> None:
    """Raise UsageError for an option of a Slurm job without --slurm, or for a shared one also without --kubernetes."""
    given = [*_given_job_options(arguments), *["--start-by"] * (arguments.start_by != "auto")]
    lone = next((name for name in given if not (arguments.kubernetes and name in _SHARED_OPTIONS)), "")
    if lone:
        ways = "--slurm or --kubernetes" if lone in _SHARED_OPTIONS else "--slurm"
        raise UsageError(f"{lone} requires {ways}", hint=f"add {ways}")


def _given_job_options(arguments: Arguments) -> list[str]:
    given = {
        "--nodes": arguments.nodes,
        "--partition": arguments.partition,
        "--account": arguments.account,
        "--time": arguments.limit,
        "--gpus-per-node": arguments.gpus_per_node,
        "--sbatch": arguments.more,
        "--no-wait": arguments.no_wait,
    }
    return [name for name, value in given.items() if value]


def plan_hosts(arguments: Arguments) -> PlannedHosts:
    """Return placeholder hosts for the plan of a job that is not submitted yet.

    Raises UsageError for --hosts, and without --nodes.
    """
    if arguments.hosts is not None:
        hint = "request nodes with --sbatch=--nodelist=NODE,NODE"
        raise UsageError("--hosts with --slurm requires a surrounding job", hint=hint)
    if arguments.nodes is None:
        raise UsageError("--slurm outside of a job requires --nodes", hint="add --nodes 4")
    names = tuple(f"node{number}" for number in range(arguments.nodes))
    return PlannedHosts(names, arguments.ranks_per_host or 1, NoReach("slurm"))


def make_submitter(hosts: PlannedHosts, arguments: Arguments) -> Callable[[float], int]:
    """Return a function that submits the job for a plan of the given duration in seconds, and returns the exit status.

    Raises UsageError for invalid options.
    """
    wanted = SlurmRequest(arguments.nodes, hosts.ranks_per_host, arguments.partition or "", arguments.account or "",
                    parse_limit(arguments.limit) if arguments.limit is not None else None, arguments.gpus_per_node or 0,
                    arguments.more)  # fmt: skip
    required = load_requirements(arguments.require)
    folder = Path(arguments.output).absolute()

    def submit_it(plan_s: float) -> int:
        limit_s = wanted.choose_limit(plan_s)
        note(f"  {describe_cost(wanted, find_groups(wanted), limit_s, plan_s)}")
        if arguments.dry_run:
            return 0
        folder.mkdir(parents=True, exist_ok=True)
        before = _stamp(folder)
        job = submit(wanted, _command(), folder, limit_s, note)
        then = "it continues without this command" if arguments.no_wait else "Ctrl-C or a lost connection cancels it"
        note(f"job {job.number} is submitted and writes to {folder}; {then}")
        if arguments.no_wait:
            return 0
        ending = _follow(job)
        if _stamp(folder) == before:
            raise ending or CannotJudge(f"job {job.number} wrote no results", hint=f"see its log: {job.log}")
        status = report(
            load(folder / RESULTS_NAME), folder, as_json=arguments.as_json, required=required, verbose=arguments.verbose
        )
        if ending is not None:
            raise ending
        return status

    return submit_it


def _follow(job: SlurmJob) -> CannotJudge | None:
    """Follow the job to its end. A signal cancels it. Returns the error of a job that was cut short."""
    try:
        job.follow()
    except KeyboardInterrupt as error:
        with contextlib.suppress(KeyboardInterrupt):  # another signal, which waited for the end of the job
            job.cancel()
        words = f"job {job.number} was interrupted by {str(error) or 'Ctrl-C'} and cancelled"
        return CannotJudge(words, hint=f"see its log: {job.log}")
    return job.explain_end()


def _command() -> list[str]:
    """Return our own command line, for the job."""
    program = Path(sys.argv[0])
    started = [str(program.absolute())] if program.name == "railwright" and program.exists() else []
    return [*(started or [*PYTHON, "-m", "railwright"]), *sys.argv[1:]]


def _stamp(folder: Path) -> tuple[int, int]:
    """Return a stamp that changes when a run rewrites its results. Both numbers are 0 if there are no results."""
    try:
        status = (folder / RESULTS_NAME).stat()
    except OSError:
        return 0, 0
    return status.st_ino, status.st_mtime_ns

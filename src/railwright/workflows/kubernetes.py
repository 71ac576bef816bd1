"""`--kubernetes`: a run on the pods of a job, which is created, followed, removed, and judged on this machine."""

from __future__ import annotations

import datetime as dt
import json
import sys
from collections.abc import Callable
from pathlib import Path

import click

from railwright.errors import CannotJudge, UsageError
from railwright.launch.environment import read_environment
from railwright.launch.hosts import NoReach, PlannedHosts
from railwright.launch.kubernetes.job import KubernetesJob, new_name
from railwright.launch.kubernetes.kubectl import choose_kind, current_namespace
from railwright.launch.kubernetes.manifests import PRIVILEGES, NamedJob
from railwright.launch.kubernetes.received import Received
from railwright.launch.kubernetes.wanted import KubernetesRequest, describe_cost
from railwright.launch.slurm.job import parse_limit
from railwright.options.arguments import Arguments
from railwright.results.store import load
from railwright.secrecy import HIDDEN
from railwright.workflows.judged import note, report
from railwright.workflows.requirements import load_requirements

NAMES = ("kubernetes", "namespace", "image", "rdma", "networks", "node_selector", "start_within", "job_kind")
"""The parameters of `kubernetes_options`."""
_LOCAL_PREFIXES = ("RAILWRIGHT_", "MPI4PY_")
"""Prefixes of variables that apply only to this machine and this command."""


def refuse_mixed(arguments: Arguments) -> None:
    """Raise UsageError for Kubernetes options without --kubernetes, and for --kubernetes with other kinds of hosts."""
    if not arguments.kubernetes:
        lone = next(
            (name for name in ("namespace", "rdma", "networks", "node_selector") if getattr(arguments, name)), ""
        )
        if lone:
            option = "--network" if lone == "networks" else f"--{lone.replace('_', '-')}"
            raise UsageError(f"{option} requires --kubernetes", hint="add --kubernetes")
        return
    if arguments.slurm:
        raise UsageError("--slurm and --kubernetes exclude each other", hint="give one of the two")
    others = {"--hosts": arguments.hosts, "--lab": arguments.lab, "--ssh-config": arguments.ssh_config}
    other = next((name for name, value in others.items() if value is not None), None)
    if other is not None:
        raise UsageError(f"--kubernetes and {other} exclude each other", hint=f"leave out {other}")


def plan_hosts(nodes: int | None, ranks_per_host: int = 1, interfaces: tuple[str, ...] = ()) -> PlannedHosts:
    """Return placeholder hosts for the plan of a job that is not created yet. Raises UsageError without --nodes."""
    if nodes is None:
        raise UsageError("--kubernetes requires --nodes", hint="add --nodes 4")
    names = tuple(f"node{number}" for number in range(nodes))
    return PlannedHosts(names, ranks_per_host, NoReach("kubernetes"), interfaces)


def _build_request(arguments: Arguments, ranks_per_node: int) -> KubernetesRequest:
    """Build the requested job from the options. Raises UsageError for an invalid value."""
    settings = {name: value for name, value in read_environment().items() if not name.startswith(_LOCAL_PREFIXES)}
    if secret := [name for name, value in settings.items() if HIDDEN in value]:
        note(f"not passed to the pods, because a secret must not stand in their specification: {', '.join(secret)}")
        settings = {name: value for name, value in settings.items() if name not in secret}
    return KubernetesRequest(arguments.nodes, arguments.image, ranks_per_node, arguments.namespace or "",
                  arguments.gpus_per_node or 0,
                  arguments.rdma, arguments.networks, arguments.node_selector,
                  parse_limit(arguments.limit) if arguments.limit is not None else None, arguments.start_within,
                  settings)  # fmt: skip


def pod_words(verb: str, arguments: Arguments, *more: str) -> tuple[str, ...]:
    """Return railwright's arguments in the first pod, except hosts and output. Raises UsageError for --mpirun."""
    if arguments.mpirun:
        raise UsageError(
            "--mpirun and --kubernetes exclude each other",
            hint="leave out --mpirun: pods use the Open MPI of their image",
        )
    words = [verb, *more, "--launches", str(arguments.launches), "--silence", f"{arguments.silence:g}"]
    words += [word for text in arguments.options for word in ("--option", text)]
    return (*words, *["--force"] * bool(arguments.force))


def make_submitter(
    hosts: PlannedHosts,
    words: tuple[str, ...],
    arguments: Arguments,
    judged: Callable[[Received, list[str]], int] | None = None,
) -> Callable[[float], int]:
    """Return a function that runs the job for a plan of the given duration in seconds, and returns the exit status.

    `judged` replaces the default report of the records. Raises UsageError for invalid options.
    """
    wanted = _build_request(arguments, hosts.ranks_per_host)
    required = load_requirements(arguments.require)
    folder = Path(arguments.output)

    def reported(received: Received, _troubles: list[str]) -> int:
        if not received.has_results:
            raise CannotJudge("the job ended before any result", hint="see the job's output above")
        return report(load(folder), folder, as_json=arguments.as_json, required=required, verbose=arguments.verbose)

    def submit_it(plan_s: float) -> int:
        limit_s = wanted.choose_limit(plan_s)
        kind = choose_kind(arguments.job_kind)
        namespace = wanted.namespace or current_namespace()
        note(f"  {describe_cost(wanted, kind, namespace, limit_s, plan_s)}")
        for name, why in PRIVILEGES.items() if wanted.rdma else ():
            note(f"  its pods run as root with {name}: {why}")
        named = NamedJob(wanted, new_name(), kind, words, limit_s)
        if arguments.dry_run:
            _show(named)
            return 0
        received, troubles = _run_job(named, namespace, folder)
        ending = _explain_incomplete(received, troubles)
        if ending is not None and not received.has_results:
            raise ending
        if ending is not None:
            received.mark_incomplete(ending.message, gaps=received.has_gaps)
        status = (judged or reported)(received, troubles)
        if ending is not None:
            raise ending
        return status

    return submit_it


def _run_job(named: NamedJob, namespace: str, folder: Path) -> tuple[Received, list[str]]:
    """Create the job, store its records, and remove it. Returns the records, and why pods died."""
    received = Received(folder, ("railwright", *sys.argv[1:]), dt.datetime.now)
    job = KubernetesJob(named, namespace, note)
    try:
        with job:
            note(f"job {named.name} created in namespace {namespace}")
            for file, record in job.records():
                received.keep(file, record)
    except KeyboardInterrupt as error:
        received.interrupted = f"interrupted by {str(error) or 'Ctrl-C'}"
    except CannotJudge as error:
        if not received.has_results:
            raise
        received.interrupted = error.message
    received.lost, received.has_gaps = job.reader.describe_loss(), job.reader.has_gaps
    return received, job.troubles


def _explain_incomplete(received: Received, troubles: list[str]) -> CannotJudge | None:
    """Return the error for incomplete records. None if they are complete."""
    words = [received.interrupted] * bool(received.interrupted)
    if received.lost:
        words += [f"its records are incomplete: {received.lost}", *troubles]
    if not words:
        return None
    return CannotJudge("; ".join(words)[:1000], hint="the records received are kept, and marked incomplete")


def _show(named: NamedJob) -> None:
    """Print the manifests for kubectl. The keys are created only with the job."""
    click.echo(json.dumps(named.job(), indent=2))
    if named.kind == "job":
        click.echo("---")
        click.echo(json.dumps(named.owned_objects("UID-OF-THE-JOB", b"", b""), indent=2))

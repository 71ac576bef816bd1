"""`prove --kubernetes`: every node measures itself in its own pod, then the pods measure between them, as `--hosts`."""

from __future__ import annotations

from pathlib import Path

from msgspec.structs import replace

from railwright.benchmarks.registry import BENCHMARKS
from railwright.diagnosis.fleet.between_hosts import BetweenHosts
from railwright.errors import CannotJudge
from railwright.launch.hosts import parse_interfaces
from railwright.launch.kubernetes.received import Received
from railwright.options.arguments import Arguments
from railwright.results.store import PREVIOUS_NAME
from railwright.run.host_screen import FOLDER, HostScreen
from railwright.run.plan import PlannedProof
from railwright.run.screened import RESULTS
from railwright.topology.changes import add_gpu_addresses, add_rdma_names
from railwright.topology.devices import Topology
from railwright.topology.gpus import usable_gpus
from railwright.topology.sources.load import load as load_machine
from railwright.verbs.prove.between_benchmarks import parse_between, split_options
from railwright.verbs.prove.between_hosts import FOLDER as BETWEEN
from railwright.verbs.prove.between_plan import PlannedBetween
from railwright.verbs.prove.hosts import (
    SCREEN,
    HostsReport,
    judge_hosts,
    parse_benchmark_names,
    show_plan,
    split_parts,
)
from railwright.verbs.prove.kept import FILE as KEPT
from railwright.verbs.prove.kept import KeptBetween, KeptCluster, read_kept, write_kept
from railwright.workflows.judged import note
from railwright.workflows.kubernetes import make_submitter, plan_hosts, pod_words
from railwright.workflows.measuring import parse_benchmarks

_MOST_OF_A_SHAPE = 16
"""The maximum number of GPUs in the shape of a host."""


def prove_pods(arguments: Arguments) -> int:
    """Show the plan, create the job, report the records of its pods, and return the exit status.

    Raises UsageError for invalid options, and CannotJudge if no node has sent records.
    """
    chosen = parse_benchmark_names(arguments)
    alone, parts = split_parts(chosen, arguments.parts)
    hosts = plan_hosts(arguments.nodes, interfaces=parse_interfaces(arguments.interfaces or ""))
    names = alone or tuple(benchmark.name for benchmark in BENCHMARKS)
    host_options, between_options = split_options(arguments.options, names)
    given = host_options if alone else (f"directory={arguments.directory}", *host_options)
    machine, like = _assume_nodes(arguments)
    proof = PlannedProof(machine, parse_benchmarks(names, given), arguments.launches)
    together = parse_between(chosen, between_options, parts)
    between = PlannedBetween(hosts, arguments, parts - {SCREEN}, None, together, proof.topology)
    folder = Path(arguments.output)

    def judged(received: Received, troubles: list[str]) -> int:
        missing = {f"pod {trouble.partition(':')[0]}": trouble for trouble in troubles}
        sent = read_kept(folder) if KEPT in received else None
        kept = sent or _keep_screens(received, folder, arguments.launches, between.parts)
        if not kept.hosts:
            raise CannotJudge("no node has sent its records", hint="see the job's output above")
        kept = replace(kept, hosts=kept.hosts | missing)
        write_kept(folder, kept)
        earlier = folder / BETWEEN / RESULTS
        if earlier.exists() and f"{BETWEEN}/{RESULTS}" not in received:
            earlier.replace(earlier.with_name(PREVIOUS_NAME))
        return judge_hosts(folder, kept, arguments)

    screen = HostScreen(hosts, (), folder, arguments.silence, 0.0, note)
    report = HostsReport(screen, arguments)  # raises for wrong options before a job is created
    show_plan(screen, proof, "" if alone else arguments.directory, between, is_screened=SCREEN in parts, like=like)
    report.show_planned(proof.plan if SCREEN in parts else (), between)
    given_words = {
        "--parts": arguments.parts,
        "--benchmarks": arguments.benchmarks,
        "--interfaces": arguments.interfaces,
    }
    only = [word for option, value in given_words.items() if value for word in (option, value)]
    only += ["--max-load", f"{arguments.max_load:g}"] if arguments.max_load < 1 else []
    words = pod_words("prove", arguments, "--directory", arguments.directory, *only)
    # Nodes that share CPUs, as in a test, measure themselves one after the other.
    seconds = proof.seconds * (SCREEN in parts) + between.plan()[1]
    return make_submitter(hosts, words, arguments, judged)(seconds)


def _assume_nodes(arguments: Arguments) -> tuple[Topology, str]:
    """Return the machine that the plan assumes for the nodes, and its name.

    It is this machine, or a shape with the requested GPUs and NICs if this machine has no GPU: the plan decides the
    time limit of the job.
    """
    here, gpus = load_machine(None), arguments.gpus_per_node
    if not gpus or usable_gpus(here):
        return here, "this one"
    nics = sum(int(number) for _, _, number in (text.partition("=") for text in arguments.rdma))
    name = f"hgx-h100 gpus={min(gpus, _MOST_OF_A_SHAPE)} nics={min(nics, _MOST_OF_A_SHAPE)}"
    return add_rdma_names(add_gpu_addresses(load_machine(name))), name


def _keep_screens(received: Received, folder: Path, launches: int, parts: frozenset[str]) -> KeptCluster:
    """Return the record of a job that ended before it sent its own: the nodes' own measurements alone."""
    names = sorted(path.name for path in (folder / FOLDER).glob("*") if f"{FOLDER}/{path.name}/{RESULTS}" in received)
    missing = dict.fromkeys(sorted(parts), "the job ended before its results arrived")
    said = BetweenHosts(described="nothing between pods", hosts=(), not_measured=missing)
    between = KeptBetween(said=said) if parts else None
    return KeptCluster(hosts=dict.fromkeys(names, ""), launches=launches, between=between)

"""`prove --kubernetes`: every node measures itself in its own pod, then the pods measure between them, as `--hosts`."""

from __future__ import annotations

from pathlib import Path

from railwright.benchmarks.registry import BENCHMARKS
from railwright.diagnosis.fleet.between_hosts import BetweenHosts
from railwright.errors import CannotJudge
from railwright.launch.hosts import NoReach, PlannedHosts, parse_interfaces
from railwright.launch.kubernetes.received import Received
from railwright.options.arguments import Arguments
from railwright.report.text.between_hosts import BetweenHostsResult
from railwright.run.host_screen import FOLDER, HostScreen
from railwright.run.plan import PlannedProof
from railwright.run.screened import RESULTS
from railwright.topology.sources.load import load as load_machine
from railwright.verbs.prove import between_records
from railwright.verbs.prove.between_benchmarks import parse_between, split_options
from railwright.verbs.prove.between_hosts import FOLDER as BETWEEN
from railwright.verbs.prove.between_plan import PlannedBetween
from railwright.verbs.prove.hosts import SCREEN, HostsReport, parse_benchmark_names, show_plan, split_parts
from railwright.workflows.judged import note
from railwright.workflows.kubernetes import make_submitter, plan_hosts, pod_words
from railwright.workflows.measuring import parse_benchmarks


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
    proof = PlannedProof(load_machine(None), parse_benchmarks(names, given), arguments.launches)
    together = parse_between(chosen, between_options, parts)
    between = PlannedBetween(hosts, arguments, parts - {SCREEN}, None, together, proof.topology)
    folder = Path(arguments.output)

    def screen_of(some: PlannedHosts) -> HostScreen:
        return HostScreen(some, (), folder, arguments.silence, 0.0, note)

    def judged(received: Received, troubles: list[str]) -> int:
        missing = {f"pod {trouble.partition(':')[0]}": trouble for trouble in troubles}
        there = _read_between(received, folder, between.parts)
        found = sorted(
            path.name for path in (folder / FOLDER).glob("*") if f"{FOLDER}/{path.name}/{RESULTS}" in received
        )
        found = found or list(there.said.hosts if there is not None else ())
        if not found:
            raise CannotJudge("no node has sent its records", hint="see the job's output above")
        shares_cpus = there is not None and there.said.shares_cpus
        every = PlannedHosts((*found, *missing), 1, NoReach("kubernetes", shares_cpus))
        report = HostsReport(screen_of(every), arguments)
        report.judge(dict.fromkeys(found, "") | missing)
        report.there = there
        return report.tell()

    screen = screen_of(hosts)
    HostsReport(screen, arguments)  # raises for wrong options before a job is created
    show_plan(screen, proof, "" if alone else arguments.directory, between, is_screened=SCREEN in parts)
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


def _read_between(received: Received, folder: Path, parts: frozenset[str]) -> BetweenHostsResult | None:
    """Return the results between the pods, and which parts are missing. None if no part was requested."""
    if not parts:
        return None
    if f"{BETWEEN}/{between_records.FILE}" in received:
        return between_records.read_between(folder / BETWEEN)
    missing = dict.fromkeys(sorted(parts), "the job ended before its results arrived")
    return BetweenHostsResult(BetweenHosts(described="nothing between pods", hosts=(), not_measured=missing))

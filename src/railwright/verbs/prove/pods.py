"""`prove --kubernetes`: every node measures itself in its own pod, and one page compares the nodes."""

from __future__ import annotations

from pathlib import Path

from railwright.benchmarks.registry import BENCHMARKS
from railwright.errors import CannotJudge
from railwright.launch.hosts import NoReach, PlannedHosts
from railwright.launch.kubernetes.received import Received
from railwright.options.arguments import Arguments
from railwright.run.host_screen import FOLDER, HostScreen
from railwright.run.plan import PlannedProof
from railwright.run.screened import RESULTS
from railwright.topology.sources.load import load as load_machine
from railwright.verbs.prove.between_benchmarks import refuse_collectives
from railwright.verbs.prove.hosts import HostsReport, parse_benchmark_names, show_plan
from railwright.workflows.judged import note
from railwright.workflows.kubernetes import make_submitter, plan_hosts, pod_words
from railwright.workflows.measuring import parse_benchmarks


def prove_pods(arguments: Arguments) -> int:
    """Show the plan, create the job, report the records of its pods, and return the exit status.

    Raises UsageError for a benchmark over several hosts, and CannotJudge if no node has sent records.
    """
    chosen = parse_benchmark_names(arguments)
    refuse_collectives(chosen)
    hosts = plan_hosts(arguments.nodes)
    names = chosen or tuple(benchmark.name for benchmark in BENCHMARKS)
    given = arguments.options if chosen else (f"directory={arguments.directory}", *arguments.options)
    proof = PlannedProof(load_machine(None), parse_benchmarks(names, given), arguments.launches)
    folder = Path(arguments.output)

    def screen_of(some: PlannedHosts) -> HostScreen:
        return HostScreen(some, (), folder, arguments.silence, 0.0, note)

    def judged(received: Received, troubles: list[str]) -> int:
        found = sorted(
            path.name for path in (folder / FOLDER).glob("*") if f"{FOLDER}/{path.name}/{RESULTS}" in received
        )
        if not found:
            raise CannotJudge("no node has sent its records", hint="see the job's output above")
        missing = {f"pod {trouble.partition(':')[0]}": trouble for trouble in troubles}
        every = PlannedHosts((*found, *missing), 1, NoReach("kubernetes"))
        report = HostsReport(screen_of(every), arguments)
        report.judge(dict.fromkeys(found, "") | missing)
        return report.tell()

    screen = screen_of(hosts)
    HostsReport(screen, arguments)  # raises for wrong options before a job is created
    show_plan(screen, proof, "" if chosen else arguments.directory)
    only = ("--benchmarks", ",".join(chosen)) if chosen else ()
    words = pod_words("prove", arguments, "--directory", arguments.directory, "--parts", "screen", *only)
    # Nodes that share CPUs, as in a test, measure themselves one after the other.
    return make_submitter(hosts, words, arguments, judged)(proof.seconds)

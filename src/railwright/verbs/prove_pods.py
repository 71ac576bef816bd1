"""`prove --kubernetes`: every node proves itself in a pod of its own, and is held against the others on one page."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from railwright.benchmarks.registry import BENCHMARKS
from railwright.errors import CannotJudge
from railwright.launch.hosts import NoReach, PlannedHosts
from railwright.launch.kubernetes.received import Received
from railwright.run.host_screen import FOLDER, HostScreen
from railwright.run.plan import PlannedProof
from railwright.run.screened import RESULTS
from railwright.topology.sources.load import load as load_machine
from railwright.verbs.acceptance import the_spec
from railwright.verbs.between_hosts import refuse_collectives
from railwright.verbs.judged import note
from railwright.verbs.kubernetes import Kubernetes, submitting, words_of
from railwright.verbs.measuring import parse
from railwright.verbs.prove_hosts import report_hosts, show_plan
from railwright.verbs.requirements import the_requirements


def prove_pods(
    kubernetes: Kubernetes, directory: str, chosen: tuple[str, ...], options: tuple[str, ...], asked: dict[str, Any]
) -> int:
    """Show the plan, make the job, and report what its pods have sent; the exit status.

    `chosen` are the benchmarks of each node, none for those of `prove`. Raises UsageError for one over several hosts.
    """
    refuse_collectives(chosen)
    required, spec = the_requirements(asked["require"]), the_spec(asked["accept"], asked["require"])
    hosts = kubernetes.to_come(None)
    names = chosen or tuple(benchmark.name for benchmark in BENCHMARKS)
    given = options if chosen else (f"directory={directory}", *options)
    proof = PlannedProof(load_machine(None), parse(names, given), asked["launches"])
    folder = Path(asked["output"])

    def screen_of(some: PlannedHosts) -> HostScreen:
        return HostScreen(some, (), folder, asked["silence"], 0.0, note)

    def judged(received: Received, troubles: list[str]) -> int:
        found = sorted(
            path.name for path in (folder / FOLDER).glob("*") if f"{FOLDER}/{path.name}/{RESULTS}" in received
        )
        if not found:
            raise CannotJudge("no node has sent its records", hint="its own words are above")
        missing = {f"pod {trouble.partition(':')[0]}": trouble for trouble in troubles}
        every = PlannedHosts((*found, *missing), 1, NoReach("kubernetes"))
        why = dict.fromkeys(found, "") | missing
        return report_hosts(screen_of(every), why, required, spec, launches=asked["launches"],
                            as_json=asked["as_json"])  # fmt: skip

    screen = screen_of(hosts)
    show_plan(screen, proof, "" if chosen else directory)
    only = ("--benchmarks", ",".join(chosen)) if chosen else ()
    words = words_of("prove", asked, options, "--directory", directory, "--parts", "screen", *only)
    # Two nodes that share their CPUs, as in a test, measure themselves one after the other.
    return submitting(kubernetes, hosts, words, asked, judged)(proof.seconds)

"""Runs of ours in `explain`: judged by themselves, or beside a table. They need what every benchmark declares."""

from __future__ import annotations

from pathlib import Path

from railwright.benchmarks.registry import DECLARATIONS
from railwright.diagnosis.runs.diagnose import diagnose
from railwright.expected.baselines import Baselines
from railwright.expected.machine import Machine
from railwright.results.store import load
from railwright.topology.cluster import cluster_of
from railwright.verbs.judged import show, the_view


def show_our_own(file: str, *, as_json: bool) -> int:
    """Print a run of ours as `judge` does; the exit status."""
    found = load(Path(file))
    diagnosis = diagnose(found, DECLARATIONS)
    show(the_view(found, diagnosis), as_json=as_json)
    return diagnosis.exit_status


def machine_of_run(run: str, path: str) -> Machine:
    """The machine of a run of ours, with what the run measured there."""
    found = load(Path(run))
    baselines = Baselines(found.results, DECLARATIONS)
    return Machine(cluster=cluster_of(found.run.topology, 1), path=path, measured=baselines)

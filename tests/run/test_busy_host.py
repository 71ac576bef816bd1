"""A busy host is refused if something is measured on it, and only then."""

from __future__ import annotations

import os

import pytest

from railwright.benchmarks.registry import find
from railwright.errors import CannotJudge
from railwright.results.records import Context
from railwright.run import exclusive, proof
from railwright.run.exclusive import measuring_alone
from railwright.run.proof import Proof
from railwright.topology.expand import expand


@pytest.fixture
def start(monkeypatch):
    """A run of one benchmark on a laptop whose CPUs others use."""
    busy = Context(host="h", kernel="k", busy_fraction=0.9)
    monkeypatch.setattr(proof, "gather_context", lambda _topology: busy)
    monkeypatch.setattr(exclusive, "_NAME", f"\0railwright-test-{os.getpid()}")

    def plan(name, **options):
        benchmark = find(name)
        chosen = [(benchmark, benchmark.parse(options))]
        return Proof(topology=expand("laptop", {}), chosen=chosen, launches=1, command=("railwright", "run", name))

    return plan


def test_what_is_waived_whole_is_recorded_on_a_busy_host_and_beside_another_run(start, tmp_path):
    with measuring_alone(force=True):
        (result,) = start("gpu_copy").run(tmp_path).results
    assert (result.outcome, result.reason) == ("waived", "no NVIDIA GPU was found")


def test_what_would_be_measured_is_refused_on_a_busy_host(start, tmp_path):
    with pytest.raises(CannotJudge, match="this host is busy: 90% of its CPU time"):
        start("memory_copy", sizes="4K", threads="one").run(tmp_path / "out")
    assert not (tmp_path / "out").exists()

"""`prove --quick` and `--require`: the benchmarks that they plan, the faults that those find, and the time limit."""

from __future__ import annotations

import signal
import time
from pathlib import Path

import pytest

from railwright.benchmarks.registry import BENCHMARKS, DECLARATIONS, QUICK
from railwright.errors import CannotJudge
from railwright.expected.machine import Machine
from railwright.explain.table import explain
from railwright.main import run_command
from railwright.results.declarations import list_ceilings
from railwright.results.readers.registry import read
from railwright.run.plan import PlannedProof
from railwright.topology.cluster import build_cluster
from railwright.topology.expand import expand
from railwright.topology.sources.load import load
from railwright.units import parse_size
from railwright.workflows import quick
from railwright.workflows.measuring import parse_benchmarks
from railwright.workflows.requirements import load_requirements, select_required

RECORDED = sorted(Path("testdata/explain/2xh200").glob("*.txt"))
GIVEN = tuple(f"{name}.{key}={value}" for name, options in QUICK.items() for key, value in options.items())


def test_the_plan_of_a_machine_without_gpus_takes_less_than_half_of_20_s():
    plan = PlannedProof(expand("laptop", {}), parse_benchmarks(tuple(QUICK), GIVEN), 1)
    assert 0 < plan.seconds < 10
    measured = {launch.benchmark.name for launch in plan.plan if not launch.plan.waived}
    assert {"mpi_latency", "mpi_bandwidth"} <= measured


def test_the_quick_benchmarks_are_of_prove_and_include_a_baseline_of_each():
    assert {*QUICK} <= {benchmark.name for benchmark in BENCHMARKS}
    for name in QUICK:
        ceilings = list_ceilings(name, DECLARATIONS)
        assert not ceilings or {*ceilings} & {*QUICK}, name


def test_the_one_size_of_the_quick_collective_tells_nearly_every_recorded_fault_from_a_healthy_machine():
    size_bytes = parse_size(QUICK["nccl_all_reduce"]["sizes"])
    machine = Machine(cluster=build_cluster(load("hgx-h200"), 1))
    slow = {}
    for path in RECORDED:
        (file,) = read(path.read_text(encoding="utf-8"))
        rows = [row for row in explain(file, machine).rows if row.parameters.get("size_bytes") == size_bytes]
        slow[path.stem] = any(row.verdict.state == "slow" for row in rows)
    healthy = {name for name in slow if name.endswith("healthy")}
    assert not any(slow[name] for name in healthy)
    assert [name for name in slow if not slow[name] and name not in healthy] == ["broadcast-8-channels"]


@pytest.mark.parametrize(
    ("required", "planned"),
    [
        ("mpi_latency", ("memory_copy", "core_latency", "tcp_stream", "mpi_latency")),
        ("file_read *>memory0", ("device_read", "file_read")),
        ("core_*", ("core_latency",)),
        ("mpi_all_reduce", ("memory_copy", "core_latency", "mpi_all_reduce")),
    ],
)
def test_requirements_plan_only_their_benchmarks_and_the_baselines_of_these(required, planned):
    names = tuple(benchmark.name for benchmark in BENCHMARKS)
    assert {*select_required(names, load_requirements((required,)), DECLARATIONS)} == {*planned}
    assert select_required(names, (), DECLARATIONS) == names


def test_the_time_limit_ends_the_check_without_a_verdict(monkeypatch):
    monkeypatch.setattr(quick, "LIMIT_S", 1)
    before = signal.getsignal(signal.SIGALRM)
    with pytest.raises(CannotJudge, match="nothing was judged within 1 s"), quick._time_limit():
        time.sleep(60)
    assert signal.getsignal(signal.SIGALRM) is before
    assert signal.alarm(0) == 0
    with pytest.raises(KeyboardInterrupt, match="SIGTERM"), quick._time_limit():
        raise KeyboardInterrupt("SIGTERM")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--quick", "--hosts", "a,b"], "--hosts does not work with --quick"),
        (["--quick", "--benchmarks", "mpi_latency"], "--benchmarks does not work with --quick"),
        (["--quick", "--require", "hpl"], "--quick does not measure hpl"),
        (["--benchmarks", "no_such"], "no_such"),
        (["--parts", "pairs"], "--parts requires several hosts"),
    ],
)
def test_conflicting_options_are_refused(capsys, words, said):
    assert run_command(["prove", *words]) == 2
    assert said in capsys.readouterr().err


@pytest.mark.parametrize("named", ["mpi_latency", "core_latency, mpi_latency"])
def test_benchmarks_of_one_host_are_planned_with_their_baselines(capsys, named):
    assert run_command(["prove", "--benchmarks", named, "--dry-run"]) == 0
    planned = {line.split()[0] for line in capsys.readouterr().err.splitlines()[1:-1]}
    assert planned == {"memory_copy", "core_latency", "tcp_stream", "mpi_latency"}

"""`--dry-run`: hosts that do not exist are planned, and a sheet's lines have the launches that will decide them."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from tests.conftest import InProcess

from railwright.benchmarks.benchmark import Plan
from railwright.workflows.measuring import count_launches

SPEC = """
title = "A server"
hosts = 65
[[line]]
path = "mpi_latency"
where = { transport = "shm" }
size = "8"
most = "5 us"
[[line]]
path = "mpi_bandwidth"
size = "1MiB"
[[line]]
path = "mpi_latency"
where = { transport = "rdma" }
[[line]]
path = "hpl"
[[line]]
path = "nccl_all_reduce"
[[line]]
path = "pairs"
[[line]]
path = "mpi_all_reduce"
"""


@pytest.fixture
def spec(answer: InProcess) -> str:
    (answer.folder / "spec.toml").write_text(SPEC)
    return "spec.toml"


def sheet_of(text: str) -> dict[str, str]:
    """Return what decides each line of the sheet in a plan."""
    _, _, sheet = text.partition("sheet: A server, 7 lines\n")
    return dict(line.strip().rsplit(": ", 1) for line in sheet.splitlines() if "decided" in line)


def test_each_line_of_a_sheet_names_the_launches_that_decide_it(answer: InProcess, spec: str) -> None:
    done = answer("prove", "--accept", spec, "--dry-run")
    assert done.status == 0
    assert "  65 hosts: 1 planned, too few" in done.err
    found = sheet_of(done.err)
    assert found["mpi_latency, transport shm at 8 B: at most 5.00 us"] == "decided by mpi_latency shm (3 launches)"
    lines = done.err.splitlines()
    missing = {line.strip() for line in lines if "not decided" in line}
    assert "hpl: ok, by its own limit: not decided: the plan has no hpl" in missing
    assert "pairs: ok, by its own limit: not decided: the plan has no pairs" in missing
    (rdma,) = (line for line in missing if line.startswith("mpi_latency, transport rdma"))
    assert rdma.endswith("no planned launch of mpi_latency has transport rdma")
    (size,) = (line for line in missing if line.startswith("mpi_bandwidth at 1 MiB"))
    assert "no planned launch of mpi_bandwidth has 1 MiB (sizes: 8 B, 32 B," in size
    (absent,) = (line for line in missing if line.startswith("nccl_all_reduce"))
    assert "not run: no NVIDIA GPU" in absent


def test_named_hosts_are_planned_without_asking_them(answer: InProcess, spec: str) -> None:
    done = answer("prove", "--hosts", "node[01-64]", "--accept", spec, "--dry-run")
    assert done.status == 0
    assert done.err.startswith("plan: 64 hosts, by ssh\n  --dry-run asks no host: it assumes separate machines like")
    found = sheet_of(done.err)
    assert found["pairs: ok, by its own limit"] == "decided by the rounds of pairs"
    assert found["mpi_all_reduce: ok, by its own limit"] == "decided by mpi_all_reduce tcp (3 launches)"
    one = answer("run", "mpi_latency", "--hosts", "a,b", "--dry-run")
    assert one.status == 0
    assert "--dry-run asks no host" in one.err
    assert "each with a port of 1 Gb/s" in one.err


def test_a_cluster_file_gives_the_ports_of_hosts_that_are_not_asked(answer: InProcess) -> None:
    text = 'name = "c"\nhosts = 4\nhost = "hgx-h100"\n'
    (answer.folder / "cluster.toml").write_text(text)
    done = answer("prove", "--hosts", "n[1-4]", "--cluster", "cluster.toml", "--dry-run")
    assert "like the cluster file's, each with a port of 39" in done.err
    assert "rails: a search by NCCL between 8 GPUs of each host" in done.err
    assert "GPU hours (4 x 8 GPUs)" in done.err
    words = ("run", "nccl_all_reduce", "--hosts", "a,b", "--cluster", "cluster.toml", "--dry-run")
    one = answer(*words, "-o", "nccl_all_reduce.sizes=8,1M")
    assert one.status == 0
    assert "16 ranks on 2 hosts" in one.err


def test_launches_that_are_not_run_are_not_counted_as_launches() -> None:
    plan = [SimpleNamespace(plan=Plan(path="p", waived=why)) for why in ("", "no GPU", "", "no GPU", "", "no GPU")]
    assert count_launches(SimpleNamespace(launches=3, plan=plan)) == "3 x 1 launch, 1 not run"
    assert count_launches(SimpleNamespace(launches=3, plan=plan[::2])) == "3 x 1 launch"

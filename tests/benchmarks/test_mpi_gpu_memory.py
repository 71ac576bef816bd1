"""MPI with buffers in GPU memory: plans, refusals, UCX's log, and two ranks with stand-ins for GPUs.

A stand-in's memory is host memory, so that any MPI takes it; only the answer of the library is replaced.
"""
# ruff: noqa: F811 - a fixture of another module is imported, and is an argument

from __future__ import annotations

import os

import pytest
from tests.benchmarks.jobs import job_of, jobs_of
from tests.benchmarks.test_kv_vram import table
from tests.stand_ins import environment, stand_ins  # noqa: F401 - a fixture
from tests.topology.machines import archive

from railwright.benchmarks.evidence import ucx_message_evidence
from railwright.benchmarks.registry import DECLARATIONS, find
from railwright.launch.mpi import MpiLauncher
from railwright.launch.session import PlannedLaunch, Session
from railwright.results.declarations import find_workload
from railwright.topology.expand import expand
from railwright.topology.sources.load import load

NAMES = ("mpi_latency", "mpi_bandwidth", "mpi_all_reduce", "mpi_all_to_all")
SITE = "from railwright.native import mpi\nmpi.takes_gpu_memory = lambda: True\n"


@pytest.fixture(scope="module")
def two_gpus():
    return load(str(archive("2xh200-firecracker-vm")))


@pytest.fixture
def measure(stand_ins, two_gpus, mpiruns, tmp_path, monkeypatch):
    monkeypatch.setenv("TMPDIR", str(tmp_path))

    def run(name, *, takes=True, faults=None):
        given = {"memory": "gpu", "sizes": "64,100K"} | ({"ranks": "2"} if "all" in name else {})
        job = job_of(find(name), two_gpus, tuple(sorted(os.sched_getaffinity(0))), given)
        planned = PlannedLaunch(find(name), job, find(name).plan(job))
        addresses = [gpu.address for gpu in two_gpus.of_kind("gpu")]
        if takes:
            (tmp_path / "sitecustomize.py").write_text(SITE)
        path = os.pathsep.join(filter(None, (str(tmp_path), os.environ.get("PYTHONPATH"))))
        variables = os.environ | environment(stand_ins, *addresses) | {"PYTHONPATH": path} | (faults or {})
        return list(Session(planned, MpiLauncher(mpiruns["openmpi"]), variables, 120.0).results())

    return run


@pytest.mark.parametrize("name", NAMES)
def test_every_byte_arrives_in_gpu_memory(measure, name):
    results = measure(name)
    assert {one.outcome for one in results} == {"measured"}, [one.reason for one in results]
    for one in results:
        assert (one.path, one.parameters["memory"], one.parameters["transport"]) == ("gpu0>gpu1", "gpu", "any")
        assert one.verification.bytes_checked > 0
        assert one.verification.bytes_wrong == 0
        assert one.evidence[0].claim == "transport"
    assert {one.parameters["size_bytes"] for one in results} == {64, 102400}


def test_an_mpi_without_cuda_is_waived_by_name(measure):
    (waived,) = measure("mpi_latency", takes=False)
    assert waived.outcome == "waived"
    assert waived.reason == "Open MPI v5.0.11 does not take buffers in GPU memory"


def test_gpu_memory_is_a_launch_of_its_own_beside_host_memory(two_gpus):
    jobs = jobs_of(find("mpi_bandwidth"), two_gpus, given={"memory": "host,gpu"})
    assert [job.case.parameters() for job in jobs] == [
        {"transport": "shm"}, {"transport": "tcp"}, {"transport": "any", "memory": "gpu"},
    ]  # fmt: skip
    assert jobs[2].launch.gpus == ("gpu0", "gpu1")
    assert jobs_of(find("mpi_bandwidth"), two_gpus)[0].case.parameters() == {"transport": "shm"}


def test_hosts_have_the_same_gpus_and_the_path_names_both_ends(two_gpus):
    job = job_of(find("mpi_latency"), two_gpus, given={"memory": "gpu"}, hosts=("a", "b"))
    assert job.launch.gpus == ("gpu0", "gpu0")
    assert find("mpi_latency").plan(job).path == "gpu0@0>gpu0@1"
    every = job_of(find("mpi_all_reduce"), two_gpus, given={"memory": "gpu"}, hosts=("a", "b"), ranks_per_host=2)
    assert every.launch.gpus == ("gpu0", "gpu1", "gpu0", "gpu1")
    assert find("mpi_all_reduce").plan(every).path == "gpu0@0>gpu1@1"


def test_without_a_gpu_it_is_waived_and_its_limit_is_that_of_gpu_memory(two_gpus):
    job = job_of(find("mpi_latency"), expand("laptop", {}), given={"memory": "gpu"})
    assert find("mpi_latency").plan(job).waived == "no NVIDIA GPU was found"
    planned = PlannedLaunch(find("mpi_bandwidth"), job, find("mpi_bandwidth").plan(job))
    assert find_workload(planned.make_unmeasured("waived", "-"), DECLARATIONS).from_gpu


def test_the_transport_of_messages_is_read_from_ucx_s_log(tmp_path):
    log, name, sent = tmp_path / "ucx.log", "inter-node cfg#1", "tagged message by ucp_tag_send*"
    rows = (("0..8246", "multi-frag copy-in", "tcp/net1"), ("8247..inf", "rendezvous read", "rc_mlx5/mlx5_0:1"))
    other = table(name, f"{sent}(multi) from host memory", ("0..inf", "short", "x/y"))
    log.write_text(other + table(name, f"{sent} from cuda/GPU0", *rows))
    assert ucx_message_evidence(log, 64).value == "tcp/net1"
    large = ucx_message_evidence(log, 2**20)
    assert (large.value, large.seen) == ("rc_mlx5/mlx5_0:1", "UCX_PROTO_INFO: ucp_tag_send by rendezvous read")
    log.write_text(other)
    assert ucx_message_evidence(log, 64).value == "unknown"

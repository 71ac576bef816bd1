"""The GPUs of the NCCL benchmarks and of the training step: all, the first few, or those named."""
# ruff: noqa: F811 - a fixture of another module is imported, and is an argument

from __future__ import annotations

import os

import msgspec
import pytest
from tests.benchmarks.jobs import job_of, jobs_of
from tests.benchmarks.test_nccl_collectives import measure, two_gpus  # noqa: F401 - fixtures
from tests.expected.finders import Finder
from tests.stand_ins import environment, stand_ins  # noqa: F401 - a fixture
from tests.topology.machines import archive

from railwright.benchmarks.registry import find
from railwright.errors import UsageError
from railwright.expected.machine import Machine
from railwright.expected.nccl_collectives import select_gpus
from railwright.launch.mpi import MpiLauncher
from railwright.launch.session import PlannedLaunch, Session
from railwright.results.workload import Collective
from railwright.topology.cluster import build_cluster
from railwright.topology.expand import expand
from railwright.topology.sources.load import load


@pytest.fixture(scope="module")
def eight_gpus():
    return load(str(archive("8xh200-probed-vm")))


def job(topology, name="nccl_all_reduce", cpus=(), **options):
    (made,) = jobs_of(find(name), topology, cpus or tuple(range(96)), options)
    return made


def waived(topology, name="nccl_all_reduce", **options):
    return find(name).plan(job(topology, name, **options)).waived


@pytest.mark.parametrize(
    ("text", "gpus"),
    [
        ("all", [f"gpu{number}" for number in range(8)]),
        ("3", ["gpu0", "gpu1", "gpu2"]),
        ("gpu2,gpu5", ["gpu2", "gpu5"]),
        ("gpu7, gpu0,gpu3", ["gpu7", "gpu0", "gpu3"]),
    ],
)
def test_gpus_are_all_the_first_few_or_those_named_in_that_order(eight_gpus, text, gpus):
    for name in ("nccl_all_reduce", "train_step"):
        one = job(eight_gpus, name, gpus=text)
        assert [gpu.id for gpu in one.gpus] == gpus
        assert [one.find_gpu(rank).id for rank in range(one.ranks)] == gpus, "each rank is bound near its own"
        plan = find(name).plan(one)
        assert (one.ranks, plan.path, plan.waived) == (len(gpus), f"{gpus[0]}>{gpus[-1]}", "")


def test_a_rank_is_bound_near_the_gpu_that_was_named():
    topology = load(str(archive("8xh100-8nic")))
    one = job(topology, gpus="gpu1,gpu6")
    for rank, name in enumerate(("gpu1", "gpu6")):
        assert one.find_cpu(rank) in one.list_gpu_cpus(topology.device(name))
    assert one.find_gpu(1).numa != one.find_gpu(0).numa


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("gpu2,gpu2", "gpu2 is named 2 times"),
        ("2,5", "or GPUs by name like gpu2,gpu5, got '2,5'"),
        ("gpu2,", "or GPUs by name like gpu2,gpu5"),
        ("gpu2;gpu5", "or GPUs by name like gpu2,gpu5"),
        ("gpu02,gpu5", "or GPUs by name like gpu2,gpu5"),
        ("gpu٣,gpu5", "or GPUs by name like gpu2,gpu5"),
        ("gpu1," * 5000, "or GPUs by name like gpu2,gpu5"),
    ],
)
def test_an_invalid_list_of_gpus_is_refused(text, message):
    with pytest.raises(UsageError) as caught:
        find("nccl_all_reduce").parse({"gpus": text})
    assert message in caught.value.message
    assert len(caught.value.message) < 200


@pytest.mark.parametrize("text", ["1", "gpu2"])
def test_one_gpu_is_a_rail_between_hosts_and_refused_in_one_host(eight_gpus, text):
    with pytest.raises(UsageError, match="at least 2 GPUs are needed in one host, got 1"):
        job(eight_gpus, gpus=text)
    rail = job_of(find("nccl_all_reduce"), eight_gpus, given={"gpus": text}, hosts=("a", "b"))
    assert (rail.ranks, len(rail.gpus)) == (2, 1)


def test_a_training_step_may_have_one_gpu(eight_gpus):
    assert waived(eight_gpus, "train_step", gpus="gpu5") == ""


def test_an_unknown_gpu_is_an_error_and_an_unusable_one_is_waived(eight_gpus):
    with pytest.raises(UsageError, match="there is no GPU named 'gpu9'"):
        waived(eight_gpus, gpus="gpu2,gpu9")
    assert waived(expand("laptop", {}), gpus="gpu2,gpu9") == "no NVIDIA GPU was found"
    devices = tuple(
        msgspec.structs.replace(one, facts={**one.facts, "mig": True}) if one.id == "gpu2" else one
        for one in eight_gpus.devices
    )
    assert waived(msgspec.structs.replace(eight_gpus, devices=devices), gpus="gpu2,gpu3") == "MIG is on in gpu2"


@pytest.mark.parametrize("ranks_in", ["processes", "threads"])
def test_the_records_name_the_gpus_that_took_part(measure, eight_gpus, ranks_in):
    results = measure("nccl_all_reduce", topology=eight_gpus, gpus="gpu2,gpu5", sizes="8", ranks_in=ranks_in)
    assert {one.outcome for one in results} == {"measured"}, [one.reason for one in results]
    assert {(one.path, one.ranks, one.parameters["gpus"]) for one in results} == {("gpu2>gpu5", 2, "gpu2,gpu5")}
    plain = measure("nccl_all_reduce", topology=eight_gpus, gpus="2", sizes="8", ranks_in=ranks_in)
    assert not any("gpus" in one.parameters for one in plain), "it compares with runs of before"


def test_a_training_step_s_records_name_its_gpus_too(stand_ins, mpiruns, eight_gpus, tmp_path, monkeypatch):
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    small = {"model": "100000", "buckets": "single", "dtypes": "fp32", "compute": "none", "iterations": "3"}
    cpus = tuple(sorted(os.sched_getaffinity(0)))
    one = job(eight_gpus, "train_step", cpus, gpus="gpu2,gpu5", **small)
    benchmark = find("train_step")
    variables = os.environ | environment(stand_ins, *(gpu.address for gpu in eight_gpus.of_kind("gpu")))
    launcher = MpiLauncher(mpiruns["openmpi"])
    results = list(Session(PlannedLaunch(benchmark, one, benchmark.plan(one)), launcher, variables, 120.0).results())
    assert {one.outcome for one in results} == {"measured"}, [one.reason for one in results]
    assert {(one.path, one.ranks, one.parameters["gpus"]) for one in results} == {("gpu2>gpu5", 2, "gpu2,gpu5")}


def test_the_limit_is_of_the_gpus_named_and_not_of_all_up_to_the_last(eight_gpus):
    finder = Finder(eight_gpus)

    def cluster(path, gpus=""):
        workload = Collective(operation="all_reduce", path=path, gpus=gpus)
        return select_gpus(workload, Machine(cluster=build_cluster(eight_gpus, 1)))

    assert cluster("gpu2>gpu5", "gpu2,gpu5").ranks == 2
    assert cluster("gpu5>gpu2", "gpu5,gpu2").ranks == 2
    assert cluster("gpu2>gpu5").ranks == 6
    with pytest.raises(UsageError, match="no GPUs gpu2>gpu99"):
        cluster("gpu2>gpu99", "gpu2,gpu99")

    def busbw(path, **parameters):
        size = {"size_bytes": 2**30, "rate": "busbw", **parameters}
        return finder.find("nccl_all_reduce", "bandwidth_bytes_per_s", path, size)[0].value

    assert busbw("gpu2>gpu5", gpus="gpu2,gpu5") == busbw("gpu0>gpu1")
    step = {"part": "communication", "rate": "busbw", "gpus": "gpu2,gpu5"}
    assert finder.find("train_step", "bandwidth_bytes_per_s", "gpu2>gpu5", step)[0].value == busbw("gpu0>gpu1")

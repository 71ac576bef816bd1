"""gpu_copy and gpu_latency as real launches over a stand-in for libcuda: results, checks and waivers."""

from __future__ import annotations

import json
import os
from pathlib import Path
from types import SimpleNamespace

import msgspec
import pytest
from tests.benchmarks.jobs import job_of
from tests.schemas import fits
from tests.stand_ins import environment

from railwright.benchmarks.benchmark import Plan
from railwright.benchmarks.gpu import copy as gpu_copy
from railwright.benchmarks.gpu import latency as gpu_latency
from railwright.benchmarks.gpu.job import waiver_reason
from railwright.benchmarks.registry import find
from railwright.errors import UsageError
from railwright.run import measure as measure_launches
from railwright.run.measure import Measurement
from railwright.run.plan import plan_launches
from railwright.topology.sources.load import load

ROOT = Path(__file__).parents[2]
HOSTS = ROOT / "testdata/hosts"


@pytest.fixture(scope="module")
def two_gpus():
    return load(str(HOSTS / "2xh200-firecracker-vm/machine.jsonl"))


@pytest.fixture
def measure(stand_ins, two_gpus, monkeypatch, tmp_path):
    """Return the results of a launch on two stand-in GPUs."""

    def run(name, *, faults=None, topology=two_gpus, **options):
        addresses = [gpu.address for gpu in topology.of_kind("gpu")]
        variables = environment(stand_ins, *addresses, STANDIN_CUDA_COPY_US="50,50") | {"TMPDIR": str(tmp_path)}
        for variable, value in (variables | (faults or {})).items():
            monkeypatch.setenv(variable, value)
        benchmark = find(name)
        (planned,) = plan_launches(topology, [(benchmark, benchmark.parse(options))])
        return list(Measurement().results(planned))

    return run


def of(results, **parameters):
    return [one for one in results if parameters.items() <= one.parameters.items()]


def job_on(topology, cpus=(0, 1), **options):
    return job_of(find("gpu_copy"), topology, tuple(cpus), options)


def with_ranks(job, ranks):
    return msgspec.structs.replace(job, launch=msgspec.structs.replace(job.launch, ranks=ranks))


def job_latency(topology):
    return job_of(find("gpu_latency"), topology)


@pytest.fixture(scope="module")
def everything(stand_ins, two_gpus, tmp_path_factory):
    """Return the results of gpu_copy's defaults at two sizes, one of them smaller than a vector."""
    with pytest.MonkeyPatch.context() as patch:
        variables = environment(
            stand_ins, *(gpu.address for gpu in two_gpus.of_kind("gpu")), STANDIN_CUDA_COPY_US="50,50"
        )
        for name, value in (variables | {"TMPDIR": str(tmp_path_factory.mktemp("tmp"))}).items():
            patch.setenv(name, value)
        benchmark = find("gpu_copy")
        (planned,) = plan_launches(two_gpus, [(benchmark, benchmark.parse({"sizes": "1001,256K"}))])
        return covered(lambda: list(Measurement().results(planned)))


def covered(measured):
    """Repeats cases that were waived because other work delayed a thread of the stand-in, so that its copies ended
    first.
    """
    results = measured()
    for _ in range(20):
        if not any("ended first" in one.reason for one in results):
            break
        again = {(one.path, *one.parameters.items()): one for one in measured()}
        results = [
            again[(one.path, *one.parameters.items())] if "ended first" in one.reason else one for one in results
        ]
    return results


def test_every_path_and_way_is_measured_once_and_every_byte_is_right(everything):
    host = {(a, b) for gpu in ("gpu0", "gpu1") for a, b in (("memory0", gpu), (gpu, "memory0"))}
    ways = [(engine, direction) for engine in ("ce", "sm") for direction in ("one", "both")]
    expected = [
        (f"{a}>{b}", {"engine": engine, "host": "pinned", "direction": direction})
        for a, b in host
        for engine, direction in ways
    ]
    expected += [(f"{gpu}>{gpu}", {"engine": e, "direction": "one"}) for gpu in ("gpu0", "gpu1") for e in ("ce", "sm")]
    expected += [
        (path, {"engine": engine, "by": by, "direction": direction})
        for path in ("gpu0>gpu1", "gpu1>gpu0")
        for by in ("read", "write")
        for engine, direction in ways
    ]
    wanted = [(path, varied | {"size_bytes": size}) for path, varied in expected for size in (1001, 1 << 18)]
    seen = [(one.path, one.parameters) for one in everything]
    assert sorted(seen, key=str) == sorted(((p, {"size_bytes": v["size_bytes"]} | v) for p, v in wanted), key=str)
    for one in everything:
        assert one.outcome == "measured", one.reason
        ways_checked = 2 if one.parameters["direction"] == "both" else 1
        assert one.verification.bytes_checked == ways_checked * one.parameters["size_bytes"]
        assert one.verification.bytes_wrong == 0
        assert len(one.samples) == 5
        assert one.settings["start"] == "held back until all is enqueued"


def test_the_gpu_that_runs_a_copy_is_the_target_s_to_read_and_the_source_s_to_write(everything):
    for one in everything:
        source, target = one.path.split(">")
        if "by" in one.parameters:
            assert one.settings["run_by"] == (target if one.parameters["by"] == "read" else source)
        else:
            assert one.settings["run_by"] in (source, target)


def test_records_fit_the_schema(everything):
    for one in everything:
        fits(json.loads(msgspec.json.encode(one)), "result")


def test_copies_the_other_way_run_as_long_as_what_is_measured(everything):
    for one in of(everything, direction="both"):
        assert one.settings["other_way_ran_throughout"] == "5 of 5 samples"
    assert not [one for one in of(everything, direction="one") if "other_way_ran_throughout" in one.settings]


BOTH = {"sizes": "64K", "paths": "peer", "engines": "ce", "directions": "both"}


def test_a_way_back_that_ended_first_is_given_more_copies(measure):
    results = measure("gpu_copy", faults={"STANDIN_CUDA_COPY_US": "6000,2000"}, samples="2", **BOTH)
    assert len(results) == 4
    for one in results:
        assert (one.outcome, one.settings["other_way_ran_throughout"]) == ("measured", "2 of 2 samples")


def test_copies_that_never_overlapped_are_no_measurement_of_both_directions(measure):
    results = measure("gpu_copy", faults={"STANDIN_CUDA_COPY_US": "20000,100"}, samples="2", **BOTH)
    slow = [one for one in results if one.outcome == "waived"]
    assert [(one.path, one.parameters["by"]) for one in slow] == [("gpu0>gpu1", "write"), ("gpu1>gpu0", "read")]
    reason = "the reverse copies ended first in 2 of 2 samples: the result would cover a single direction"
    assert {one.reason for one in slow} == {reason}
    assert len([one for one in results if one.outcome == "measured"]) == 2


def test_long_copies_are_fewer(measure):
    faults = {"STANDIN_CUDA_COPY_US": "40000,40000"}
    results = measure("gpu_copy", sizes="64M", paths="local", engines="ce", samples="1", faults=faults)
    assert {(one.settings["copies"], one.settings["warm_copies"]) for one in results} <= {
        (4, 1),
        (5, 1),
        (6, 1),
        (7, 1),
    }
    assert gpu_copy._choose_counts(0.01) == (4, 16)
    assert gpu_copy._choose_counts(1.0) == (1, 4)


@pytest.mark.parametrize("name", ["gpu_copy", "gpu_latency"])
def test_sizes_that_do_not_fit_in_a_gpu_are_waived_and_the_others_measured(measure, name):
    results = measure(name, sizes="64K,600M", **({"paths": "local"} if name == "gpu_copy" else {"region": "64K"}))
    (large,) = of(results, size_bytes=600 << 20)
    assert (large.outcome, large.path) == ("waived", "memory0>gpu0")
    assert large.reason == "2 x 600 MiB do not fit in the memory of gpu0: 1 GiB is free"
    assert {one.outcome for one in of(results, size_bytes=64 << 10)} == {"measured"}


@pytest.mark.parametrize("name", ["gpu_copy", "gpu_latency"])
def test_where_no_size_fits_nothing_is_left_to_fail(measure, name):
    options = {"sizes": "1G"} if name == "gpu_copy" else {"sizes": "1G", "region": "1G"}
    results = measure(name, **options)
    assert {(one.outcome, one.parameters["size_bytes"]) for one in results} == {("waived", 1 << 30)}


def test_a_region_that_does_not_fit_waives_the_loads_alone(measure):
    results = measure("gpu_latency", sizes="8", region="600M")
    assert [one.outcome for one in of(results, size_bytes=600 << 20)] == ["waived"]
    assert {one.outcome for one in of(results, kind="copy")} == {"measured"}
    assert not of(results, kind="chase")


def test_a_copy_engine_that_flips_a_bit_is_found_on_every_path(measure):
    corrupt = {"STANDIN_CUDA_CORRUPT": "1"}
    for one in covered(lambda: measure("gpu_copy", faults=corrupt, sizes="64K", host="pinned,pageable")):
        ways = 2 if one.parameters["direction"] == "both" else 1
        assert one.verification.bytes_wrong == (ways if one.parameters["engine"] == "ce" else 0), one.parameters


def test_gpus_that_do_not_reach_each_other_copy_through_the_host_and_kernels_are_waived(measure):
    results = measure("gpu_copy", faults={"STANDIN_CUDA_NO_PEER": "1"}, sizes="64K", paths="peer")
    assert len(results) == 16
    for one in of(results, engine="ce", direction="one"):
        assert (one.outcome, one.evidence[0].value) == ("measured", "none: through the host")
        assert one.settings["start"] == "as enqueued", "the driver may wait for the GPU while it stages"
        assert one.verification.bytes_wrong == 0
    for one in of(results, engine="ce", direction="both"):
        assert (one.outcome, "ended first" in one.reason) == ("waived", True)
    for one in of(results, engine="sm"):
        assert one.outcome == "waived"
        assert one.reason.endswith("does not reach the other GPU's memory directly")


def test_memory_that_is_not_pinned_is_never_behind_a_held_stream(measure):
    """The driver waits for the GPU while it enqueues such a copy, so a held stream would deadlock."""
    results = measure("gpu_copy", sizes="64K", paths="host", host="pageable")
    assert [(one.path, one.parameters["engine"], one.parameters["direction"]) for one in results] == [
        *(("memory0>gpu0", "ce", "one"), ("gpu0>memory0", "ce", "one")),
        *(("memory0>gpu1", "ce", "one"), ("gpu1>memory0", "ce", "one")),
    ]
    for one in results:
        assert one.settings["start"] == "as enqueued"
        assert one.verification.bytes_wrong == 0


def test_latencies_are_of_copies_by_two_clocks_and_of_loads(measure):
    results = measure("gpu_latency", sizes="8,4K", region="64K")
    paths = ["memory0>gpu0", "gpu0>memory0", "memory0>gpu1", "gpu1>memory0", "gpu0>gpu1", "gpu1>gpu0"]
    for clock in ("host", "gpu"):
        for size in (8, 4096):
            assert [one.path for one in of(results, kind="copy", clock=clock, size_bytes=size)] == paths
    loads = of(results, kind="chase", size_bytes=64 << 10)
    assert sorted(one.path for one in loads) == sorted([*paths[::2], "gpu1>gpu0", "gpu0>gpu0", "gpu1>gpu1"])
    for one in results:
        assert one.quantity == "latency_s"
        assert one.summary.minimum > 0
        assert one.verification.bytes_wrong == 0
    assert {one.verification.bytes_checked for one in loads} == {8 * 100_003}


def test_without_peer_access_loads_are_waived_and_copies_go_through_the_host(measure):
    results = measure("gpu_latency", faults={"STANDIN_CUDA_NO_PEER": "1"}, region="64K")
    waivers = [(one.path, one.reason) for one in results if one.outcome == "waived"]
    assert waivers == [
        ("gpu0>gpu1", "gpu1 does not reach gpu0's memory directly"),
        ("gpu1>gpu0", "gpu0 does not reach gpu1's memory directly"),
    ]
    assert all(one.verification.bytes_wrong == 0 for one in of(results, kind="copy"))
    staged = [one for one in of(results, kind="copy", clock="gpu") if "memory0" not in one.path]
    assert [one.settings["start"] for one in staged] == ["as enqueued"] * 2


@pytest.mark.parametrize("name", ["gpu_copy", "gpu_latency"])
def test_a_driver_that_does_not_work_is_a_waiver_in_its_own_words(measure, name):
    (one,) = measure(name, faults={"STANDIN_CUDA_INIT": "100"})
    assert (one.outcome, one.path) == ("waived", "memory0>gpu0")
    assert one.reason == "the NVIDIA driver cannot be used: no CUDA-capable device is detected (CUDA error 100)"


@pytest.mark.parametrize("name", ["gpu_copy", "gpu_latency"])
def test_without_an_nvidia_gpu_it_is_waived_before_anything_starts(measure, name):
    (one,) = measure(name, topology=load(str(HOSTS / "2cpu-firecracker-vm/machine.jsonl")))
    assert (one.outcome, one.reason) == ("waived", "no NVIDIA GPU was found")


def test_a_gpu_that_cuda_hides_fails_the_launch_by_its_address(measure, two_gpus):
    (one,) = measure("gpu_copy", sizes="64K", faults={"STANDIN_GPUS": "1"})
    assert one.outcome == "failed"
    assert f"CUDA shows no GPU at {two_gpus.device('gpu1').address}" in one.reason


def test_a_waiver_has_the_number_of_gpus(two_gpus):
    assert waiver_reason(job_on(two_gpus)) == ""
    assert waiver_reason(job_on(two_gpus), least=4) == "4 GPUs are needed, 2 were found"
    one = msgspec.structs.replace(two_gpus, devices=tuple(d for d in two_gpus.devices if d.id != "gpu1"))
    assert waiver_reason(job_on(one), least=2) == "2 GPUs are needed, 1 was found"


def with_fact(topology, gpu, **facts):
    devices = [
        msgspec.structs.replace(device, facts={**device.facts, **facts}) if device.id == gpu else device
        for device in topology.devices
    ]
    return msgspec.structs.replace(topology, devices=tuple(devices))


def test_a_gpu_that_cuda_is_known_to_hide_is_left_out_by_name(measure, two_gpus):
    hidden = with_fact(two_gpus, "gpu0", cuda_visible=False)
    only = {"STANDIN_GPU_ADDRESSES": "0000:00:07.0"}
    results = covered(lambda: measure("gpu_copy", sizes="64K", topology=hidden, faults=only))
    assert {one.outcome for one in results} == {"measured"}
    assert {one.path for one in results} == {"memory0>gpu1", "gpu1>memory0", "gpu1>gpu1"}
    assert waiver_reason(job_on(hidden), least=2) == "2 GPUs are needed, 1 was found: CUDA does not show gpu0"


def test_a_gpu_that_is_cut_into_parts_is_not_measured_as_a_whole(two_gpus):
    cut = with_fact(two_gpus, "gpu1", mig=True)
    assert [gpu.id for gpu in job_on(cut).gpus] == ["gpu0"]
    assert waiver_reason(job_on(with_fact(cut, "gpu0", mig=True))) == (
        "no NVIDIA GPU can be used: MIG is on in gpu0; MIG is on in gpu1"
    )


@pytest.mark.parametrize("ranks", range(1, 9))
@pytest.mark.parametrize("count", [1, 2, 3, 4, 8, 31, 32, 192])
def test_ranks_of_gpus_have_cpus_of_their_own(two_gpus, ranks, count):
    job = with_ranks(job_on(two_gpus, cpus=range(count)), ranks)
    bound = [job.find_cpu(rank) for rank in range(ranks)]
    assert set(bound) <= set(range(count))
    assert len(set(bound)) == min(ranks, count)
    assert max(bound.count(cpu) for cpu in bound) == -(-ranks // count)


def test_two_ranks_do_not_share_a_core_however_its_threads_are_numbered(two_gpus):
    job = with_ranks(job_on(two_gpus, cpus=range(32)), 2)
    one, other = job.find_cpu(0), job.find_cpu(1)
    assert one // 2 != other // 2, "threads of a core are n and n + 1"
    assert one % 16 != other % 16, "threads of a core are n and n + half"


def test_each_rank_is_bound_to_a_cpu_of_its_own_near_its_gpu():
    topology = load(str(HOSTS / "8xh100-8nic/machine.jsonl"))
    job = job_on(topology, cpus=range(os.cpu_count() or 1))
    numa_of_gpu = [gpu.numa for gpu in job.gpus]
    assert len(job.gpus) == 8
    assert len(set(numa_of_gpu)) == 2
    lists = {cpu.numa: str(cpu.facts["cpu_list"]) for cpu in topology.of_kind("cpu")}
    firsts = {numa: int(text.partition("-")[0].partition(",")[0]) for numa, text in lists.items()}
    cpus = [first + k for first in firsts.values() for k in range(4)]
    job = with_ranks(job_on(topology, cpus), 8)
    bound = [job.find_cpu(rank) for rank in range(8)]
    assert len(set(bound)) == 8
    for rank, cpu in enumerate(bound):
        assert cpu - firsts[numa_of_gpu[rank]] in range(4)
        assert job.find_memory(rank) == f"memory{numa_of_gpu[rank]}"
    elsewhere = msgspec.structs.replace(job, launch=msgspec.structs.replace(job.launch, gpus=()))
    assert [elsewhere.find_cpu(rank) for rank in range(8)] == list(job.cpus)
    far = next(numa for numa in firsts if numa != numa_of_gpu[0])
    only_far = with_ranks(job_on(topology, (firsts[far], firsts[far] + 1)), 8)
    assert only_far.find_cpu(0) == firsts[far], "a node that may not be used is no reason to fail"


def test_amd_s_gpus_are_not_asked_by_cuda(two_gpus):
    amd = {"name": "AMD 1002:740f", "facts": {"pci_id": "1002:740f"}}
    devices = [msgspec.structs.replace(one, **(amd if one.id == "gpu0" else {})) for one in two_gpus.devices]
    job = job_on(msgspec.structs.replace(two_gpus, devices=tuple(devices)))
    assert [gpu.id for gpu in job.gpus] == ["gpu1"]


def test_a_machine_with_eight_gpus_is_measured_in_minutes():
    topology = load(str(HOSTS / "8xh100-8nic/machine.jsonl"))
    job = job_on(topology)
    plan = find("gpu_copy").plan(job)
    everything = find("gpu_copy").plan(job_on(topology, pairs="all"))
    assert everything.seconds > 2.5 * plan.seconds
    assert plan.seconds < 600
    assert find("gpu_latency").plan(job_latency(topology)).seconds < 180
    pairs = [(way.source, way.target) for way in gpu_copy._list_peer_copies(job)]
    assert len(set(pairs)) == 56
    assert [pairs.count((source, 5)) for source in range(8)] == [1, 1, 1, 1, 8, 0, 1, 1]


def test_a_hang_is_noticed_after_the_longest_step_and_not_after_the_whole_plan(two_gpus, monkeypatch):
    topology = load(str(HOSTS / "8xh100-8nic/machine.jsonl"))
    plan = find("gpu_copy").plan(job_on(topology, pairs="all"))
    assert plan.silent_s < 150 < 600 < plan.seconds
    waits = []
    session = SimpleNamespace(results=lambda: (), crashed=False, blamed=set())
    monkeypatch.setattr(measure_launches, "Session", lambda **of: waits.append(of["silence_s"]) or session)
    (planned,) = plan_launches(topology, [(find("gpu_copy"), find("gpu_copy").parse({}))])
    assert list(Measurement(silence_s=60.0).results(planned)) == []
    assert waits == [60.0 + planned.plan.longest_step_s]
    assert Plan(path="p", seconds=7.0, memory_bytes=0).silent_s == 7.0


def test_the_plan_grows_with_what_is_asked_for(two_gpus):
    plan = find("gpu_copy").plan
    small, large = plan(job_on(two_gpus, sizes="1M")), plan(job_on(two_gpus, sizes="1M,1G"))
    assert (small.memory_bytes, large.memory_bytes) == (2 << 20, 2 << 30)
    assert large.seconds > 10 * (small.seconds - 3)
    assert plan(job_on(two_gpus, paths="peer")).memory_bytes == 0
    # 4 warm-up and 16 timed copies, 5 times; with copies the other way 4 + 32 more.
    alone, with_the_other = 20 * 5, 56 * 5
    ways = 2 * (alone + with_the_other)  # by both engines
    host, peer, local = 4 * ways, 4 * ways, 2 * 2 * alone
    assert small.moved_bytes == (1 << 20) * (host + peer + local)


@pytest.mark.parametrize("text", ["511", "8G", "0", "many"])
def test_a_region_that_no_chain_fits_is_refused(text):
    with pytest.raises(UsageError):
        gpu_latency.parse_region(text)
    with pytest.raises(UsageError, match="gpu_latency region"):
        find("gpu_latency").parse({"region": text})

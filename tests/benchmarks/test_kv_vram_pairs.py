"""The pairs of GPUs between which NIXL moves memory, with the planned time and bytes."""
# ruff: noqa: F811 - a fixture of another module is imported, and is an argument

from __future__ import annotations

import os

import pytest
from tests.benchmarks.jobs import jobs_of
from tests.benchmarks.test_kv_vram import measure, two_gpus  # noqa: F401 - fixtures
from tests.stand_ins import stand_ins  # noqa: F401 - a fixture
from tests.topology.machines import archive

from railwright.benchmarks.kv import vram as kv_vram
from railwright.benchmarks.kv.vram_options import reduce_options
from railwright.benchmarks.registry import find
from railwright.errors import UsageError
from railwright.topology.sources.load import load

MIB = 2**20


@pytest.fixture(scope="module")
def eight_gpus():
    return load(str(archive("8xh200-probed-vm")))


def jobs(topology, **options):
    return jobs_of(find("kv_vram"), topology, tuple(sorted(os.sched_getaffinity(0))), options)


def paths(job):
    """Return (processes, link, WRITE's path) of everything that is measured, and the sizes."""
    options = reduce_options(job)
    written = [(one.processes, one.link, one.path(job, "WRITE")) for one in options.moves(len(job.gpus))]
    return written, options.sizes, options.operations


def test_by_default_every_gpu_writes_to_the_next_and_to_host_memory(eight_gpus):
    first, *others = jobs(eight_gpus)
    assert [gpu.id for gpu in first.gpus] == ["gpu0", "gpu1"]
    assert first.case.parameters() == {}, "it compares with runs of before"
    assert reduce_options(first) == first.options
    assert [job.case.gpus for job in others] == [f"gpu{number},gpu{(number + 1) % 8}" for number in range(1, 8)]
    for number, job in enumerate(others, 1):
        written, sizes, operations = paths(job)
        assert [path for *_, path in written] == [
            f"gpu{number}>gpu{(number + 1) % 8}", f"gpu{number}>{job.find_memory(1)}",
            f"{job.find_memory(1)}>gpu{number}",
        ]  # fmt: skip
        assert ({processes for processes, *_ in written}, operations) == ({2}, ("WRITE",))
        assert sizes == (4096, 256 * MIB)


def test_the_default_takes_less_than_two_minutes_on_eight_gpus(eight_gpus):
    assert sum(kv_vram.BENCHMARK.plan(job).seconds for job in jobs(eight_gpus)) < 120


def test_two_gpus_both_have_their_host_memory_measured_and_first_leaves_the_second_out(two_gpus):
    assert [[gpu.id for gpu in job.gpus] for job in jobs(two_gpus)] == [["gpu0", "gpu1"], ["gpu1", "gpu0"]]
    (only,) = jobs(two_gpus, pairs="first")
    assert [gpu.id for gpu in only.gpus] == ["gpu0", "gpu1"]


def test_all_pairs_have_every_way_and_each_gpu_its_host_memory_once(eight_gpus):
    every = jobs(eight_gpus, pairs="all")
    assert len({job.launch.gpus for job in every}) == len(every) == 56
    written = [(job.launch.gpus[0], *one) for job in every for one in paths(job)[0]]
    assert len(written) == len(set(written))
    assert sum(link == "gpu-gpu" for *_, link, _ in written) == 2 * 56
    assert sum(link == "gpu-host" for *_, link, _ in written) == 2 * 8
    assert {paths(job)[1:] for job in every} == {((4096, MIB, 256 * MIB), ("WRITE", "READ"))}
    hosts = jobs(eight_gpus, pairs="all", links="gpu-host")
    assert len(hosts) == 8, "no launch that measures nothing"


def test_requested_options_are_never_widened(eight_gpus):
    _, job, *_ = jobs(eight_gpus, processes="1", operations="READ", sizes="1M", links="gpu-gpu")
    assert paths(job) == ([(1, "gpu-gpu", "gpu1>gpu2")], (MIB,), ("READ",))


def test_every_way_of_ucx_goes_over_every_pair(two_gpus):
    ways = [job.case.parameters() for job in jobs(two_gpus, ucx="default,pipeline")]
    assert ways == [{}, {"ucx": "pipeline"}, {"gpus": "gpu1,gpu0"}, {"gpus": "gpu1,gpu0", "ucx": "pipeline"}]


def test_a_process_is_bound_near_its_own_gpu_of_the_pair():
    topology = load(str(archive("8xh100-8nic")))
    job = next(job for job in jobs(topology) if job.launch.gpus == ("gpu3", "gpu4"))
    assert [job.find_gpu(rank).id for rank in (0, 1)] == ["gpu3", "gpu4"]
    assert job.find_gpu(0).numa != job.find_gpu(1).numa, "the pair is over two sockets"


def test_one_gpu_has_one_launch():
    (job,) = jobs(load(str(archive("1xh100-probed-vm"))))
    assert job.launch.gpus == ("gpu0",)
    assert not any(one.processes == 1 and one.link == "gpu-gpu" for one in reduce_options(job).moves(len(job.gpus)))


def test_the_plan_has_the_moved_bytes(two_gpus):
    def moved(**options):
        return kv_vram.BENCHMARK.plan(jobs(two_gpus, **options)[0]).moved_bytes / MIB

    between = {"links": "gpu-gpu", "processes": "2", "operations": "WRITE", "sizes": "256M"}
    assert moved(**between) == (2 + 6 + 62) * 256
    assert moved(**between | {"links": "gpu-host"}) == (2 + 3) * 256, "emulated, so no more than it takes"
    assert moved(**between | {"links": "gpu-host", "ucx": "no peer errors"}) == (2 + 6 + 62) * 256
    # Two H200 (2026-11-22) moved 62 GB in the 36 points of a launch.
    assert 50e9 < moved() * MIB < 75e9


def test_invalid_pairs_are_refused():
    with pytest.raises(UsageError, match="no choice named 'both'"):
        find("kv_vram").parse({"pairs": "both"})


def test_a_launch_over_another_pair_names_its_gpus(measure):
    results = measure(launch=1, sizes="4K,64K,1M")
    assert {one.outcome for one in results} == {"measured"}, [one.reason for one in results]
    assert {one.parameters["gpus"] for one in results} == {one.settings["gpus"] for one in results} == {"gpu1,gpu0"}
    assert {(one.path, one.parameters["size_bytes"]) for one in results} == {
        (path, size) for path in ("gpu1>gpu0", "gpu1>memory0", "memory0>gpu1") for size in (4096, MIB)
    }
    assert {one.verification.bytes_wrong for one in results} == {0}

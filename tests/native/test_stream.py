"""STREAM's kernels compute the right values on every thread."""

from __future__ import annotations

import os

import pytest
from tests.benchmarks.jobs import job_of

from railwright.benchmarks.job import cpus_by_node
from railwright.benchmarks.memory.stream import BENCHMARK
from railwright.native.library import NativeError
from railwright.native.stream import KERNELS, WORD_BYTES, stream
from railwright.topology.expand import expand

PRIME_WORDS = 10_007


@pytest.mark.parametrize("threads", [1, 2])
def test_every_word_is_right_after_all_passes(threads: int) -> None:
    cpus = sorted(os.sched_getaffinity(0))[:threads]
    found = stream(cpus, PRIME_WORDS, 5)
    assert found.check.bytes_checked == 3 * len(cpus) * PRIME_WORDS * WORD_BYTES
    assert found.check.bytes_wrong == 0
    assert set(found.seconds) == set(KERNELS)
    assert all(len(seconds) == 4 and min(seconds) > 0 for seconds in found.seconds.values())


def test_a_cpu_that_does_not_exist_is_an_error() -> None:
    with pytest.raises(NativeError):
        stream([1023], PRIME_WORDS, 2)


def test_each_numa_node_is_measured_by_its_own_cpus() -> None:
    topology = expand("hgx-h100", {})
    (first, second) = (device for device in topology.of_kind("cpu"))
    assert first.numa != second.numa
    devices = tuple(
        type(device)(id=device.id, kind="cpu", numa=device.numa, facts={"cpu_list": cpus})
        for device, cpus in ((first, "0,2,4,6"), (second, "1,3,5,7"))
    )
    machine = type(topology)(name="odd and even", source="shape", devices=devices, links=())
    job = job_of(BENCHMARK, machine, tuple(range(8)))
    assert cpus_by_node(job.machine) == {0: [0, 2, 4, 6], 1: [1, 3, 5, 7]}
    assert BENCHMARK.plan(job).path == "memory0>cpu0"

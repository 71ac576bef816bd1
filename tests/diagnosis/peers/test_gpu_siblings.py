"""GPUs slower than their siblings are named, those that are merely farther away are not, nor is noise."""

from pathlib import Path

import pytest
from msgspec.structs import replace
from tests.archives import unpack
from tests.diagnosis.peers.gpu_points import findings, host_copies, machine, measured, near

from railwright.benchmarks.registry import DECLARATIONS
from railwright.diagnosis.runs.diagnose import diagnose
from railwright.results.store import load

RECORDED = Path(__file__).parents[3] / "testdata" / "measured"


def test_a_gpu_slower_than_its_siblings_is_named_with_both_values():
    (finding,) = findings(host_copies(slow=5))
    assert (finding.fault, finding.certainty) == ("gpu_slower_than_siblings", "likely")
    assert finding.where == ("gpu5", "memory1>gpu5")
    assert finding.says == "gpu5 is 25% slower than its siblings in gpu_copy at 512 MiB: 41.0 GB/s instead of 55.0 GB/s"
    assert finding.costs == "", "no collective goes through host memory"
    assert [one.value for one in finding.evidence] == ["41.0 GB/s (gpu5)", "55.0 GB/s (others)"]


def test_noise_between_gpus_is_no_fault():
    assert findings(host_copies(slow=5, value=53e9)) == []
    assert findings(host_copies(slow=5, value=51e9, noise=0.2)) == []


def test_copies_from_far_memory_are_compared_with_each_other_only():
    far = [one for number in (1, 2) for one in measured(f"memory1>gpu{number}", 30e9)]
    assert findings([*host_copies(), *far]) == []
    far += [one for number in (3, 0) for one in measured(f"memory1>gpu{number}", 30e9 if number else 20e9)]
    assert [finding.where[0] for finding in findings([*host_copies(), *far])] == ["gpu0"]


def test_of_pairs_the_gpu_that_they_share_is_named():
    pairs = [
        result
        for one in range(4)
        for other in range(4)
        if one != other
        for result in measured(f"gpu{one}>gpu{other}", 250e9 if 2 in (one, other) else 390e9)
    ]
    (finding,) = findings(pairs)
    assert finding.where[0] == "gpu2"
    assert len(finding.where) == 7
    assert finding.costs == "a collective runs at the rate of its slowest GPU"


def test_two_gpus_that_only_reach_each_other_cannot_be_told_apart():
    pairs = [*measured("gpu0>gpu1", 390e9), *measured("gpu1>gpu0", 250e9)]
    assert findings(pairs) == []


def test_a_higher_latency_is_slower():
    ways = [one for number in range(8) for one in measured(f"gpu{number}>gpu{number}", 3e-6 if number == 7 else 2e-6,
                                                           quantity="latency_s")]  # fmt: skip
    (finding,) = findings(ways)
    assert finding.where[0] == "gpu7"
    assert "50% slower" in finding.says


def test_the_host_clock_of_a_small_copy_says_nothing_of_a_gpu():
    ways = [one for number in range(8) for one in measured(f"gpu{number}>gpu{number}", 3e-6 if number == 7 else 2e-6,
                                                           quantity="latency_s", clock="host")]  # fmt: skip
    assert findings(ways) == []


def test_one_gpu_has_one_finding_for_all_sizes():
    sizes = [one for size in (1 << 20, 1 << 25, 1 << 29) for one in host_copies(slow=5, value=size**0.5 * 1e6)]
    by_size = [
        replace(one, parameters={"size_bytes": 1 << (20 + 3 * (index // 24))}) for index, one in enumerate(sizes)
    ]
    (finding,) = findings(by_size)
    assert finding.where[0] == "gpu5"


def test_gpus_of_two_kinds_are_not_held_against_each_other():
    topology = machine()
    devices = tuple(replace(one, name="NVIDIA L4") if one.id == "gpu5" else one for one in topology.devices)
    assert findings(host_copies(slow=5), replace(topology, devices=devices)) == []
    assert findings(measured("vda>gpu77", 1e9)) == []


@pytest.mark.parametrize(
    ("records", "name"),
    [
        ("copies-4xh200", "visit1/gpu_copy-0"),
        ("copies-4xh200", "visit1/gpu_copy-1"),
        ("copies-4xh200", "visit1/gpu_latency"),
        ("copies-8xh200", "visit2/gpu_copy-0"),
        ("copies-8xh200", "visit2/gpu_latency"),
    ],
)
def test_no_gpu_of_a_healthy_machine_is_accused(records, name, tmp_path):
    unpack(RECORDED / f"{records}.tar.xz", tmp_path, f"{name}/results.jsonl")
    found = [one for one in diagnose(load(tmp_path / name), DECLARATIONS).findings if one.fault.startswith("gpu_")]
    groups = [("gpu_group_slower", "possible")] if name == "visit2/gpu_latency" else []  # gpu0 to gpu3: another socket
    assert [(one.fault, one.certainty) for one in found] == groups


def latencies(values, **changed):
    return [one for number, value in enumerate(values)
            for one in measured(f"memory0>gpu{number}", value, quantity="latency_s", **changed)]  # fmt: skip


def test_gpus_that_are_all_alike_slower_may_be_on_another_socket():
    (finding,) = findings(latencies([1.30e-6, 1.28e-6, 1.29e-6, 1.30e-6]) + [
        one for number in (4, 5, 6, 7) for one in measured(near(number), 1.20e-6, quantity="latency_s")
    ])  # fmt: skip
    assert (finding.fault, finding.certainty) == ("gpu_group_slower", "possible")
    assert finding.where[:4] == ("gpu0", "gpu1", "gpu2", "gpu3")
    assert "slower than gpu4, gpu5, gpu6, gpu7" in finding.says


def test_a_gpu_that_only_just_passes_the_threshold_is_not_parted_from_its_like():
    near_ones = [one for number in (4, 5, 6, 7) for one in measured(near(number), 52e9)]
    far = [one for number in range(4) for one in measured(near(number), (49.0e9, 49.5e9, 49.6e9, 49.7e9)[number])]
    (finding,) = findings([*far, *near_ones])
    assert (finding.certainty, finding.where[:4]) == ("possible", ("gpu0", "gpu1", "gpu2", "gpu3"))


def test_a_sick_gpu_is_named_beside_a_group_that_is_farther_away():
    values = [20e9, 45e9, 45.2e9, 45.1e9, 55e9, 55e9, 55e9, 55e9]
    found = findings([one for number, value in enumerate(values) for one in measured(near(number), value)])
    assert [(one.fault, one.certainty, one.where[0]) for one in found] == [
        ("gpu_slower_than_siblings", "likely", "gpu0"),
        ("gpu_group_slower", "possible", "gpu1"),
    ]


def test_two_slow_gpus_that_are_not_alike_are_two_faults():
    values = [41e9, 30e9] + [55e9] * 6
    found = findings([one for number, value in enumerate(values) for one in measured(near(number), value)])
    assert sorted((one.certainty, one.where[0]) for one in found) == [("likely", "gpu0"), ("likely", "gpu1")]


def test_slow_gpus_whose_work_stays_among_gpus_are_each_named():
    found = findings([one for number in range(8) for one in measured(f"gpu{number}>gpu{number}",
                                                                     1.5e12 if number > 5 else 2.1e12)])  # fmt: skip
    assert [(one.certainty, one.where[0], one.costs) for one in found] == [
        ("likely", "gpu6", ""),
        ("likely", "gpu7", ""),
    ]


def test_of_two_gpus_one_may_be_farther_away():
    (finding,) = findings([*measured("memory0>gpu0", 45e9), *measured("memory0>gpu1", 55e9)])
    assert (finding.fault, finding.certainty) == ("gpu_group_slower", "possible")
    assert "gpu0 is 18% slower than gpu1" in finding.says


def test_what_crosses_host_memory_needs_a_second_launch():
    (finding,) = findings(host_copies(slow=5, launches=1))
    assert (finding.where[0], finding.certainty) == ("gpu5", "possible")
    assert "--launches 3" in finding.remedy


def test_every_launch_has_to_agree_on_what_crosses_host_memory():
    """Two processes of plain CUDA C++ on one healthy H200: docs/measured/4xh200."""
    others = [one for number in (1, 2, 3) for one in measured(near(number), 55.5e9, launches=2)]
    once, again = measured(near(0), 38.6e9, launches=1), measured(near(0), 55.4e9, launches=2)[1:]
    assert findings([*others, *once, *again]) == []
    again = measured(near(0), 38.9e9, launches=2)[1:]
    (finding,) = findings([*others, *once, *again])
    assert (finding.where[0], finding.certainty) == ("gpu0", "likely")


def test_both_ways_through_host_memory_says_nothing_of_a_gpu():
    assert findings(host_copies(slow=5, direction="both")) == []
    assert len(findings(host_copies(slow=5, direction="one"))) == 1


def test_samples_that_lie_further_apart_than_the_gpus_do_not_tell_them_apart():
    wide = [one for number in range(8) for one in measured(near(number), 47e9 if number == 5 else 55e9,
                                                           noise=0.12 if number == 5 else 0.001)]  # fmt: skip
    assert findings(wide) == []


def test_a_difference_below_the_resolution_of_the_gpu_clock_is_none():
    assert findings(latencies([5.50e-6, 5.18e-6, 5.18e-6, 5.18e-6], clock="gpu")) == []
    (finding,) = findings(latencies([5.80e-6, 5.18e-6, 5.18e-6, 5.18e-6], clock="gpu"))
    assert finding.where[0] == "gpu0"

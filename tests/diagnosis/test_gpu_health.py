"""GPUs that held a run back are named: throttled, at low clocks, or slower than their siblings."""

import pytest
from msgspec.structs import replace

from railwright.diagnosis.diagnose import diagnose
from railwright.diagnosis.gpu_health import SWITCHED_OFF, TOO_SHORT, look
from railwright.results.model import Context, Result, ResultFile, Run, Verification
from railwright.results.statistics import summarise
from railwright.topology.expand import expand

CLEAN = Verification(method="a test", bytes_checked=100, bytes_wrong=0)
HEALTHY = {"gpu_samples": 12, "gpu_clock_min_hz": 1980e6, "gpu_clock_median_hz": 1980e6, "gpu_clock_min_of": "gpu0",
           "gpu_throttle": "none", "gpu_temperature_max_c": 61.0}  # fmt: skip


def machine():
    """Eight H100 whose clocks are known."""
    host = expand("hgx-h100", {})
    clocks = {"sm_clock_max_hz": 1980e6, "sm_clock_application_hz": 1980e6}
    return replace(host, devices=tuple(replace(device, facts={**device.facts, **clocks}) if device.kind == "gpu"
                                       else device for device in host.devices))  # fmt: skip


def measured(path, value, *, launches=3, noise=0.001, quantity="bandwidth_bytes_per_s", settings=HEALTHY, **parameters):
    return [
        Result(
            benchmark="gpu_copy",
            quantity=quantity,
            path=path,
            parameters={"size_bytes": 1 << 29, **parameters},
            settings=settings,
            launch=launch,
            summary=summarise([value * (1 - noise), value, value * (1 + noise)]),
            verification=CLEAN,
        )
        for launch in range(launches)
    ]


def findings(results, topology=None):
    run = Run(railwright="0", started_at="2026-01-01T00:00:00+00:00", command=("railwright",),
              context=Context(host="h", kernel="k"), topology=topology or machine())  # fmt: skip
    return [
        one for one in diagnose(ResultFile(run=run, results=tuple(results))).findings if one.fault.startswith("gpu_")
    ]


def near(number):
    return f"memory{number // 4}>gpu{number}"


def host_copies(slow=None, value=41e9, **changed):
    return [
        result for number in range(8) for result in measured(near(number), value if number == slow else 55e9, **changed)
    ]


def test_a_healthy_run_finds_nothing():
    assert findings(host_copies()) == []


def test_a_sampler_that_failed_is_no_clean_bill_of_health():
    dead = {"gpu_samples": 0, "gpu_not_watched": "the sampler ended: killed by SIGABRT"}
    (found,) = findings([*host_copies(), *measured("gpu0>gpu1", 390e9, settings=dead)])
    assert (found.fault, found.certainty) == ("gpu_not_watched", "could not look")
    assert found.says == "24 of 27 GPU results were watched: the sampler ended: killed by SIGABRT"


@pytest.mark.parametrize("why", [SWITCHED_OFF, TOO_SHORT])
def test_points_too_short_for_a_sample_are_no_failure(why):
    assert findings(measured("gpu0>gpu1", 390e9, settings={"gpu_samples": 0, "gpu_not_watched": why})) == []
    assert look((), (), machine()) == ()


@pytest.mark.parametrize("reasons", ["hardware slowdown", "software power cap, hardware thermal slowdown"])
def test_a_gpu_that_was_throttled_is_seen_with_its_reason(reasons):
    hot = HEALTHY | {"gpu_throttle": reasons, "gpu_throttle_of": "gpu1,gpu3", "gpu_clock_min_hz": 1200e6,
                     "gpu_temperature_max_c": 91.0}  # fmt: skip
    (finding,) = findings(measured("gpu1>gpu3", 300e9, settings=hot))
    assert (finding.fault, finding.certainty) == ("gpu_throttled", "seen")
    assert finding.where == ("gpu1", "gpu3", "gpu_copy")
    assert finding.evidence[0].value == f"{reasons}; 1200 MHz, 91 C"
    assert finding.evidence[0].seen == "NVML, 36 samples under load"
    assert finding.remedy


def test_a_gpu_held_at_its_power_limit_is_only_possibly_at_fault():
    capped = HEALTHY | {"gpu_throttle": "software power cap", "gpu_throttle_of": "gpu1", "gpu_clock_min_hz": 1500e6}
    (finding,) = findings(measured("gpu1>gpu3", 300e9, settings=capped))
    assert finding.certainty == "possible"


def test_a_low_clock_without_a_reason_is_named():
    low = HEALTHY | {"gpu_clock_min_hz": 1410e6, "gpu_clock_median_hz": 1410e6, "gpu_clock_min_of": "gpu5"}
    (finding,) = findings([*host_copies(), *measured("gpu5>gpu6", 300e9, settings=low)])
    assert (finding.fault, finding.where, finding.certainty) == (
        "gpu_clock_dropped",
        ("gpu5", "gpu_copy"),
        "possible",
    )
    assert finding.says == "the SM clock of gpu5 was 1410 MHz under load, 1980 MHz are due"
    barely = HEALTHY | {"gpu_clock_min_hz": 1900e6, "gpu_clock_min_of": "gpu5"}
    assert findings(measured("gpu5>gpu6", 300e9, settings=barely)) == []


def test_results_without_samples_say_nothing():
    assert findings(host_copies(settings={})) == []


def test_a_gpu_slower_than_its_siblings_is_named_with_both_values():
    (finding,) = findings(host_copies(slow=5))
    assert (finding.fault, finding.certainty) == ("gpu_slower_than_siblings", "likely")
    assert finding.where == ("gpu5", "memory1>gpu5")
    assert "25% slower" in finding.says
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

"""GPUs that held a run back, throttled or at low clocks, are named, and the samples are summarized."""

import pytest
from tests.diagnosis.peers.gpu_points import HEALTHY, findings, host_copies, machine, measured

from railwright.diagnosis.peers.gpu_health import (
    OF_LAUNCH,
    OF_RESULT_BEFORE,
    SWITCHED_OFF,
    TOO_SHORT,
    find_unhealthy_gpus,
    format_samples,
)


def test_a_healthy_run_finds_nothing():
    assert findings(host_copies()) == []


def test_a_sampler_that_failed_is_no_clean_bill_of_health():
    dead = {"gpu_samples": 0, "gpu_not_watched": "the sampler ended: killed by SIGABRT"}
    (found,) = findings([*host_copies(), *measured("gpu0>gpu1", 390e9, settings=dead)])
    assert (found.fault, found.certainty) == ("gpu_not_watched", "could not look")
    assert found.says == "24 of 27 GPU results were sampled: the sampler ended: killed by SIGABRT"
    assert found.costs == "throttling of GPUs during the others is unknown"


def test_where_nothing_was_watched_there_are_no_others():
    dead = {"gpu_samples": 0, "gpu_not_watched": "NVML does not list gpu0"}
    (found,) = findings(measured("gpu0>gpu1", 390e9, settings=dead))
    assert found.says == "0 of 3 GPU results were sampled: NVML does not list gpu0"
    assert found.costs == "throttling of GPUs is unknown"


@pytest.mark.parametrize("why", [SWITCHED_OFF, TOO_SHORT])
def test_points_too_short_for_a_sample_are_no_failure(why):
    assert findings(measured("gpu0>gpu1", 390e9, settings={"gpu_samples": 0, "gpu_not_watched": why})) == []
    assert find_unhealthy_gpus((), (), machine()) == ()


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
    assert finding.says == "the SM clock of gpu5 was 1410 MHz under load instead of 1980 MHz"
    barely = HEALTHY | {"gpu_clock_min_hz": 1900e6, "gpu_clock_median_hz": 1900e6, "gpu_clock_min_of": "gpu5"}
    assert findings(measured("gpu5>gpu6", 300e9, settings=barely)) == []


def test_one_low_sample_among_others_is_a_gpu_that_has_just_begun():
    """On four H200 one sample showed 690 MHz, at the start of a launch, and the other samples of that GPU 1980."""
    begun = HEALTHY | {"gpu_clock_min_hz": 690e6, "gpu_clock_min_of": "gpu2"}
    assert findings(measured("gpu2>gpu3", 300e9, settings=begun)) == []


def test_the_gpu_that_is_slow_all_the_time_is_named_and_not_the_one_with_the_lowest_sample():
    slow = {"gpu_clock_min_hz": 690e6, "gpu_clock_min_of": "gpu2", "gpu_clock_median_hz": 1410e6,
            "gpu_clock_median_of": "gpu5"}  # fmt: skip
    (finding,) = findings([*host_copies(), *measured("gpu5>gpu6", 300e9, settings=HEALTHY | slow)])
    assert (finding.fault, finding.where) == ("gpu_clock_dropped", ("gpu5", "gpu_copy"))
    assert finding.says == "the SM clock of gpu5 was 1410 MHz under load instead of 1980 MHz"


def test_results_without_samples_say_nothing():
    assert findings(host_copies(settings={})) == []


HOT = HEALTHY | {"gpu_throttle": "hardware thermal slowdown", "gpu_throttle_of": "gpu1", "gpu_samples": 21}


def test_a_sample_counts_once_however_many_results_share_it():
    shared = [HOT, *[HOT | {"gpu_samples_of": OF_RESULT_BEFORE}] * 4]
    (finding,) = findings([one for settings in shared for one in measured("gpu1>gpu3", 3e11, launches=1,
                                                                          settings=settings)])  # fmt: skip
    assert finding.evidence[0].seen == "NVML, 21 samples under load"


def test_samples_of_a_launch_that_several_results_took_count_once():
    taken = [HOT | {"gpu_samples_of": OF_LAUNCH, "gpu_samples": number} for number in (3, 5, 8)]
    results = [one for settings in taken for one in measured("gpu1>gpu3", 3e11, launches=1, settings=settings)]
    (finding,) = findings(results)
    assert finding.evidence[0].seen == "NVML, 8 samples under load"
    (finding,) = findings([*results, *measured("gpu1>gpu3", 3e11, launches=1, settings=HOT)])
    assert finding.evidence[0].seen == "NVML, 21 samples under load"


def watched(*settings):
    return format_samples(one for each in settings for one in measured("gpu0>gpu1", 1e9, launches=1, settings=each))


def test_one_line_says_what_was_watched_and_what_was_not():
    warm = HEALTHY | {"gpu_power_max_w": 244.878}
    short, dead = {"gpu_samples": 0, "gpu_not_watched": TOO_SHORT}, {"gpu_samples": 0, "gpu_not_watched": SWITCHED_OFF}
    together = warm | {"gpu_samples_of": OF_RESULT_BEFORE}
    assert watched(warm, together, warm | {"gpu_samples_of": OF_LAUNCH}, short, short, dead) == (
        "clocks 1980 MHz, up to 245 W and 61 C, no throttling; 2 of 6 GPU results sampled themselves, 1 by their"
        " launch, 2 not: too short, 1 not: sampling is switched off"
    )
    assert watched(warm, HOT | {"gpu_clock_min_hz": 1410e6}).startswith(
        "clocks from 1410 MHz, up to 245 W and 61 C, throttled: hardware thermal slowdown; 2 of 2"
    )


def test_what_nobody_saw_is_not_said_to_be_fine():
    assert watched({"gpu_samples": 0, "gpu_not_watched": "NVML may hang"}) == (
        "clocks unknown, throttling unknown; 0 of 1 GPU results sampled themselves, 1 not: NVML may hang"
    )
    assert watched({"gpu_samples": 4}).startswith("clocks unknown, throttling unknown; 1 of 1")


def test_a_run_without_gpus_has_no_line_of_them():
    assert watched({"iterations": 7}) == ""
    assert format_samples(()) == ""

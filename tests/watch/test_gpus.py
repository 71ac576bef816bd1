"""GPUs of a job, emulated by a stand-in for NVML: their curves show its iterations, and which GPU is throttled."""

from __future__ import annotations

import json
import sys
from array import array
from pathlib import Path

import pytest
from tests.schemas import fits
from tests.stand_ins import environment

from railwright.sampling.recording import Recorded, RecordingMetadata
from railwright.sampling.sources import Source
from railwright.watch.gpu_curves import find_held_back, find_slower_gpus, sum_energy

GPUS = ("0000:00:06.0", "0000:00:07.0")
NAN = float("nan")


@pytest.mark.machine
def test_the_iterations_of_a_job_are_told_by_power_and_nvlink(railwright, stand_ins: Path, tmp_path: Path) -> None:
    with_gpus = environment(stand_ins, *GPUS, STANDIN_NVML_WAVE="500", STANDIN_NVML_BUSY="90")
    for seconds in (9, 30, 90):  # a starved machine loses samples, and shorter recordings have no estimate then
        file = tmp_path / f"{seconds}.arrows"
        job = [sys.executable, "-c", f"import time; time.sleep({seconds})"]
        done = railwright("watch", "--json", "--record", str(file), "--", *job, environment=with_gpus)
        assert done.status == 0, done.err
        found = json.loads(done.out)
        fits(found, "watch")
        if found["estimates"]:
            break
    stands_for = {one["name"]: one["stands_for"] for one in found["sources"]}
    assert [stands_for[f"gpu{number}.power"] for number in (0, 1)] == ["compute", "compute"]
    assert stands_for["gpu1.nvlink.tx"] == "traffic"
    one = found["estimates"][0]
    assert one["period_s"] == pytest.approx(0.5, rel=0.02)
    again = json.loads(railwright("watch", "--from", str(file), "--json").out)
    assert again["estimates"] == found["estimates"]
    assert found["missing"]["gpu0.pcie.tx"] == "NVML has no answer"


@pytest.mark.machine
def test_sixteen_gpus_are_watched(railwright, stand_ins: Path) -> None:
    addresses = [f"0000:{number:02x}:00.0" for number in range(1, 17)]
    done = railwright("watch", "--seconds", "1", "--json", environment=environment(stand_ins, *addresses))
    assert done.status == 0, done.err
    found = json.loads(done.out)
    assert "GPUs" not in found["missing"]
    names = {one["name"] for one in found["sources"]}
    assert {f"gpu{number}.power" for number in range(16)} <= names


@pytest.mark.machine
def test_a_gpu_that_is_slower_than_its_siblings_is_named_with_the_reason(railwright, stand_ins: Path) -> None:
    faults = {"WAVE": "500", "BUSY": "90", "CLOCK": "1200", "HOT": "40"}
    with_gpus = environment(stand_ins, *GPUS, **{f"STANDIN_NVML_{name}": value for name, value in faults.items()})
    done = railwright("watch", "--seconds", "6", environment=with_gpus)
    assert "slower          gpu1 from 0." in done.out
    assert "1200 MHz, its siblings 1980 MHz; held back by heat" in done.out
    assert "held back       gpu1 by heat, from " in done.out


@pytest.mark.machine
@pytest.mark.parametrize(("fault", "says"), [
    ({"STANDIN_NVML_CRASH": "1"}, "the program that reads NVML ended (killed by SIGABRT)"),
    ({"LD_LIBRARY_PATH": ""}, "NVML cannot be used"),
])  # fmt: skip
def test_without_nvml_everything_else_is_watched(railwright, stand_ins: Path, fault: dict, says: str) -> None:
    done = railwright("watch", "--seconds", "1", environment=environment(stand_ins, *GPUS) | fault)
    assert done.status == 0, done.err
    assert says in done.out


def recorded(times: list[float], **columns: list[float]) -> Recorded:
    names = {name.replace("__", ".held_back.").replace("_of_", "."): told for name, told in columns.items()}
    sources = tuple(Source(name=name, kind="gpu", unit="W", scale=1, path="nvml", gauge=True) for name in names)
    about = RecordingMetadata(format=1, begun_unix_s=0, begun_s=0, interval_s=1, scope="", sources=sources)
    return Recorded(about=about, times_s=array("d", times), moved=tuple(array("f", told) for told in names.values()))


def test_powers_that_change_at_different_times_are_added_up_at_the_pace_of_the_slower() -> None:
    times = [number / 10 for number in range(41)]
    fast = [100.0 + number % 2 for number in range(41)]
    slow = [200.0 + number // 4 for number in range(41)]
    steps = sum_energy(recorded(times, gpu0_of_power=fast, gpu1_of_power=slow), [0, 1])
    told = [(at, moved) for at, moved in zip(*steps, strict=True) if moved == moved]
    assert [round(at, 3) for at, _ in told][:3] == [0.4, 0.8, 1.2]
    assert sum(moved for _, moved in told) == pytest.approx(4.0 * (100.5 + 204.5), rel=0.01)


def test_when_a_gpu_was_held_back_is_told_and_one_reading_makes_no_slower_gpu() -> None:
    times = [float(number) for number in range(10)]
    one = recorded(times, gpu0__heat=[NAN, 0, 0, 0, 0, 0.5, 0.5, 0.5, 0.5, 0.5], gpu1__heat=[NAN] + [0] * 9)
    (found,) = find_held_back(one)
    assert (found.gpu, found.by, found.from_s, found.fraction) == ("gpu0", "heat", 4.5, pytest.approx(2.5 / 4.5))
    clocks = {f"gpu{number}_of_clock": [2e9] * 10 for number in range(3)}
    use = {f"gpu{number}_of_use.kernels": [90.0] * 10 for number in range(3)}
    assert find_slower_gpus(recorded(times, **clocks, **use)) == ()
    clocks["gpu1_of_clock"] = [2e9, 1e9, 2e9, 2e9, 2e9, 1.5e9, 1.5e9, 1.5e9, 2e9, 2e9]
    (slow,) = find_slower_gpus(recorded(times, **clocks, **use))
    assert (slow.gpu, slow.from_s, slow.to_s, slow.clock_hz, slow.why) == ("gpu1", 5.0, 7.0, 1.5e9, ())
    idle = use | {"gpu1_of_use.kernels": [0.0] * 10}
    assert find_slower_gpus(recorded(times, **clocks, **idle)) == ()


# SM clocks in MHz of four healthy H200 at their power limit, once in 1.5 s, in a training by DistributedDataParallel.
SWINGS = """
1784 1784 1755 1860  1604 1770 1710 1860  1724 1560 1515 1770  1724 1680 1755 1724  1590 1664 1800 1650
1664 1530 1620 1530  1784 1815 1695 1784  1830 1680 1844 1800  1695 1710 1815 1740  1590 1664 1800 1770
1620 1680 1724 1470  1784 1560 1740 1560  1770 1635 1680 1844  1815 1830 1740 1890  1860 1740 1815 1544
1635 1740 1604 1890  1815 1755 1544 1844  1815 1830 1515 1664  1484 1440 1484 1844  1544 1484 1740 1484
1770 1740 1784 1515  1830 1800 1724 1710  1800 1860 1844 1770  1830 1844 1604 1800  1484 1500 1455 1800
1530 1815 1484 1620  1604 1515 1604 1575  1724 1740 1800 1800  1815 1635 1815 1695  1515 1500 1500 1830
1800 1755 1620 1890  1515 1515 1695 1844  1530 1455 1530 1635  1604 1515 1784 1515
"""


def swinging(slower: float) -> Recorded:
    rows = [float(word) for word in SWINGS.split()]
    clocks = {f"gpu{number}_of_clock": [1e6 * value for value in rows[number::4]] for number in range(4)}
    clocks["gpu2_of_clock"] = [slower * value for value in clocks["gpu2_of_clock"]]
    use = {f"gpu{number}_of_use.kernels": [90.0] * (len(rows) // 4) for number in range(4)}
    return recorded([1.5 * number for number in range(len(rows) // 4)], **clocks, **use)


def test_gpus_whose_clocks_swing_under_a_power_limit_are_not_slower() -> None:
    assert find_slower_gpus(swinging(1.0)) == ()
    (slow,) = find_slower_gpus(swinging(0.8))
    assert slow.gpu == "gpu2"
    assert slow.clock_hz < 0.9 * slow.siblings_hz

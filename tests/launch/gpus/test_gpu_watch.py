"""GPUs are sampled during a measurement, results report their states, and a busy GPU is refused."""

import os
import time
from types import SimpleNamespace

import pytest
from tests.benchmarks.jobs import job_of
from tests.conftest import PATIENCE_S, wait_until
from tests.stand_ins import environment, stand_ins  # noqa: F401 - a fixture
from tests.topology.machines import archive

from railwright.benchmarks.benchmark import Benchmark, Plan
from railwright.benchmarks.job import Case, Job, Launch, Machine
from railwright.benchmarks.options import Options
from railwright.benchmarks.registry import find
from railwright.diagnosis.peers.gpu_health import SWITCHED_OFF, TOO_SHORT
from railwright.errors import CannotJudge
from railwright.launch.gpus import business as gpu_business
from railwright.launch.gpus import watch as gpu_watch
from railwright.launch.gpus.business import describe_use, refuse_busy_gpus
from railwright.launch.gpus.samples import GpuSample, GpuUse, Sample, select_loaded, summarize
from railwright.launch.gpus.watch import GpuWatch
from railwright.launch.local import LocalLauncher
from railwright.launch.session import PlannedLaunch, Session
from railwright.results.declarations import Declaration
from railwright.results.records import Result
from railwright.results.workload import Unlimited
from railwright.topology.devices import Device
from railwright.topology.gpus import usable_gpus
from railwright.topology.sources import nvidia
from railwright.topology.sources.load import load
from railwright.workflows import measuring

ADDRESSES = ("0000:00:06.0", "0000:00:07.0")
IDLE, POWER_CAP, APPLICATION_CLOCKS, THERMAL = 0x01, 0x04, 0x02, 0x40
GPUS = {
    address: Device(id=f"gpu{number}", kind="gpu", address=address, facts={"sm_clock_max_hz": 1980e6})
    for number, address in enumerate(ADDRESSES)
}


def sample(at_s, *gpus):
    """Each GPU as (SM MHz, reason bits)."""
    seen = tuple(
        GpuSample(address, clock * 1e6, 3201e6, 500.0 + number, 40.0 + number, 100, reasons)
        for number, (address, (clock, reasons)) in enumerate(zip(ADDRESSES, gpus, strict=False))
    )
    return Sample(at_s, seen)


def clocks(samples):
    return [[gpu.sm_clock_hz / 1e6 for gpu in one.gpus] for one in samples]


def test_idle_samples_and_the_first_under_load_do_not_count():
    samples = [sample(0, (345, IDLE)), sample(1, (900, 0)), sample(2, (1980, 0)), sample(3, (345, IDLE)),
               sample(4, (700, 0)), sample(5, (1965, 0))]  # fmt: skip
    assert clocks(select_loaded(samples)) == [[], [], [1980], [], [], [1965]]


def test_a_driver_that_gives_no_reasons_is_judged_by_utilisation():
    busy = GpuSample(ADDRESSES[0], 1980e6, None, None, None, 80, None)
    idle = GpuSample(ADDRESSES[0], 345e6, None, None, None, 0, None)
    kept = select_loaded([Sample(0, (busy,)), Sample(1, (busy,)), Sample(2, (idle,))])
    assert [len(one.gpus) for one in kept] == [0, 1, 0]


def test_a_result_names_the_slowest_gpu_and_what_held_it_down():
    samples = [sample(1, (1980, 0), (1410, POWER_CAP | THERMAL)), sample(2, (1980, 0), (1500, POWER_CAP))]
    settings, (evidence,) = summarize(samples, GPUS)
    assert settings == {
        "gpu_samples": 2,
        "gpu_clock_min_hz": 1410e6,
        "gpu_clock_median_hz": 1455e6,
        "gpu_clock_min_of": "gpu1",
        "gpu_clock_median_of": "gpu1",
        "gpu_memory_clock_min_hz": 3201e6,
        "gpu_power_max_w": 501.0,
        "gpu_temperature_max_c": 41.0,
        "gpu_throttle": "software power cap, hardware thermal slowdown",
        "gpu_throttle_of": "gpu1",
    }
    assert evidence.value == "1410 of 1980 MHz, software power cap, hardware thermal slowdown (gpu1)"
    assert evidence.seen == "NVML, 2 samples of gpu0, gpu1"


def test_the_lowest_median_may_be_another_gpu_s_than_the_lowest_sample():
    samples = [sample(1, (690, 0), (1500, 0)), sample(2, (1980, 0), (1500, 0)), sample(3, (1980, 0), (1500, 0))]
    settings, _ = summarize(samples, GPUS)
    assert (settings["gpu_clock_min_of"], settings["gpu_clock_min_hz"]) == ("gpu0", 690e6)
    assert (settings["gpu_clock_median_of"], settings["gpu_clock_median_hz"]) == ("gpu1", 1500e6)


def test_clocks_that_a_user_set_and_idleness_are_no_throttling():
    settings, (evidence,) = summarize([sample(1, (1980, APPLICATION_CLOCKS))], GPUS)
    assert settings["gpu_throttle"] == "none"
    assert "gpu_throttle_of" not in settings
    assert evidence.value == "1980 of 1980 MHz"


def test_gpus_of_others_are_not_told():
    settings, evidence = summarize([sample(1, (1980, 0), (300, THERMAL))], {ADDRESSES[0]: GPUS[ADDRESSES[0]]})
    assert (settings["gpu_clock_min_hz"], settings["gpu_throttle"]) == (1980e6, "none")
    assert "gpu1" not in evidence[0].seen
    assert summarize([], GPUS) == ({}, ())
    assert summarize([sample(1)], GPUS) == ({}, ())


@pytest.fixture(scope="module")
def machine():
    return load(str(archive("2xh200-firecracker-vm")))


def job_on(machine, cpus=(0, 1), ranks=1, *, uses_gpus=True):
    gpus = tuple(gpu.id for gpu in usable_gpus(machine)) if uses_gpus else ()
    launch = Launch(case=Case(), ranks=ranks, gpus=gpus)
    return Job(benchmark="b", options=Options(), launch=launch, machine=Machine(topology=machine, cpus=cpus))


def benchmark():
    return Benchmark(name="b", summary="", method="", results=(Declaration("latency_s", Unlimited(why="")),),
                     options=Options, plan=lambda _: Plan(path="gpu0>gpu1"), run=lambda _: iter(()))  # fmt: skip


RESULT = Result(benchmark="b", quantity="latency_s", path="gpu0>gpu1", settings={"iterations": 7})


def watched(variables, machine, ready):
    with GpuWatch(job_on(machine), variables) as watch:
        wait_until(lambda: ready(watch), "what the watch waits for")
        return watch.add_samples(RESULT)


def test_a_launch_is_watched_by_a_child(stand_ins, machine):  # noqa: F811
    variables = os.environ | environment(stand_ins, *ADDRESSES, STANDIN_NVML_BUSY="97", STANDIN_NVML_CLOCK="1410")
    result = watched(variables, machine, lambda watch: len(watch._child.output) >= 4)
    assert result.settings["gpu_samples"] >= 2
    assert (result.settings["gpu_clock_min_hz"], result.settings["gpu_clock_min_of"]) == (1410e6, "gpu1")
    assert (result.settings["gpu_power_max_w"], result.settings["iterations"]) == (512.34, 7)
    assert result.evidence[0].claim == "GPU clocks"


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({"RAILWRIGHT_GPU_SAMPLING": "off", "STANDIN_NVML_BUSY": "97"}, SWITCHED_OFF),
        ({"STANDIN_NVML_BUSY": "0"}, TOO_SHORT),
        ({"STANDIN_NVML_HANG": "1"}, "the sampler has printed nothing: NVML may hang"),
        ({"STANDIN_NVML_CRASH": "1"}, "the sampler ended: killed by SIGABRT"),
        ({"STANDIN_NVML_LISTS": "0"}, "NVML does not list gpu0, gpu1"),
    ],
)
def test_a_result_without_samples_says_so_and_why(stand_ins, machine, changed, why, monkeypatch):  # noqa: F811
    monkeypatch.setattr(gpu_watch, "_SILENT_S", 1.0 if "printed nothing" in why else PATIENCE_S)

    def is_known(watch):
        sampled = watch._child is None or len(watch._child.output) >= 2
        return sampled or TOO_SHORT != watch._explain_missing() == why

    result = watched(os.environ | environment(stand_ins, *ADDRESSES, **changed), machine, is_known)
    assert result.settings == {"iterations": 7, "gpu_samples": 0, "gpu_not_watched": why}
    assert result.evidence == ()


def test_the_last_words_of_a_sampler_that_ended_are_kept(machine, monkeypatch):
    watch = with_samples(machine)
    monkeypatch.setattr(watch._child, "poll", lambda: 1)
    watch._child.output.append("NVMLError_LibraryNotFound: NVML Shared Library Not Found")
    why = watch.add_samples(RESULT).settings["gpu_not_watched"]
    assert (
        why
        == "the sampler ended: exit status 1, its output: 'NVMLError_LibraryNotFound: NVML Shared Library Not Found'"
    )


def test_a_benchmark_without_gpus_starts_no_sampler(machine):
    watch = GpuWatch(job_on(machine, uses_gpus=False), dict(os.environ))
    assert watch._child is None


def test_the_sampler_keeps_off_the_cpus_of_ranks(machine):
    watch = GpuWatch(job_on(machine, cpus=(2, 3, 4), ranks=2), dict(os.environ))
    assert watch._child.argv[-1] == "3"
    watch = GpuWatch(job_on(machine, cpus=(2, 3), ranks=2), dict(os.environ))
    assert watch._child.argv[-1] == "0.5"


def with_samples(machine, *samples):
    """A watch with the given samples, without its child."""
    watch = GpuWatch(job_on(machine), dict(os.environ))
    watch._child.output.clear()
    watch._taken = list(samples)
    watch._child.poll = lambda: None
    return watch


def seen(result):
    return result.settings.get("gpu_clock_min_hz", 0) / 1e6


def test_samples_belong_to_the_result_in_whose_time_they_were_taken(machine, monkeypatch):
    now = [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    samples = [sample(at, (1000 + at, 0), (1980, 0)) for at in range(30)]
    watch = with_samples(machine, *samples)
    now[0] = 5.5
    assert seen(watch.add_samples(RESULT)) == 1001  # the very first sample follows no other
    now[0] = 9.5
    assert seen(watch.add_samples(RESULT)) == 1006
    now[0] = 9.52  # measured together with the previous result
    assert seen(watch.add_samples(RESULT)) == 1006
    now[0] = 15.5
    watch.mark()
    now[0] = 16.9
    watch.mark()  # a later step of the same result
    now[0] = 17.5
    assert seen(watch.add_samples(RESULT)) == 1016
    watch.mark()
    now[0] = 17.52  # a separate short result, during which no sample was taken
    short = watch.add_samples(RESULT)
    assert (short.settings["gpu_samples_of"], short.settings["gpu_samples"]) == ("launch", 17)
    assert short.evidence[0].seen == "NVML, 17 samples of gpu0, gpu1 earlier in its launch"


def test_results_that_share_samples_say_so(machine, monkeypatch):
    now = [5.5]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    watch = with_samples(machine, *(sample(at, (1980, 0), (1980, 0)) for at in range(6)))
    watch._since = 0.0
    first = watch.add_samples(RESULT)
    now[0] = 5.52
    second = watch.add_samples(RESULT)
    assert "gpu_samples_of" not in first.settings
    assert second.settings == first.settings | {"gpu_samples_of": "the result before it"}


def test_a_short_result_before_any_sample_says_that_it_was_too_short(machine, monkeypatch):
    monkeypatch.setattr(time, "monotonic", lambda: 1.2)
    watch = with_samples(machine, sample(0, (345, IDLE), (345, IDLE)), sample(1, (1980, 0), (345, IDLE)),
                         sample(2, (1200, THERMAL), (1980, 0)))  # fmt: skip
    assert watch.add_samples(RESULT).settings == {"iterations": 7, "gpu_samples": 0, "gpu_not_watched": TOO_SHORT}


@pytest.mark.parametrize(
    ("after_s", "status", "why"),
    [
        (10.2, 1, "the sampler ended: exit status 1"),
        (45.0, None, "the sampler has printed nothing for 30 s: NVML may hang"),
    ],
)
def test_a_sampler_that_stopped_does_not_vouch_for_what_came_after(machine, monkeypatch, after_s, status, why):
    now = [5.5]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    watch = with_samples(machine, *(sample(at, (1980, 0), (1980, 0)) for at in range(6)))
    watch._since = 0.0
    assert watch.add_samples(RESULT).settings["gpu_samples"] == 5
    watch._child.poll = lambda: status
    now[0] = after_s - 0.1
    watch.mark()
    now[0] = after_s
    assert watch.add_samples(RESULT).settings == {"iterations": 7, "gpu_samples": 0, "gpu_not_watched": why}


def test_a_long_launch_keeps_the_last_samples_only(machine, monkeypatch):
    now = [1000.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    watch = with_samples(machine, *(sample(at, (1980, 0), (1980, 0)) for at in range(1000)))
    watch._since = 999.9
    assert watch.add_samples(RESULT).settings["gpu_samples"] == gpu_watch._KEPT_SAMPLES - 1
    assert len(watch._taken) == gpu_watch._KEPT_SAMPLES


def test_waived_and_failed_results_are_left_alone(machine):
    watch = with_samples(machine, *(sample(at, (1980, 0)) for at in range(5)))
    waived = Result(benchmark="b", quantity="latency_s", path="gpu0>gpu1", outcome="waived", reason="no GPU")
    assert watch.add_samples(waived) is waived


@pytest.mark.parametrize(
    ("gpu", "words"),
    [
        (GpuUse(ADDRESSES[0], 0, 0, 0), ""),
        (GpuUse(ADDRESSES[0], None, None, None), ""),
        (GpuUse(ADDRESSES[0], 0, 10, 300 << 20), ""),
        (GpuUse(ADDRESSES[0], 1, 0, 0), "1 process"),
        (GpuUse(ADDRESSES[0], 2, 97, 43 << 30), "2 processes, 97 % utilisation, 43 GiB of its memory in use"),
    ],
)
def test_what_makes_a_gpu_busy(gpu, words):
    assert describe_use(gpu) == words


@pytest.fixture
def stood_in(stand_ins, monkeypatch):  # noqa: F811
    monkeypatch.setattr(gpu_business, "_NVML_AVERAGES_OVER_S", 0.0)

    def inject(**faults):
        for name, value in environment(stand_ins, *ADDRESSES, **faults).items():
            monkeypatch.setenv(name, value)

    return inject


def test_a_busy_gpu_is_refused_by_name(stood_in):
    stood_in(STANDIN_NVML_PROCESSES="1", STANDIN_NVML_USED=str(40 << 30))
    with pytest.raises(
        CannotJudge, match=r"gpu0 is busy: 1 process, 40 GiB of its memory in use; gpu1 is busy"
    ) as error:
        refuse_busy_gpus(GPUS.values(), force=False)
    assert "--force" in error.value.hint
    assert refuse_busy_gpus(GPUS.values(), force=True) == ""


def test_idle_gpus_and_those_that_are_not_measured_are_not_refused(stood_in):
    stood_in()
    assert refuse_busy_gpus(GPUS.values(), force=False) == ""
    stood_in(STANDIN_NVML_PROCESSES="1")
    said = refuse_busy_gpus([Device(id="gpu9", kind="gpu", address="0000:99:00.0")], force=False)
    assert said == "whether gpu9 is idle is unknown: NVML does not report it"
    assert refuse_busy_gpus([], force=False) == ""


def test_gpus_that_cannot_be_asked_are_said(stood_in):
    stood_in(STANDIN_NVML_CRASH="1")
    assert "killed by SIGABRT" in refuse_busy_gpus(GPUS.values(), force=False)


@pytest.mark.parametrize(
    ("faults", "said"),
    [
        ({"STANDIN_NVML_LISTS": "1"}, "whether gpu1 is idle is unknown: NVML does not report it"),
        ({"STANDIN_NVML_LISTS": "0"}, "whether gpu0, gpu1 are idle is unknown: NVML does not report it"),
        ({"STANDIN_NVML_MUTE": "1"}, "whether gpu0, gpu1 are idle is unknown: NVML does not report it"),
    ],
)
def test_what_nvml_did_not_tell_is_not_taken_for_idle(stood_in, faults, said):
    stood_in(**faults)
    assert refuse_busy_gpus(GPUS.values(), force=False) == said


def test_an_old_driver_is_asked_by_its_older_names(stood_in):
    stood_in(STANDIN_NVML_OLD="1", STANDIN_NVML_PROCESSES="1", STANDIN_NVML_USED=str(40 << 30))
    with pytest.raises(CannotJudge, match="gpu0 is busy: 1 process, 40 GiB of its memory in use"):
        refuse_busy_gpus(GPUS.values(), force=False)


def test_a_line_on_standard_error_is_no_answer(stood_in, monkeypatch, tmp_path):
    """A `.pth` file, a debug build or an import hook may print such a line before the program starts."""
    (tmp_path / "sitecustomize.py").write_text("import sys\nprint('[0] {a warning}', file=sys.stderr)\n")
    stood_in(STANDIN_NVML_PROCESSES="1", PYTHONPATH=str(tmp_path))
    with pytest.raises(CannotJudge, match="gpu0 is busy"):
        refuse_busy_gpus(GPUS.values(), force=False)


def test_python_files_of_the_folder_in_which_somebody_stands_are_not_run(stood_in, machine, monkeypatch, tmp_path):
    (tmp_path / "msgspec.py").write_text("open('ran', 'w')\n")
    monkeypatch.chdir(tmp_path)
    stood_in()
    refuse_busy_gpus(GPUS.values(), force=False)
    nvidia.ask_nvidia()
    chosen = find("memory_copy")
    job = job_of(chosen, machine, tuple(os.sched_getaffinity(0)), {"sizes": "4K"})
    planned = PlannedLaunch(chosen, job, Plan(path="p", seconds=1, memory_bytes=0))
    assert {one.outcome for one in Session(planned, LocalLauncher(), dict(os.environ), 20.0).results()} == {"measured"}
    with GpuWatch(job_on(machine), dict(os.environ)) as watch:
        wait_until(lambda: watch._child.output or watch._child.poll() is not None, "a word or the end of the sampler")
    assert not (tmp_path / "ran").exists()


def test_only_gpus_that_will_be_measured_are_asked_about(machine, monkeypatch, capsys):
    asked = []

    def note(gpus, *, force):
        asked.append(sorted(gpu.id for gpu in gpus))
        return ""

    monkeypatch.setattr(measuring, "refuse_busy_gpus", note)
    waived = PlannedLaunch(benchmark(), job_on(machine), Plan(path="p", seconds=0, memory_bytes=0, waived="no library"))
    without = PlannedLaunch(benchmark(), job_on(machine, uses_gpus=False), Plan(path="p"))
    measuring._refuse_busy_gpus(SimpleNamespace(plan=[waived, without], force=False))
    assert asked == []
    planned = PlannedLaunch(benchmark(), job_on(machine), Plan(path="p", seconds=0, memory_bytes=0))
    measuring._refuse_busy_gpus(SimpleNamespace(plan=[waived, planned], force=False))
    assert asked == [["gpu0", "gpu1"]]
    monkeypatch.setattr(measuring, "refuse_busy_gpus", lambda gpus, force: "nobody could tell")
    measuring._refuse_busy_gpus(SimpleNamespace(plan=[planned], force=False))
    assert capsys.readouterr().err == "nobody could tell\n"


def test_a_whole_launch_gives_results_with_what_its_gpus_did(stand_ins, machine):  # noqa: F811
    chosen = find("gpu_copy")
    given = {"sizes": "64K", "paths": "local", "engines": "ce", "directions": "one", "samples": "15"}
    job = job_of(chosen, machine, tuple(os.sched_getaffinity(0)), given)
    busy = {"STANDIN_NVML_BUSY": "97", "STANDIN_NVML_THROTTLE": "0x40", "STANDIN_CUDA_COPY_US": "20000,20000"}
    variables = os.environ | environment(stand_ins, *ADDRESSES, **busy)
    results = list(Session(PlannedLaunch(chosen, job, chosen.plan(job)), LocalLauncher(), variables, 120.0).results())
    assert {result.outcome for result in results} == {"measured"}
    told = [result for result in results if "gpu_samples" in result.settings]
    assert told
    assert {result.settings["gpu_throttle"] for result in told} == {"hardware thermal slowdown"}

"""train_step over stand-ins for libcuda, libnccl and libcublas: real ranks, real data, no GPU; and its text."""
# ruff: noqa: F811 - a fixture of another module is imported, and is an argument

from __future__ import annotations

import os
import re
import statistics

import pytest
from tests.benchmarks import jobs
from tests.stand_ins import build, environment, stand_ins  # noqa: F401 - a fixture

from railwright.benchmarks.registry import DECLARATIONS, ON_REQUEST, find
from railwright.benchmarks.train import options as train_options
from railwright.benchmarks.train import step as train_step
from railwright.errors import UsageError
from railwright.launch.mpi import MpiLauncher
from railwright.launch.session import PlannedLaunch, Session
from railwright.report.text.iterations import render_iterations
from railwright.results.records import Result
from railwright.results.statistics import summarise
from railwright.topology.sources.load import load


def rendered(results, width=120):
    return render_iterations(results, DECLARATIONS, width)


PARTS = ("iteration", "compute", "exposed", "communication")
SMALL = {"model": "100K", "dtypes": "fp32", "buckets": "100K,single", "compute-ms": "2", "iterations": "6"}
SLOW_PRODUCTS = {"STANDIN_CUBLAS_NS": "2"}
"""So long that an all-reduce that does not wait for its gradients would run before they exist."""
SILENCE_S = 120.0


@pytest.fixture(scope="module")
def two_gpus():
    return load("testdata/hosts/2xh200-firecracker-vm/machine.jsonl")


def job_of(topology, **options):
    cpus = tuple(sorted(os.sched_getaffinity(0)))
    return jobs.job_of(find("train_step"), topology, cpus, SMALL | options)


@pytest.fixture
def measure(stand_ins, two_gpus, mpiruns, tmp_path, monkeypatch):
    """Return the results of one launch on the two GPUs of a recorded machine."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))

    def run(*, folder=stand_ins, faults=None, **options):
        job = job_of(two_gpus, **{name.replace("_", "-"): value for name, value in options.items()})
        addresses = [gpu.address for gpu in two_gpus.of_kind("gpu")]
        variables = os.environ | environment(folder, *addresses) | SLOW_PRODUCTS | (faults or {})
        planned = PlannedLaunch(find("train_step"), job, find("train_step").plan(job))
        assert not planned.plan.waived
        return list(Session(planned, MpiLauncher(mpiruns["openmpi"]), variables, SILENCE_S).results())

    return run


def of(results, **parameters):
    return [one for one in results if parameters.items() <= one.parameters.items()]


@pytest.mark.parametrize("dtype", ["fp32", "fp16", "bf16"])
def test_every_type_is_added_up_rightly_in_every_way(measure, dtype):
    results = measure(dtypes=dtype)
    assert {one.outcome for one in results} == {"measured"}, {one.reason for one in results}
    ways = {(one.parameters["buckets"], one.parameters["overlap"]) for one in results}
    assert ways == {("100K", "yes"), ("100K", "no"), ("single", "no")}
    size = 100_000 * (4 if dtype == "fp32" else 2)
    for one in results:
        assert (one.verification.bytes_checked, one.verification.bytes_wrong) == (2 * size, 0)
        assert one.settings["gradient_bytes"] == size
        assert (one.path, one.ranks, one.summary.count) == ("gpu0>gpu1", 2, 6)
        assert one.settings["compute"].startswith("gemm (cuBLAS")
        assert one.settings["gpus"] == "gpu0, gpu1"
        assert re.fullmatch(r"\d+(-\d+)?(,\d+(-\d+)?)*", one.settings["cpus"])


def test_each_way_has_its_four_parts_and_exposed_is_what_communication_adds(measure):
    results = of(measure(), buckets="100K", overlap="yes")
    times = {part: of(results, part=part)[0] for part in PARTS}
    assert all(one.quantity == "latency_s" and one.settings["buckets"] == 4 for one in times.values())
    added = [a - b for a, b in zip(times["iteration"].samples, times["compute"].samples, strict=True)]
    assert times["exposed"].samples == pytest.approx(added, rel=1e-3, abs=1e-7)
    assert times["compute"].settings["device_compute_s"] <= times["compute"].summary.median * 1.05
    for one in times.values():
        assert one.settings["mean_s"] == pytest.approx(statistics.fmean(one.samples), rel=1e-3, abs=1e-7)
        assert one.settings["std_s"] == pytest.approx(statistics.pstdev(one.samples), rel=1e-2, abs=1e-7)
    (busbw,) = of(results, rate="busbw")
    alone = times["communication"].samples
    assert busbw.samples == pytest.approx([400_000 / second for second in alone], rel=1e-4), "2 ranks: factor 1"


def test_resnet50s_tensors_are_reduced_one_by_one_as_well(measure):
    results = measure(model="resnet50", buckets="25M,tensor", compute="none", iterations="2", overlap="no")
    assert {one.outcome for one in results} == {"measured"}, {one.reason for one in results}
    assert {one.settings["buckets"] for one in of(results, buckets="tensor")} == {161}
    assert {one.settings["buckets"] for one in of(results, buckets="25M")} == {4}
    assert {one.settings["parameters"] for one in results} == {25_557_032}


def test_one_gpu_communicates_with_nobody_and_has_no_rate(measure):
    results = measure(gpus="1")
    assert {one.outcome for one in results} == {"measured"}, {one.reason for one in results}
    assert {one.path for one in results} == {"gpu0>gpu0"}
    assert {one.quantity for one in results} == {"latency_s"}


def test_a_wrong_sum_fails_the_way_and_names_the_rank(measure):
    results = measure(faults={"STANDIN_NCCL_CORRUPT": "1"})
    assert {one.outcome for one in results} == {"failed"}
    assert {one.reason for one in of(results, buckets="100K")} == {
        "wrong sum of known gradients: 4 gradients on rank 1"
    }
    assert {one.verification.bytes_wrong for one in of(results, buckets="single")} == {4}


def test_without_cublas_a_kernel_of_ours_computes_and_the_record_says_why(measure):
    results = measure(faults={"STANDIN_CUBLAS_CREATE": "1"}, buckets="single")
    assert {one.outcome for one in results} == {"measured"}, {one.reason for one in results}
    assert {one.settings["compute"] for one in results} == {"burn"}
    assert all("cuBLAS status 1" in one.settings["compute_because"] for one in results)


def test_a_requested_compute_phase_is_waived_if_it_is_missing(measure):
    (one,) = measure(faults={"STANDIN_CUBLAS_CREATE": "1"}, compute="gemm")
    assert (one.outcome, "cuBLAS status 1" in one.reason) == ("waived", True)


def test_an_error_of_cublas_names_rank_and_status(measure):
    (one,) = measure(faults={"STANDIN_CUBLAS_GEMM": "500"})
    assert one.outcome == "failed"
    assert "execution failed (cuBLAS status 13)" in one.reason
    assert one.reason.startswith("rank ")


def test_a_rank_that_is_killed_is_named(measure):
    results = measure(faults={"STANDIN_NCCL_KILL": "30"})
    assert results[-1].outcome == "failed"
    assert "rank 1 " in results[-1].reason


def test_a_missing_nccl_waives_the_whole_launch(measure, tmp_path):
    build("cuda.c", tmp_path / "libcuda.so.1")
    empty = tmp_path / "libnccl.so.2"
    empty.write_text("no library")
    (one,) = measure(folder=tmp_path)
    assert one.outcome == "waived"
    assert "NCCL cannot be loaded" in one.reason


class TimedByHand:
    """A rank and a compute phase at once: every part of an iteration lasts `part_s`."""

    def __init__(self, topology, part_s, **options):
        self.job = job_of(topology, **({"iterations": "7"} | options))
        self.part_s, self.heard, self.asked = part_s, [], []
        self.comm, self.step = self, self.heard.append
        self.bcast = lambda value: value

    def run(self, _step, _point, *, warm, samples):
        self.asked.append((warm, samples))
        return train_step.Timed(*([self.part_s] * samples for _ in range(4)))


@pytest.mark.parametrize(("part_s", "portions"), [(4.0, [1] * 7), (1.0, [1, 3, 3]), (0.001, [1, 6])])
def test_a_long_run_reports_between_its_iterations(two_gpus, part_s, portions):
    by_hand = TimedByHand(two_gpus, part_s)
    timed = train_step._time_iterations(by_hand, by_hand, None, train_options.Point("fp32", "25M", True), "here")
    assert [len(part) for part in timed] == [7] * 4
    assert [samples for _, samples in by_hand.asked] == portions
    assert [warm for warm, _ in by_hand.asked] == [1] + [0] * (len(portions) - 1), "one iteration is thrown away"
    assert by_hand.heard[-1] == "here: 7 of 7 iterations"


@pytest.mark.parametrize(
    ("most", "part_s", "timed_iterations", "portions"),
    [
        ("2", 0.01, 66, [1, 65]),  # 0.03 s each
        ("2", 1.0, 10, [1, 3, 3, 3]),  # never below ten, and heard of meanwhile
        ("100", 0.01, 100, [1, 99]),
        ("1", 1e-9, 100, [1, 99]),
    ],
)
def test_a_point_ends_after_its_time_with_at_least_ten_iterations(two_gpus, most, part_s, timed_iterations, portions):
    by_hand = TimedByHand(two_gpus, part_s, **{"iterations": "100", "most-seconds": most})
    timed = train_step._time_iterations(by_hand, by_hand, None, train_options.Point("fp32", "25M", True), "here")
    assert [len(part) for part in timed] == [timed_iterations] * 4
    assert [samples for _, samples in by_hand.asked] == portions
    assert by_hand.heard[-1] == f"here: {timed_iterations} of 100 iterations"
    cut = by_hand.job.options.cut_short(timed_iterations)
    assert cut == ({} if timed_iterations == 100 else {"iterations_wanted": 100, "ended_after_s": int(most)})


def test_a_point_that_its_time_ended_says_so_in_its_record(measure):
    results = measure(iterations="2000", most_seconds="1", compute_ms="10", buckets="single", overlap="no")
    assert {one.outcome for one in results} == {"measured"}, {one.reason for one in results}
    assert {one.summary.count for one in results} == {len(results[0].samples)}
    assert 10 <= len(results[0].samples) < 2000
    assert all((one.settings["iterations_wanted"], one.settings["ended_after_s"]) == (2000, 1) for one in results)


# ---- before anything runs ----


def test_it_is_measured_on_request_only():
    assert find("train_step") in ON_REQUEST


def test_one_bucket_for_all_is_never_overlapped():
    options = find("train_step").parse({"dtypes": "fp32", "overlap": "yes", "buckets": "25M,single"})
    assert options.points() == (
        train_options.Point("fp32", "25M", True),
        train_options.Point("fp32", "single", False),
    )


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"buckets": "tensor"}, "needs a model with tensors"),
        ({"compute": "torch"}, "give model=resnet50"),
        ({"gpus": "4"}, "4 GPUs are needed, 2 were found"),
        ({"library": "/nowhere/libnccl.so.2"}, "no NCCL at /nowhere"),
        ({"model": "200B", "buckets": "1M"}, "choose larger buckets|more than 4096"),
    ],
)
def test_what_cannot_be_is_waived_before_it_starts(two_gpus, options, reason):
    job = job_of(two_gpus, **options)
    assert re.search(reason, find("train_step").plan(job).waived)


def test_a_hang_is_noticed_before_all_iterations_would_be_over(two_gpus):
    plan = find("train_step").plan(job_of(two_gpus, compute="gemm", iterations="10000"))
    assert 10 <= plan.silent_s < plan.seconds / 5
    short = find("train_step").plan(job_of(two_gpus, compute="gemm", iterations="1", dtypes="fp32", buckets="25M"))
    assert short.silent_s <= short.seconds


def test_the_plan_is_near_what_two_h200_took():
    """63 s with PyTorch and 33 s with cuBLAS, as recorded in docs/measured/2xh200; never below it."""
    probed = load("testdata/hosts/2xh200-probed-vm/machine.jsonl")
    asked = {"model": "resnet50", "dtypes": "fp32,bf16", "buckets": "25M,single", "compute-ms": "20"}
    asked |= {"iterations": "100"}
    by_torch, by_gemm = (
        find("train_step").plan(job_of(probed, compute=compute, **asked)).seconds for compute in ("torch", "gemm")
    )
    assert 63 < by_torch < 1.6 * 63
    assert 33 < by_gemm < 1.6 * 33
    shorter = find("train_step").plan(job_of(probed, compute="torch", **asked, **{"most-seconds": "2"})).seconds
    assert 35 + 6 * 2 <= shorter < by_torch - 25


def test_the_plan_of_a_step_that_only_communicates_has_no_compute_phase_in_it(two_gpus):
    none, gemm = (
        find("train_step").plan(job_of(two_gpus, compute=compute, **{"compute-ms": "1000"}))
        for compute in ("none", "gemm")
    )
    assert none.seconds < 15
    assert gemm.seconds > 3 * 7 * 2, "three points of seven rounds, with and without communication"


def test_a_machine_without_a_gpu_waives_it():
    job = job_of(load("testdata/hosts/2cpu-firecracker-vm/machine.jsonl"))
    assert (job.ranks, find("train_step").plan(job).waived) == (1, "no NVIDIA GPU was found")


@pytest.mark.parametrize(
    "option",
    [
        {"iterations": "0"},
        {"most-seconds": "0"},
        {"most-seconds": "٣"},
        {"batch": "x"},
        {"compute-ms": "-5"},
        {"dtypes": "fp8"},
        {"overlap": "maybe"},
        {"gpus": "0"},
    ],
)
def test_bad_options_are_refused(option):
    with pytest.raises(UsageError):
        find("train_step").parse(option)


@pytest.mark.parametrize("text", ["0", "73", "two", "", "2.0", "٣", "9" * 5000])
def test_a_number_of_gpus_that_cannot_be_is_refused(text):
    with pytest.raises(UsageError, match="must be 'all', a whole number from 1 to 72, or GPUs by name"):
        find("train_step").parse({"gpus": text})


def test_gradients_that_differ_after_an_iteration_fail_the_way():
    seen = train_step._Measurements(train_step.Timed([1.0], [1.0], [1.0], [1.0]), (0, 0, 0), (5, 5, 6), (1,))
    assert train_step._failure(seen) == "after an iteration the gradients of rank 0 differ from those of rank 2"
    assert not train_step._failure(seen._replace(sums=(5, 5, 5)))


# ---- the text ----


def recorded(part, samples, *, overlap="yes", outcome="measured", reason="", buckets="25M", **varied):
    return Result(
        benchmark="train_step", quantity="bandwidth_bytes_per_s" if "rate" in varied else "latency_s",
        path="gpu0>gpu1", outcome=outcome, reason=reason, ranks=2, samples=tuple(samples),
        summary=summarise(samples) if samples else None,
        parameters={"part": part, "model": "resnet50", "dtype": "fp16", "buckets": buckets, "overlap": overlap,
                    **varied},
        settings={"parameters": 25_557_032, "compute": "torch 2.11.0"},
    )  # fmt: skip


def way(iteration, compute, alone, **varied):
    yield recorded("iteration", [iteration, iteration], **varied)
    yield recorded("compute", [compute, compute], **varied)
    yield recorded("exposed", [iteration - compute] * 2, **varied)
    yield recorded("communication", [alone, alone], **varied)


def test_bars_are_to_one_scale_and_split_where_compute_ends():
    text = rendered([*way(0.030, 0.024, 0.012), *way(0.060, 0.024, 0.036, overlap="no")])
    overlapped, after = (next(line for line in text.splitlines() if f"{word} " in line and "█" in line.split("ms")[-1])
                         for word in ("overlapped", "after compute"))  # fmt: skip
    assert (overlapped.count("█"), overlapped.count("░")) == (24, 6)
    assert (after.count("█"), after.count("░")) == (24, 36)
    assert "25,557,032 parameters, 2 GPUs, compute by torch 2.11.0" in text


def test_the_table_has_mean_median_min_max_and_std_and_how_much_is_hidden():
    results = [*way(0.030, 0.024, 0.012), recorded("communication", [3e11, 3e11], rate="busbw")]
    lines = rendered(results).splitlines()
    assert next(line for line in lines if "median" in line).split() == ["mean", "median", "min", "max", "std"]
    assert next(line for line in lines if " iteration " in line).split()[-10:] == [
        "30.0",
        "ms",
        "30.0",
        "ms",
        "30.0",
        "ms",
        "30.0",
        "ms",
        "0",
        "s",
    ]
    assert "busbw 300 GB/s, 50% hidden" in next(line for line in lines if " communication " in line and "ms" in line)
    assert max(map(len, lines)) <= 120


@pytest.mark.parametrize("width", [60, 72, 80, 100, 119, 120, 200])
def test_bars_and_rows_fit_the_width_and_the_median_is_always_there(width):
    rate = recorded("communication", [3e11, 3e11], rate="busbw")
    lines = rendered([*way(0.030, 0.024, 0.012), *way(0.060, 0.024, 0.036, overlap="no"), rate], width)
    _title, *laid_out = lines.splitlines()
    assert max(map(len, laid_out)) <= width
    heads = next(line for line in laid_out if "median" in line).split()
    assert len(heads) == {60: 1, 72: 3, 80: 3}.get(width, 5)
    bars = [line for line in laid_out if line.count("█") > 1]
    assert [line.count("█") + line.count("░") for line in bars][1] == min(60, width - 39)
    assert "busbw 300 GB/s, 50% hidden" in " ".join(laid_out)


def test_noise_below_zero_draws_no_bar_and_hides_all():
    text = rendered(way(0.023, 0.024, 0.012))
    assert text.count("░") == 1, "in the legend only"
    assert "100% hidden" in text


def test_an_impossible_sample_is_reported_and_not_drawn():
    text = rendered([*way(0.03, 0.02, 0.01), recorded("iteration", [1e308, 1e308], overlap="no"),
                              recorded("compute", [0.02], overlap="no")])  # fmt: skip
    assert "fp16 25M after compute left out: 1e+308 is not a plausible sample of iteration" in text
    assert text.count(" iteration ") == 1, "the row of the other way"
    assert "█" not in rendered(way(0.0, 0.0, 0.0)), "nothing has no scale"
    assert "█" in rendered(way(1e-300, 1e17, 0.0))


def test_a_failed_part_is_reported_and_not_drawn():
    text = rendered([
        recorded("iteration", [0.03], outcome="failed", reason="wrong sum\x1b[31m"),
        Result(benchmark="train_step", quantity="latency_s", path="gpu0>gpu1", outcome="failed", reason="rank 1 died"),
    ])  # fmt: skip
    assert "fp16 25M overlapped failed: wrong sum\\x1b[31m" in text
    assert "failed: rank 1 died" in text
    assert "█" not in text


def test_other_benchmarks_make_no_text():
    assert rendered([Result(benchmark="file_read", quantity="latency_s", path="vda>memory0")]) == ""

"""gpu_hpl over stand-ins for libcuda, libnccl, libcublas and libcusolverMp: real ranks, real data, no GPU."""
# ruff: noqa: F811 - a fixture of another module is imported, and is an argument

from __future__ import annotations

import os

import pytest
from tests.benchmarks import jobs
from tests.stand_ins import environment, stand_ins  # noqa: F401 - a fixture

from railwright.benchmarks.linpack import gpu_options, problem
from railwright.benchmarks.linpack.records import SUSTAINED, product_case
from railwright.benchmarks.record import complete
from railwright.benchmarks.registry import DECLARATIONS, find
from railwright.diagnosis.runs.own_runs import LimitFinder
from railwright.errors import UsageError
from railwright.launch.mpi import MpiLauncher
from railwright.launch.program import run_program
from railwright.launch.session import PlannedLaunch, Session
from railwright.limits.limit import Limit
from railwright.limits.linpack import fp64_rate
from railwright.results.records import Verification
from railwright.topology.devices import Device
from railwright.topology.sources.load import load

HPL = find("gpu_hpl")
N, NB = 96, 10
SILENCE_S = 120.0
EIGHT = "testdata/hosts/8xh200-probed-vm/machine.jsonl"


def memory_of(topology):
    return sum(gpu.facts["memory_bytes"] for gpu in topology.of_kind("gpu"))


@pytest.fixture(scope="module")
def two_gpus():
    return load("testdata/hosts/2xh200-firecracker-vm/machine.jsonl")


def job_of(topology, **options):
    given = {"n": str(N), "nb": str(NB), **options}
    return jobs.job_of(HPL, topology, tuple(sorted(os.sched_getaffinity(0))), given)


@pytest.fixture
def measure(stand_ins, two_gpus, mpiruns, tmp_path, monkeypatch):
    """Return the results of one launch on the two GPUs of a recorded machine."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))

    def run(faults=None, **options):
        job = job_of(two_gpus, **options)
        addresses = [gpu.address for gpu in two_gpus.of_kind("gpu")]
        variables = os.environ | environment(stand_ins, *addresses) | (faults or {})
        planned = PlannedLaunch(HPL, job, HPL.plan(job))
        assert not planned.plan.waived
        return list(Session(planned, MpiLauncher(mpiruns["openmpi"]), variables, SILENCE_S).results())

    return run


def check_measured(results):
    for one in results:
        assert (one.outcome, one.quantity, one.ranks, one.path) == ("measured", "flop_per_s", 2, "gpu0>gpu1"), (
            one.reason
        )
        assert one.verification.bytes_checked
        assert one.verification.bytes_wrong == 0


@pytest.mark.machine
@pytest.mark.parametrize("grid", ["1x2", "2x1"])
def test_it_solves_and_checks_in_true_fp64(measure, grid, two_gpus):
    product, sustained, solution = results = measure(grid=grid, sustain="1")
    check_measured(results)
    assert [one.parameters["part"] for one in (product, sustained)] == ["dgemm", "sustained dgemm"]
    assert 0 < solution.settings["scaled_residual"] < 1
    assert (solution.settings["solver"], solution.settings["panel_multiprocessors"]) == ("own", 0)
    assert solution.settings["generation_s"] > 0
    assert solution.settings["check_s"] > 0
    assert solution.samples[0] * solution.settings["duration_s"] == pytest.approx(problem.operations(N), rel=1e-3)
    limit, band = LimitFinder(two_gpus, results, DECLARATIONS).find(solution)
    assert isinstance(limit, Limit)
    assert limit.value == 2 * 67e12
    assert "sustained dgemm of the same run reached" in limit.because
    assert band is None  # so small a matrix has no peers


@pytest.mark.machine
def test_cusolvermp_solves_the_same_matrix(measure):
    _, solution = results = measure(solver="cusolvermp", sustain="0")
    check_measured(results)
    assert solution.settings["solver"] == "cusolvermp"
    assert solution.settings["math_mode"] == "FP64 (cusolverMpGetMathMode 1)"
    assert (solution.settings["cusolvermp"], solution.settings["nccl"]) == ("0.8.0", "2.28.9")
    assert solution.settings["gpu_matrix_bytes"] >= 8 * N**2


VENDOR = {"solver": "cusolvermp"}


@pytest.mark.machine
@pytest.mark.parametrize(
    ("faults", "options", "outcome", "said"),
    [
        ({"STANDIN_SCALAPACK_FAULT": "wrong"}, VENDOR, "failed", "the scaled residual must be below 16"),
        ({"STANDIN_CUSOLVERMP_MODE": "4"}, VENDOR, "waived", "must compute in FP64 (math mode 1), got math mode 4"),
        ({"STANDIN_CUSOLVERMP_VERSION": "601"}, VENDOR, "waived", "cuSOLVERMp 0.6.1 is older than 0.7.2"),
        ({"STANDIN_NCCL_CORRUPT": "1"}, {"grid": "1x2"}, "failed", "the scaled residual must be below 16"),
        ({"STANDIN_NCCL_KILL": "40"}, {"grid": "2x1"}, "failed", "rank 1 "),
        ({"STANDIN_NCCL_REFUSE": "3"}, {"grid": "2x1"}, "failed", "rank 1 "),
    ],
)
def test_a_failure_has_no_rate(measure, faults, options, outcome, said):
    results = measure(faults, **{"sustain": "0"} | options)
    (bad,) = [one for one in results if one.outcome != "measured"]
    assert (bad.outcome, bad.samples) == (outcome, ())
    assert said in bad.reason, bad.reason


@pytest.mark.machine
def test_a_wrong_product_fails_wherever_it_is_made(measure):
    reasons = [one.reason for one in measure({"STANDIN_CUBLAS_WRONG": "1"}, sustain="1") if one.outcome == "failed"]
    assert [reason for reason in reasons if "rows of a product are wrong" in reason]
    assert [reason for reason in reasons if "scaled residual" in reason]


GPU_HPL = """#!/bin/sh
[ "$OMPI_COMM_WORLD_RANK" = 0 ] || exit 0
n=$(awk 'NR == 6 {print $1}' "$2")
echo "Prog= 10.00% N_left= 86"
until [ -e "$0.seen" ]; do sleep 0.02; done
echo 'T/V                N    NB     P     Q         Time          Gflops (   per GPU)'
awk -v n=$n 'BEGIN { printf "WC0     %d    10     1     2         0.50       %.4e ( %.4e)\\n", n,
  (2 / 3 * n ^ 3 + 3 / 2 * n ^ 2) / 0.5e9, (2 / 3 * n ^ 3 + 3 / 2 * n ^ 2) / 1e9 }'
echo '||Ax-b||_oo/(eps*(||A||_oo*||x||_oo+||b||_oo)*N)=   4.40000000e-03 ...... PASSED'
"""


@pytest.mark.machine
def test_the_user_s_program_gets_its_point_and_is_judged_like_the_vendors(two_gpus, stand_ins, mpiruns, tmp_path):
    program = tmp_path / "hpl.sh"
    program.write_text(GPU_HPL)
    program.chmod(0o755)
    job = job_of(two_gpus, program=str(program))
    addresses = [gpu.address for gpu in two_gpus.of_kind("gpu")]
    steps = []

    def on_step(text):
        steps.append(text)
        if "10.00 %" in text:
            program.with_name("hpl.sh.seen").touch()

    planned = PlannedLaunch(HPL, job, HPL.plan(job))
    variables = os.environ | environment(stand_ins, *addresses)
    found = run_program(planned, HPL.program(job), MpiLauncher(mpiruns["openmpi"]), variables, SILENCE_S, on_step)
    (only,) = list(found)
    assert (only.outcome, only.ranks) == ("measured", 2), only.reason
    assert only.samples[0] == pytest.approx(problem.operations(N) / 0.5, rel=1e-3)
    assert only.settings["solver"] == "program"
    assert "gpu_hpl: hpl.sh: 10.00 %" in steps
    fills = int((0.9 * memory_of(load(EIGHT)) / 8) ** 0.5)
    results = solve_of(load(EIGHT), fills, 350e12, "program")
    _, band = LimitFinder(load(EIGHT), results, DECLARATIONS).find(results[1])
    assert (band.low, band.doubtful_to) == (8 * 40e12, None)


def solve_of(topology, order, rate, solver):
    """A solve by eight GPUs, and the sustained dgemm of the same run."""
    case = job_of(topology, n=str(order)).case
    check = Verification(method="a check", bytes_checked=8, bytes_wrong=0)

    def record(varied, rate, **settings):
        blank = HPL.blank("gpu0>gpu7", varied, ranks=8, hosts=1, launch=0)
        return complete(blank, [rate], verification=check, settings=settings)

    dgemm = record(product_case(case, SUSTAINED), 400e12)
    solution = record(case, rate, solver=solver)
    return dgemm, solution


def test_a_solve_that_fills_the_memory_is_compared_with_peers_then_with_dgemm():
    eight = load(EIGHT)
    fills = int((0.9 * memory_of(eight) / 8) ** 0.5)

    def band_of(*solve):
        results = solve_of(eight, *solve)
        return LimitFinder(eight, results, DECLARATIONS).find(results[1])[1]

    band = band_of(fills, 350e12, "own")
    assert (band.low, band.doubtful_to) == (8 * 40e12, 200e12)
    assert band_of(fills, 350e12, "cusolvermp") is None
    assert band_of(int(0.9 * fills), 350e12, "own") is None


def test_bad_input_is_refused_before_anything_runs(two_gpus):
    refused = {("solver", ""): "solver: must be", ("panel-sms", "65"): "panel-sms: must be",
               ("sustain", "601"): "sustain: must be", ("grid", "1x3"): "a grid of 1x3 needs 3 ranks, got 2",
               ("clock", "9"): "clock: must be",
               ("gpus", "gpu7"): "gpu7", ("n", "0"): "whole number"}  # fmt: skip
    for (name, value), said in refused.items():
        with pytest.raises(UsageError, match=said):
            job_of(two_gpus, **{name: value})
    for program, arguments, said in (("/nowhere/hpl.sh", "auto", "no program at '/nowhere/hpl.sh'"),
                                     ("xhpl", "auto", "program: must be a path, got 'xhpl'"),
                                     ("/bin/true", "{m}", "arguments: cannot be used"),
                                     ("/bin/true", "'", "No closing quotation")):  # fmt: skip
        with pytest.raises(UsageError, match=said):
            job_of(two_gpus, program=program, arguments=arguments)
    eight = load(EIGHT)
    with pytest.raises(UsageError, match=r"needs .* on each GPU") as caught:
        job_of(eight, n="600000")
    fits = int(caught.value.hint.split()[2])
    assert 0.7 < 8 * fits**2 / memory_of(eight) < 0.8


def test_the_matrix_fills_the_gpus_and_the_grid_is_near_a_square():
    eight = load(EIGHT)
    job = job_of(eight, n="auto", nb="1024")
    assert (job.ranks, str(job.case.grid)) == (8, "2x4")
    assert 0.78 < 8 * job.case.n**2 / memory_of(eight) <= 0.8
    assert job.launch.environment == {"CUBLAS_EMULATE_DOUBLE_PRECISION": "0"}
    assert gpu_options.plan(job).path == "gpu0>gpu7"
    several = jobs.job_of(HPL, eight, (0, 1), {"n": "8192"}, hosts=("a", "b"), ranks_per_host=8)
    assert (several.ranks, several.find_gpu(9).id) == (16, "gpu1")
    with pytest.raises(UsageError, match="a host has 8 GPUs, and 4 ranks"):
        jobs.job_of(HPL, eight, (0, 1), {"n": "8192"}, hosts=("a", "b"), ranks_per_host=4)


def test_without_gpus_it_is_waived():
    assert "no NVIDIA GPU" in HPL.plan(job_of(load("testdata/hosts/2cpu-firecracker-vm/machine.jsonl"))).waived


def test_the_fp64_rate_of_a_gpu_is_that_of_its_model():
    names = {"NVIDIA H100 80GB HBM3": 67e12, "NVIDIA H100 PCIe": 51e12, "NVIDIA A100-SXM4-40GB": 19.5e12,
             "NVIDIA H200": 67e12, "Tesla V100-SXM2-32GB": 7.8e12, "NVIDIA Z900": None, "": None}  # fmt: skip
    for name, rate in names.items():
        assert fp64_rate(Device(id="gpu0", kind="gpu", name=name)) == rate, name

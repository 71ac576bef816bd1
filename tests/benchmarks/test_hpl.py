"""Linpack by real ranks over a stand-in for ScaLAPACK: HPL's matrix, its residual, and what goes wrong."""

from __future__ import annotations

import ctypes
import re

import pytest
from tests.stand_ins import build

from railwright.benchmarks.linpack import problem
from railwright.native import linpack
from railwright.native.memory import Buffer

pytestmark = pytest.mark.machine
N, NB = 96, 10
MASK = 2**64 - 1


def element(order, row, column):
    """Return HPL_rand by its definition: state k of the generator, computed directly in integers."""
    state = problem.SEED
    for _ in range(column * order + row + 1):
        state = (6364136223846793005 * state + 1) & MASK
    return 0.5 - state / 2**64


def test_every_rank_generates_its_part_of_one_matrix():
    order, block = 13, 3
    whole = {(row, column): element(order, row, column) for row in range(order) for column in range(order + 1)}
    for grid in (problem.Grid(1, 1), problem.Grid(2, 3), problem.Grid(3, 2)):
        seen = set()
        for rank in range(grid.ranks):
            row, column = grid.place(rank)
            part = linpack.Problem(order, block, grid, (row, column), problem.SEED)
            rows = [one for one in range(order) if one // block % grid.rows == row]
            columns = [one for one in range(order) if one // block % grid.columns == column]
            lead = len(rows) + 2
            with Buffer(8 * lead * len(columns)) as matrix, Buffer(8 * lead) as right_side:
                part.generate_columns(matrix, lead, 0, len(columns))
                part.generate_right_side(right_side)
                held = (ctypes.c_double * (lead * len(columns))).from_address(matrix.address)
                of_b = (ctypes.c_double * lead).from_address(right_side.address)
                for place, j in enumerate(columns):
                    for k, i in enumerate(rows):
                        assert held[place * lead + k] == whole[i, j], (grid, i, j)
                        seen.add((i, j))
                if column == 0:
                    assert [of_b[k] for k in range(len(rows))] == [whole[i, order] for i in rows]
        assert len(seen) == order**2


def test_a_product_is_checked_to_the_last_digit():
    order = 40
    with Buffer(8 * order**2) as a, Buffer(8 * order**2) as b, Buffer(8 * order**2) as product:
        linpack.write_integers(a, order**2, 1)
        linpack.write_integers(b, order**2, 2)
        left, right, made = ((ctypes.c_double * order**2).from_address(one.address) for one in (a, b, product))
        assert max(map(abs, left)) > 2**18
        for i in range(order):
            for j in range(order):
                made[j * order + i] = sum(left[k * order + i] * right[j * order + k] for k in range(order))
        assert linpack.wrong_rows(order, a, b, product) == 0
        made[7] += 1
        assert linpack.wrong_rows(order, a, b, product) == 1


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    path = tmp_path_factory.mktemp("scalapack") / "libscalapack.so"
    build("scalapack.c", path)
    return path


@pytest.fixture
def run(railwright, library):
    """Run `railwright run hpl` with these options over the stand-in."""

    def start(mpirun, fault="", **given):
        options = {"n": N, "nb": NB, "ranks": 2, "threads": 1, "library": library, **given}
        words = [word for name, value in options.items() for word in ("-o", f"{name}={value}")]
        return railwright(
            "run", "hpl", *words, "--force", "--mpirun", mpirun,
            environment={"STANDIN_SCALAPACK_FAULT": fault},
        )  # fmt: skip

    return start


@pytest.mark.parametrize("mpi", ["openmpi", "mpich"])
def test_it_solves_and_checks(run, railwright, mpiruns, mpi):
    done = run(mpiruns[mpi], grid="1x2,2x1")
    assert done.status == 3, done.err  # a solve has no band
    products, solutions = [], []
    for one in railwright.results():
        (products if one.parameters.get("part") else solutions).append(one)
    assert [(one.parameters["p"], one.parameters["q"]) for one in solutions] == [(1, 2), (2, 1)]
    assert len(products) == 2
    for one in (*products, *solutions):
        assert (one.outcome, one.quantity, one.ranks) == ("measured", "flop_per_s", 2), one.reason
        assert one.verification.bytes_checked
        assert one.verification.bytes_wrong == 0
    for one in solutions:
        assert 0 < one.settings["scaled_residual"] < 1
        assert one.samples[0] * one.settings["duration_s"] == pytest.approx(problem.operations(N), rel=1e-3)
    railwright.expect_nothing_left()


def test_one_process_without_a_block_size_leaves_blocks_to_lapack(run, railwright, mpiruns):
    for given, solver in (({"nb": "auto"}, "dgetrf"), ({}, "pdgetrf")):
        run(mpiruns["openmpi"], ranks=1, **given)
        (solution,) = (one for one in railwright.results() if "n" in one.parameters)
        assert (solution.outcome, solution.settings["solver"]) == ("measured", solver), solution.reason
        assert 0 < solution.settings["scaled_residual"] < 1
    run(mpiruns["openmpi"], "wrong", ranks=1, nb="auto")
    (solution,) = (one for one in railwright.results() if "n" in one.parameters)
    assert (solution.outcome, solution.samples) == ("failed", ())


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        ("wrong", r"the scaled residual must be below 16, got \S+"),
        ("singular", "pivot 3 of 96 was found to be 0"),
        ("dies", r"rank 1 .* at step 'hpl N 96"),
        ("product", "1 rows of a product are wrong on rank 1"),
    ],
)
def test_a_failure_is_failed_and_has_no_rate(run, railwright, mpiruns, fault, said):
    done = run(mpiruns["openmpi"], fault)
    assert done.status != 0
    failed = [one for one in railwright.results() if one.outcome == "failed"]
    assert len(failed) == 1
    assert re.search(said, failed[0].reason), failed[0].reason
    assert not failed[0].samples
    railwright.expect_nothing_left()


def test_without_a_library_it_is_waived_with_the_way_to_one(run, railwright, mpiruns, tmp_path):
    run(mpiruns["openmpi"], library=tmp_path / "none.so")
    (only,) = railwright.results()
    assert only.outcome == "waived"
    assert "no ScaLAPACK can be loaded" in only.reason
    assert "none.so" in only.reason


XHPL = r"""#!/bin/sh
[ "${{OMPI_COMM_WORLD_RANK:-0}}" = 0 ] || exit 0
n=$(awk 'NR == 6 {{print $1}}' HPL.dat) nb=$(awk 'NR == 8 {{print $1}}' HPL.dat)
p=$(awk 'NR == 11 {{print $1}}' HPL.dat) q=$(awk 'NR == 12 {{print $1}}' HPL.dat)
{before}
echo 'HPLinpack 2.3'
echo 'T/V                N    NB     P     Q               Time                 Gflops'
awk -v n={n} -v nb=$nb -v p=$p -v q=$q 'BEGIN {{ printf "WR11C2R4 %d %d %d %d 0.50 %.4e\n", n, nb, p, q,
  (2 / 3 * n ^ 3 + 3 / 2 * n ^ 2) / 0.5 / 1e9 }}'
echo '||Ax-b||_oo/(eps*(||A||_oo*||x||_oo+||b||_oo)*N)=   4.41990053e-03 ...... {said}'
"""


@pytest.fixture
def xhpl(tmp_path):
    def make(said="PASSED", before=":", n="$n"):
        path = tmp_path / "xhpl"
        path.write_text(XHPL.format(said=said, before=before, n=n))
        path.chmod(0o755)
        return path

    return make


def test_a_user_s_xhpl_is_run_and_its_output_becomes_a_record(run, railwright, mpiruns, xhpl):
    done = run(mpiruns["openmpi"], program=xhpl(), nb=16)
    assert done.status == 3, done.err
    (only,) = railwright.results()
    assert only.outcome == "measured", only.reason
    assert (only.parameters["n"], only.parameters["nb"], only.parameters["q"], only.ranks) == (N, 16, 2, 2)
    assert only.samples[0] == pytest.approx(problem.operations(N) / 0.5, rel=1e-3)
    assert only.settings["program"].endswith("/xhpl")
    assert only.verification.bytes_wrong == 0
    railwright.expect_nothing_left()


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"said": "FAILED"}, "xhpl calls FAILED"),
        ({"before": "kill -9 $$"}, "signal 9"),
        ({"before": "exit 0"}, "it printed nothing"),
        ({"n": "4000"}, "it did not read this run's HPL.dat"),
        ({"before": "echo no table; exit 0"}, "HPL's output must contain a row"),
    ],
)
def test_an_xhpl_that_fails_has_no_rate(run, railwright, mpiruns, xhpl, given, said):
    done = run(mpiruns["openmpi"], program=xhpl(**given))
    assert done.status != 0
    (only,) = railwright.results()
    assert (only.outcome, only.samples) == ("failed", ())
    assert said in only.reason, only.reason

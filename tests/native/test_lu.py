"""Our LU on GPUs over stand-ins that compile its kernels for the host: pivots, unknowns and singular matrices."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import msgspec
import numpy as np
import pytest
from tests.stand_ins import environment, stand_ins  # noqa: F401 - a fixture

from railwright.launch.mpi import MpiLauncher

PROGRAM = Path(__file__).with_name("lu_ranks.py")
MULTIPLIER, WORD, SEED = 6364136223846793005, 2**64, 100


def hpl_matrix(order):
    """[A b] as HPL 2.3 generates it."""
    state, values = SEED, []
    for _ in range(order * (order + 1)):
        state = (MULTIPLIER * state + 1) % WORD
        values.append(0.5 - float(state) / WORD)
    return np.array(values).reshape(order + 1, order).T


def pivots_of(matrix):
    """The rows that partial pivoting exchanges, as LAPACK's dgetf2 chooses them: the first of the largest."""
    a, found = matrix.copy(), []
    for j in range(len(a)):
        row = j + int(np.argmax(np.abs(a[j:, j])))
        found.append(row)
        a[[j, row]] = a[[row, j]]
        a[j + 1 :, j] /= a[j, j]
        a[j + 1 :, j + 1 :] -= np.outer(a[j + 1 :, j], a[j, j + 1 :])
    return found


@pytest.fixture
def solve(stand_ins, mpiruns, tmp_path):  # noqa: F811 - a fixture of another module is imported, and is an argument
    def run(ranks, *cases):
        addresses = [f"0000:00:{number + 6:02x}.0" for number in range(ranks)]
        launcher = MpiLauncher(mpiruns["openmpi"])
        variables = os.environ | launcher.environment(tmp_path) | environment(stand_ins, *addresses)
        variables |= {"CUBLAS_EMULATE_DOUBLE_PRECISION": "0", "OMPI_MCA_mpi_yield_when_idle": "1"}
        start = launcher.command(ranks, tmp_path, {})
        command = [*start[: start.index(sys.executable)], sys.executable, str(PROGRAM), *cases]
        made = subprocess.run(command, env=variables, capture_output=True, text=True, timeout=300, check=False)
        assert made.returncode == 0, made.stderr
        return {one["case"]: one for one in map(msgspec.json.decode, made.stdout.splitlines())}

    return run


@pytest.mark.machine
def test_every_grid_up_to_4x4_finds_lapacks_pivots_and_the_solution(solve):
    shapes = [(order, block, leaf) for order, block, leaf in ((101, 8, 3), (64, 16, 16))]
    cases = [f"{n}:{nb}:{p}:{q}:{leaf}" for n, nb, leaf in shapes for p in range(1, 5) for q in range(1, 5)]
    found = solve(16, *cases)
    assert set(found) == set(cases)
    for order in (101, 64):
        matrix = hpl_matrix(order)
        pivots, x = pivots_of(matrix[:, :order]), np.linalg.solve(matrix[:, :order], matrix[:, order])
        for case in (found[name] for name in cases if name.startswith(f"{order}:")):
            assert case["agree"], case["case"]
            assert case["pivots"] == pivots, case["case"]
            assert np.allclose(case["x"], x, rtol=1e-9, atol=1e-11), case["case"]
            assert case["residual"] < 1
            assert case["singular"] == 0


@pytest.mark.machine
def test_blocks_larger_than_the_matrix_and_single_columns_work(solve):
    cases = ("7:16:1:1:4", "1:4:1:1:4", "65:64:1:1:64", "40:1:1:1:1")
    found = solve(1, *cases)
    for name in cases:
        order = int(name.partition(":")[0])
        matrix = hpl_matrix(order)
        assert found[name]["pivots"] == pivots_of(matrix[:, :order])
        assert np.allclose(found[name]["x"], np.linalg.solve(matrix[:, :order], matrix[:, order]), rtol=1e-9)


@pytest.mark.machine
def test_the_first_column_without_a_pivot_is_named(solve):
    found = solve(1, "40:8:1:1:4:0", "40:8:1:1:4:21", "40:8:1:1:4:39")
    assert {name.rpartition(":")[2]: case["singular"] for name, case in found.items()} == {"0": 1, "21": 22, "39": 40}

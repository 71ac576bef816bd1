"""HPL: xhpl, hpcc and NVIDIA's."""

from __future__ import annotations

import pytest
from tests.results.readers.recorded import text, value

from railwright.errors import UsageError
from railwright.results.readers.linpack import hpl


@pytest.mark.parametrize(
    ("name", "tool", "version", "ranks", "flops", "order"),
    [
        ("2.0-hpcc-2ranks", "HPL", "2.0", 2, 4.856e9, 1200),
        ("2.3-4ranks", "HPL", "2.3", 4, 3.3515e9, 5120),
        ("nvidia-24.3.0-1xa100", "NVIDIA HPL", "24.3.0", 1, 1.698e13, 92160),
        ("nvidia-8xgh200", "NVIDIA HPL", "", 8, 3.370e14, 299008),
    ],
)
def test_every_run_is_read_in_flop_per_second_with_its_residual(
    name: str, tool: str, version: str, ranks: int, flops: float, order: int
) -> None:
    (file,) = hpl.read(text(f"hpl/{name}.txt"))
    assert (file.tool, file.version, file.test, file.ranks) == (tool, version, "hpl", ranks)
    (result,) = file.results
    assert result.quantity == "flop_per_s"
    assert value(result) == pytest.approx(flops)
    assert result.parameters["n"] == order
    assert result.settings["matrix_bytes"] == 8 * order * order
    assert result.verification is not None
    assert result.verification.bytes_wrong == 0


def test_the_rate_per_gpu_of_nvidia_is_kept() -> None:
    (file,) = hpl.read(text("hpl/nvidia-8xgh200.txt"))
    assert file.results[0].settings["flop_per_s_per_gpu"] == pytest.approx(4.213e13)
    assert file.results[0].settings["scaled_residual"] == pytest.approx(0.000550841189)


def test_a_failed_residual_makes_the_solution_wrong() -> None:
    (file,) = hpl.read(text("hpl/2.3-4ranks.txt").replace("PASSED", "FAILED"))
    check = file.results[0].verification
    assert check is not None
    assert check.bytes_wrong == 8 * 5120


def test_a_run_without_its_residual_is_not_verified_and_said_so() -> None:
    whole = text("hpl/2.3-4ranks.txt")
    (file,) = hpl.read(whole[: whole.index("||Ax-b||")])
    assert file.results[0].verification is None
    assert any("no residual" in note for note in file.notes)


def test_several_runs_are_several_results() -> None:
    whole = text("hpl/2.3-4ranks.txt")
    (file,) = hpl.read(whole + whole.replace("WR11C2R4", "WR00L2L2"))
    assert [result.parameters["variant"] for result in file.results] == ["WR11C2R4", "WR00L2L2"]


@pytest.mark.parametrize(
    ("name", "old", "new", "reason"),
    [
        ("2.3-4ranks", "3.3515e+00", "6.3515e+00", "6.3515e+00 Gflops is not (2/3 N^3"),
        ("2.3-4ranks", "3.3515e+00", "nan", "Gflops must be a number of zero or more, got 'nan'"),
        ("2.3-4ranks", "26.71", "-26.71", "time must be a number of zero or more, got '-26.71'"),
        ("nvidia-8xgh200", "4.213e+04)", "9.213e+04)", "is not 3.370e+05 / 8 GPUs"),
    ],
)
def test_a_row_that_contradicts_itself_is_refused(name: str, old: str, new: str, reason: str) -> None:
    with pytest.raises(UsageError) as refused:
        hpl.read(text(f"hpl/{name}.txt").replace(old, new))
    assert reason in refused.value.message
    assert refused.value.message.startswith("line ")

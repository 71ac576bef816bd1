"""The prolog and epilog of examples/slurm: it drains a node for a slow path, and for nothing else."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.conftest import COMMAND, ROOT, wait_until
from tests.launch.slurm.slurm_bed import Bed, lacking, slurm

pytestmark = pytest.mark.machine

SCRIPT = ROOT / "examples/slurm/quick-check.sh"
STAND_IN = """#!/bin/sh
[ "$1 $2" = "prove --quick" ] || exit 9
echo "$3 $4" > {folder}/required
[ -e {folder}/real ] && exec {real} "$@"
cat {folder}/answer
. {folder}/ending
"""


@pytest.fixture(scope="module")
def checker(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a stand-in for railwright, which answers and ends as the files of the folder say."""
    folder = tmp_path_factory.mktemp("checker")
    (folder / "railwright").write_text(STAND_IN.format(folder=folder, real=COMMAND))
    (folder / "railwright").chmod(0o755)
    (folder / "prolog").write_text(
        f"#!/bin/sh\nQUICK_CHECK_RAILWRIGHT={folder}/railwright QUICK_CHECK_LIMIT_S=60 exec {SCRIPT}\n"
    )
    (folder / "prolog").chmod(0o755)
    end_with(folder, 0)
    return folder


def end_with(folder: Path, status: int, answer: str = "All 2 paths are as fast as expected.") -> None:
    (folder / "answer").write_text(f"{answer}\nmore lines\n")
    (folder / "ending").write_text(f"exit {status}\n")


def check(folder: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run the script as slurmd does, without HOME."""
    railwright = str(folder / "railwright")
    variables = {"PATH": "/usr/bin:/bin", "SLURMD_NODENAME": "n7", "QUICK_CHECK_RAILWRIGHT": railwright}
    return subprocess.run(
        [SCRIPT], env=variables | environment, text=True, capture_output=True, timeout=60, check=False
    )


def test_only_a_slow_node_is_drained_with_the_way_to_undo_it(checker: Path) -> None:
    end_with(checker, 1, "1 of 2 paths is slow: mpi_latency memory0>memory0.")
    done = check(checker)
    assert done.returncode == 1
    assert "n7: drained: 1 of 2 paths is slow: mpi_latency memory0>memory0. to undo it: " in done.stderr
    assert "scontrol update nodename=n7 state=resume" in done.stderr


@pytest.mark.parametrize(("status", "said"), [(0, ""), (2, "status 2"), (3, "status 3"), (127, "127"), (134, "134")])
def test_an_error_and_what_could_not_be_judged_drain_nothing(checker: Path, status: int, said: str) -> None:
    end_with(checker, status)
    done = check(checker)
    assert (done.returncode, said in done.stderr, done.stderr == "") == (0, True, status == 0)


def test_the_time_limit_a_killed_command_and_a_missing_one_drain_nothing(checker: Path) -> None:
    (checker / "ending").write_text("sleep 300\n")
    late = check(checker, QUICK_CHECK_LIMIT_S="1")
    assert (late.returncode, "not judged within 1 s" in late.stderr) == (0, True)
    (checker / "ending").write_text("kill -KILL $$\n")
    assert check(checker).returncode == 0
    assert check(checker, QUICK_CHECK_RAILWRIGHT="/no/such/file").returncode == 0


def test_a_requirement_is_passed_on(checker: Path) -> None:
    end_with(checker, 0)
    check(checker, QUICK_CHECK_REQUIRE="mpi_latency memory0>*")
    assert (checker / "required").read_text() == "--require mpi_latency memory0>*\n"
    check(checker)
    assert (checker / "required").read_text() == " \n"


@pytest.fixture(scope="module")
def bed(tmp_path_factory: pytest.TempPathFactory, checker: Path) -> Iterator[Bed]:
    """A node whose prolog and epilog are the script."""
    if lacking():
        pytest.skip(f"waived: {lacking()}")
    with slurm(tmp_path_factory.mktemp("slurm"), 1, f"Prolog={checker}/prolog\nEpilog={checker}/prolog\n") as found:
        yield found


def run_job(bed: Bed) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["srun", "--immediate=60", "hostname"], env=os.environ | bed.environment, text=True,
                          capture_output=True, timeout=240, check=False)  # fmt: skip


def is_idle(bed: Bed) -> bool:
    return bed.state_of("n1") == "idle"


def test_a_real_prolog_lets_jobs_run_unless_a_path_is_slow(bed: Bed, checker: Path) -> None:
    for status in (0, 2, 3):
        end_with(checker, status)
        done = run_job(bed)
        assert done.stdout == "machine-n1\n", done.stderr
        wait_until(lambda: is_idle(bed), "the end of the epilog")
    end_with(checker, 1)
    assert run_job(bed).stdout == ""
    bed.ask("scancel", "--user", "root")
    # "draining" is not enough: the epilog still runs, and its failure drains the node again after a resume.
    wait_until(lambda: bed.state_of("n1") == "drained", "a drained node whose epilog ended")
    end_with(checker, 0)
    bed.ask("scontrol", "update", "nodename=n1", "state=resume")
    wait_until(lambda: is_idle(bed), "an idle node")
    assert run_job(bed).stdout == "machine-n1\n"


def test_the_check_itself_runs_in_a_prolog_and_leaves_no_file(bed: Bed, checker: Path) -> None:
    wait_until(lambda: is_idle(bed), "an idle node")
    before = set(Path("/tmp").glob("railwright*"))
    (checker / "real").touch()
    (checker / "required").unlink()
    try:
        run_job(bed)
        wait_until(lambda: not bed.jobs(), "the end of the job")
    finally:
        (checker / "real").unlink()
    assert (checker / "required").exists()
    assert not set(Path("/tmp").glob("railwright-quick*")) - before

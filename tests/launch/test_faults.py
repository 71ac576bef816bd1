"""Ranks and launchers that are killed, crash or hang: each is named, fails only its own launch, and leaves nothing."""

from __future__ import annotations

import os
import re
import signal

import pytest
from tests.conftest import open_files

from railwright.results.records import Result

# The first result comes within a second, and the second size keeps the ranks busy for many.
VICTIM = ("-o", "mpi_bandwidth.sizes=8,64M", "-o", "transports=shm", "-o", "mpi_bandwidth.pages=small")
# Shorter, because a hang is detected only after the time that the plan allows.
SHORT_VICTIM = ("-o", "mpi_bandwidth.sizes=8,8M", "-o", "transports=shm", "-o", "mpi_bandwidth.pages=small")
BYSTANDER = ("-o", "memory_copy.sizes=4K", "-o", "threads=one")
SIZE_AT_WORK = 100 << 20


@pytest.fixture
def busy(railwright, mpirun):
    """A run whose first result is written, and both of whose ranks measure the second."""
    process = railwright.start(
        "run", "mpi_bandwidth", "memory_copy", *VICTIM, *BYSTANDER, "--force", "--mpirun", mpirun
    )
    railwright.wait_until(railwright.results, "a first result")
    railwright.wait_until(lambda: all(at_work(railwright, number) for number in (0, 1)), "both ranks at work on 64 MiB")
    return process


def at_work(railwright, number):
    rank = railwright.rank(number)
    return rank is not None and rank.resident_bytes() > SIZE_AT_WORK


def expect_only_its_own_launch_lost(railwright, process, bystanders: int = 1) -> Result:
    """Return the failed record, after checking everything that must hold after any fault of a rank."""
    done = railwright.finish(process)
    assert done.status == 3, done.err
    assert "Traceback" not in done.err
    kept, failed = railwright.results("mpi_bandwidth")
    assert kept.outcome == "measured"
    assert kept.parameters["size_bytes"] == 8
    assert kept.verification.bytes_wrong == 0
    assert failed.outcome == "failed"
    assert [result.outcome for result in railwright.results("memory_copy")] == ["measured"] * bystanders
    assert railwright.ends()[1].interrupted == ""
    for report in ("report.html", "metrics.txt"):
        assert (railwright.output / report).stat().st_size > 0
    railwright.expect_nothing_left()
    return failed


def named(rank, process) -> str:
    step = r"'mpi_bandwidth 64 MiB, small pages'"
    return rf"rank {rank} \(host {re.escape(os.uname().nodename)}, pid {process.pid}\) at step {step}"


@pytest.mark.parametrize(
    ("mpirun", "number", "by"),
    [
        ("openmpi", 0, signal.SIGKILL),
        ("openmpi", 1, signal.SIGSEGV),
        ("mpich", 0, signal.SIGSEGV),
        ("mpich", 1, signal.SIGKILL),
    ],
    indirect=["mpirun"],
)
def test_a_rank_that_is_killed_or_crashes_is_named(railwright, busy, number, by):
    victim = railwright.rank(number)
    os.kill(victim.pid, by)
    failed = expect_only_its_own_launch_lost(railwright, busy)
    assert re.match(named(number, victim), failed.reason), failed.reason
    assert f"signal {by.value}" in failed.reason


def test_a_killed_mpirun_is_told_apart_from_a_killed_rank(railwright, busy):
    launchers = [process for process in railwright.processes() if process.is_mpirun]
    ranks = [railwright.rank(number) for number in (0, 1)]
    assert len(launchers) == 1
    os.kill(launchers[0].pid, signal.SIGKILL)
    failed = expect_only_its_own_launch_lost(railwright, busy)
    assert failed.reason.startswith("mpirun ended (killed by SIGKILL) before "), failed.reason
    for number, rank in enumerate(ranks):
        assert re.search(named(number, rank), failed.reason), failed.reason


def test_a_run_that_is_ended_while_a_launcher_lingers_has_named_the_rank_that_was_lost(railwright, busy):
    """Slurm ends the job of a lost node in this way."""
    (launcher,) = [process for process in railwright.processes() if process.is_mpirun]
    victim, streams = railwright.rank(1), sockets_of(busy.pid)
    os.kill(launcher.pid, signal.SIGSTOP)
    os.kill(victim.pid, signal.SIGKILL)
    railwright.wait_until(lambda: sockets_of(busy.pid) < streams, "the end of the stream of rank 1")
    os.kill(busy.pid, signal.SIGTERM)
    assert railwright.finish(busy).status == 3
    kept, failed = railwright.results("mpi_bandwidth")
    assert (kept.outcome, failed.outcome) == ("measured", "failed")
    assert re.fullmatch(named(1, victim) + " ended without a message, and the run was interrupted .*", failed.reason), (
        failed.reason
    )
    assert "SIGTERM" in railwright.ends()[1].interrupted
    railwright.expect_nothing_left()


def sockets_of(pid: int) -> int:
    return sum(target.startswith("socket:") for target in open_files(pid))


def test_a_rank_that_hangs_is_told_from_the_one_that_waits_for_it(railwright, mpirun):
    """Must run alone: on a busy machine, a launch that does not hang may be silent for as long."""
    process = railwright.start(
        *("run", "mpi_bandwidth", *SHORT_VICTIM, "--force", "--mpirun", mpirun, "--silence", "5"),
    )
    railwright.wait_until(railwright.results, "a first result")
    victim = railwright.rank(1)
    os.kill(victim.pid, signal.SIGSTOP)
    failed = expect_only_its_own_launch_lost(railwright, process, bystanders=0)
    assert failed.reason.startswith("hung: silent for ")
    assert re.search(rf"rank 1 \(host \S+, pid {victim.pid}\) at step '[^']+', stopped$", failed.reason), failed.reason
    assert re.search(r"rank 0 \(host \S+, pid \d+\) at step '[^']+', (running|asleep);", failed.reason), failed.reason


def test_a_killed_parent_takes_everything_with_it_and_the_next_run_sweeps(railwright, busy, mpirun):
    assert len(railwright.processes()) >= 4, "the command, mpirun and two ranks"
    busy.kill()
    busy.wait()
    railwright.wait_until(lambda: not railwright.processes(), "the end of mpirun and all ranks")
    kept = railwright.results()
    assert [result.outcome for result in kept] == ["measured"]
    left: list[str] = []

    def only_the_folder() -> bool:
        left[:] = railwright.left_behind()
        return all(f"/railwright-{busy.pid}-" in path for path in left)

    # Launchers of concurrent tests remove their own files in /tmp.
    railwright.wait_until(only_the_folder, "nothing left but the folder of the killed parent")
    assert left, "the folder of a killed parent is still there, or this test proves nothing of the sweep"
    done = railwright("run", "memory_copy", *BYSTANDER, "--force", "-O", str(railwright.folder / "second"))
    assert done.status == 3, done.err
    railwright.expect_nothing_left()
    judged = railwright("judge", str(railwright.output))
    assert judged.status == 3
    assert "cut off" in judged.out


def test_a_rank_that_raises_says_what_and_where(railwright, small_disk):
    """The test file's disk is filled between the plan and the write, so that the rank gets a real ENOSPC."""
    disk = small_disk("disk", "size=80m")
    hog = disk / "hog"
    process = railwright.start(
        *("run", "mpi_bandwidth", "file_read", "memory_copy", *VICTIM[:1], "mpi_bandwidth.sizes=8,8M", *VICTIM[2:]),
        *("-o", "file_read.sizes=4K", "-o", "file-size=8M", "-o", f"directory={disk}"),
        *(*BYSTANDER, "--force"),
    )
    railwright.wait_until(railwright.results, "a first result")
    hog.write_bytes(bytes(78 << 20))
    done = railwright.finish(process)
    assert done.status == 3
    (failed,) = railwright.results("file_read")
    assert failed.outcome == "failed"
    assert re.match(
        rf"rank 0 \(host \S+, pid \d+\) at step 'writing the test file': .*{re.escape(str(disk))}.* No space left",
        failed.reason,
    ), failed.reason
    assert {result.outcome for result in railwright.results("mpi_bandwidth")} == {"measured"}
    assert [result.outcome for result in railwright.results("memory_copy")] == ["measured"]
    assert sorted(path.name for path in disk.iterdir()) == ["hog"]
    railwright.expect_nothing_left()


def test_a_rank_without_mpi_that_is_killed_is_named(railwright):
    process = railwright.start(
        *("run", "memory_copy", "core_latency", "-o", "sizes=4K,512M", "-o", "threads=one", "--force")
    )
    railwright.wait_until(railwright.results, "a first result")
    victim = railwright.rank(0)
    os.kill(victim.pid, signal.SIGKILL)
    done = railwright.finish(process)
    assert done.status == 3
    kept, failed = railwright.results("memory_copy")
    assert (kept.outcome, failed.outcome) == ("measured", "failed")
    assert re.match(rf"rank 0 \(host \S+, pid {victim.pid}\) at step 'memory_copy ", failed.reason)
    assert failed.reason.endswith("local: killed by SIGKILL")
    assert [result.outcome for result in railwright.results("core_latency")] == ["measured"]
    railwright.expect_nothing_left()


def test_a_rank_that_dies_before_it_can_speak_is_a_failed_record(railwright, mpirun):
    """An MPI library that cannot be loaded: MPI_Init never happens, and the other benchmark is measured."""
    wrong = railwright.folder / "bin" / "mpirun"
    wrong.parent.mkdir()
    (wrong.parent.parent / "lib").mkdir()
    (wrong.parent.parent / "lib" / "libmpi.so.40").write_bytes(b"no library at all")
    (wrong.parent.parent / "lib" / "libmpi.so.12").write_bytes(b"no library at all")
    wrong.write_text(f'#!/bin/sh\nexec {mpirun} "$@"\n')
    wrong.chmod(0o755)
    done = railwright(
        "run", "mpi_bandwidth", "memory_copy", *SHORT_VICTIM, *BYSTANDER, "--force", "--mpirun", str(wrong)
    )
    assert done.status == 3
    (failed,) = railwright.results("mpi_bandwidth")
    assert failed.outcome == "failed"
    assert re.match(r"rank [01] \(host \S+, pid \d+\) at step 'MPI_Init': no MPI library can be loaded", failed.reason)
    assert [result.outcome for result in railwright.results("memory_copy")] == ["measured"]
    railwright.expect_nothing_left()


def test_a_rank_that_is_done_first_costs_the_other_nothing(railwright, mpirun):
    """Rank 0 still summarizes 10,000 samples when rank 1 is done. Over TCP, rank 1 does not wait for it."""
    done = railwright(
        "run",
        "mpi_latency",
        "-o",
        "sizes=64",
        "-o",
        "pages=small",
        "-o",
        "transports=tcp",
        "--force",
        "--mpirun",
        mpirun,
    )
    assert done.status == 3
    (result,) = railwright.results()
    assert result.outcome == "measured", result.reason
    assert len(result.samples) == 10_000

"""Ctrl-C, a lost terminal, a second run, and closed pipes: earlier results are kept, and the exit status is right."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from pathlib import Path

import pytest
from msgspec.structs import replace
from tests.conftest import open_files

from railwright import main
from railwright.benchmarks.registry import DECLARATIONS
from railwright.diagnosis.runs.diagnose import diagnose
from railwright.results.records import Context, End, Result, ResultFile, Run, Verification
from railwright.results.statistics import summarise
from railwright.results.store import load
from railwright.run import exclusive
from railwright.topology.expand import expand

LONG = ("run", "mpi_bandwidth", "memory_copy", "-o", "mpi_bandwidth.sizes=8,64M", "-o", "transports=shm")
SHORT = ("run", "memory_copy", "core_latency", "-o", "sizes=4K", "-o", "threads=one", "--force")


def started(railwright, *more):
    process = railwright.start(*LONG, "-o", "memory_copy.sizes=4K", "--force", *more)
    railwright.wait_until(railwright.results, "a first result")
    return process


@pytest.mark.parametrize(("by", "word"), [(signal.SIGINT, "Ctrl-C"), (signal.SIGHUP, "SIGHUP")])
def test_an_interrupted_run_keeps_what_it_measured_and_reports_it(railwright, mpirun, by, word):
    process = started(railwright, "--mpirun", mpirun)
    process.send_signal(by)
    done = railwright.finish(process)
    assert done.status == 3, done.err
    assert "Traceback" not in done.err
    _, end = railwright.ends()
    assert end.interrupted == f"interrupted by {word}"
    file = load(railwright.output)
    assert [(one.benchmark, one.outcome) for one in file.results] == [
        ("mpi_bandwidth", "measured"),
        ("memory_copy", "waived"),
    ]
    assert file.results[1].reason == f"interrupted by {word}"
    assert word in (railwright.output / "report.html").read_text("utf-8")
    assert word in done.out
    railwright.expect_nothing_left()


def test_an_impatient_second_ctrl_c_leaves_nothing_running_and_keeps_the_results(railwright):
    process = started(railwright)
    ranks = [found for found in railwright.processes() if found.rank is not None]
    assert len(ranks) == 2
    process.send_signal(signal.SIGINT)
    process.send_signal(signal.SIGINT)
    railwright.wait_until(lambda: process.poll() is not None or not railwright.processes(), "a first answer")
    if process.poll() is None:
        process.send_signal(signal.SIGINT)
    done = railwright.finish(process)
    assert done.status in (2, 3)
    assert "Traceback" not in done.err, done.err
    assert load(railwright.output).results[0].outcome == "measured"
    railwright.wait_until(lambda: not railwright.processes(), "the end of mpirun and all ranks")


def test_ctrl_c_before_anything_was_measured_says_so_and_writes_nothing(railwright):
    process = railwright.start(*SHORT, stderr=subprocess.PIPE)
    line = process.stderr.readline()
    assert line.startswith("plan: ")
    process.send_signal(signal.SIGINT)
    done = railwright.finish(process)
    assert done.status == 2
    assert done.message() == "railwright: interrupted"
    assert not railwright.output.exists()
    railwright.expect_nothing_left()


@pytest.mark.parametrize(
    ("end", "status"),
    [(End(finished_at="later"), 0), (End(finished_at="later", interrupted="interrupted by Ctrl-C"), 3), (None, 3)],
)
def test_a_run_that_was_cut_off_is_never_all_ok(end, status):
    """A read of a healthy drive is ok, but results that an interrupted run did not reach are not."""
    drive = Result(benchmark="device_read", quantity="bandwidth_bytes_per_s", path="nvme0n1>memory0",
                   parameters={"size_bytes": 2**20, "depth": 4})  # fmt: skip
    run = Run(railwright="0", started_at="now", command=("railwright",), context=Context(host="h", kernel="k"),
              topology=expand("laptop", {}))  # fmt: skip
    limit = diagnose(ResultFile(run=run, results=(drive,)), DECLARATIONS).points[0].limit.value
    checked = Verification(method="a test", bytes_checked=2**20, bytes_wrong=0)
    healthy = replace(drive, samples=(0.99 * limit,), summary=summarise([0.99 * limit]), verification=checked)
    assert diagnose(ResultFile(run=run, results=(healthy,), end=end), DECLARATIONS).exit_status == status


def holds_lock(pid: int) -> bool:
    """Report whether the process holds the lock of this host: a forced run beside another one goes without."""
    name = exclusive._NAME.replace("\0", "@")
    lines = (line.split() for line in Path("/proc/net/unix").read_text().splitlines())
    inodes = {f"socket:[{fields[6]}]" for fields in lines if fields[-1] == name}
    return not inodes.isdisjoint(open_files(pid))


def test_a_second_run_is_refused_unless_forced(railwright):
    first = started(railwright)
    while not holds_lock(first.pid):  # a run of another test held it when this one began
        first.send_signal(signal.SIGINT)
        railwright.finish(first)
        shutil.rmtree(railwright.output)
        first = started(railwright)
    elsewhere = str(railwright.folder / "second")
    refused = railwright(*[part for part in SHORT if part != "--force"], "-O", elsewhere)
    assert refused.status == 3
    assert "another railwright run is measuring on this host" in refused.message()
    assert "--force" in refused.message()
    assert not Path(elsewhere).exists()
    forced = railwright(*SHORT, "-O", elsewhere)
    assert forced.status == 3, forced.err
    assert {one.outcome for one in load(railwright.folder / "second").results} == {"measured"}
    assert first.poll() is None, "the first run must still have been measuring, or nothing was beside anything"
    first.send_signal(signal.SIGINT)
    railwright.finish(first)
    assert railwright.results("mpi_bandwidth")[0].outcome == "measured"
    railwright.expect_nothing_left()


@pytest.fixture
def nobody_reads():
    """The writing end of a pipe whose reader has closed it, as `| head` does."""
    reading, writing = os.pipe()
    os.close(reading)
    yield writing
    os.close(writing)


def test_a_reader_who_leaves_costs_neither_the_reports_nor_the_status(railwright, nobody_reads):
    done = railwright(*SHORT, stdout=nobody_reads)
    assert done.status == 3, done.err
    assert "Traceback" not in done.err
    assert "Exception ignored" not in done.err
    assert (railwright.output / "report.html").exists()
    assert (railwright.output / "metrics.txt").exists()
    as_json = railwright("judge", str(railwright.output), "--json", stdout=nobody_reads)
    assert as_json.status == 3
    assert "Exception ignored" not in as_json.err


@pytest.mark.parametrize(
    "words",
    [("--help",), ("shapes",), ("limits", "--host", "hgx-h100"), ("topo", "--from", "hgx-h100"),
     ("run",), ("prove", "--help"), ("whatif", "--host", "hgx-h100", "--host", "hgx-h200", "--count", "2")],
    ids=" ".join,
)  # fmt: skip
def test_a_verb_whose_reader_leaves_ends_silently_like_any_tool(railwright, nobody_reads, words):
    done = railwright(*words, stdout=nobody_reads)
    assert (done.status, done.err) == (141, "")


def test_nobody_reading_the_progress_costs_nothing(railwright, nobody_reads):
    done = railwright(*SHORT, stderr=nobody_reads)
    assert done.status == 3
    assert [one.outcome for one in railwright.results()] == ["measured", "measured"]
    assert railwright.ends()[1].interrupted == ""
    assert "memory_copy" in done.out


def test_progress_onto_a_full_disk_costs_nothing(railwright):
    with Path("/dev/full").open("w") as full:
        done = railwright(*SHORT, stderr=full)
    assert done.status == 3
    assert [one.outcome for one in railwright.results()] == ["measured", "measured"]


def test_a_report_onto_a_full_disk_is_an_error_and_the_files_are_written(railwright):
    with Path("/dev/full").open("w") as full:
        done = railwright(*SHORT, stdout=full)
    assert done.status == 2
    assert "No space left on device" in done.message()
    assert "Exception ignored" not in done.err
    assert (railwright.output / "report.html").exists()


def test_signals_end_a_run_like_ctrl_c_and_nohup_is_respected():
    ending = (signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2, signal.SIGXCPU)
    before = {number: signal.signal(number, signal.SIG_DFL) for number in ending}  # a shell's jobs ignore SIGQUIT
    try:
        main._end_on_signals()
        for number in ending:
            with pytest.raises(KeyboardInterrupt, match=number.name):
                signal.raise_signal(number)
        signal.raise_signal(signal.SIGHUP)  # a lost terminal sends it, and then its shell
        main._end_on_signals()
        assert signal.getsignal(signal.SIGHUP) == signal.SIG_IGN  # as below nohup
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)

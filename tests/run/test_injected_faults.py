"""68 faults, of kinds and at moments: none loses a record, hangs, or leaves a process or a file.

`UNNAMED` lists the causes that no record names. The faults strike a run on one host, a run on two hosts, a search of
hosts, and a watched command.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from tests.conftest import MPIRUNS, Done, Driver
from tests.launch.bridged import Bridged, bridged, ip

from railwright.sampling.recording import read_recording

pytestmark = [
    pytest.mark.machine,
    pytest.mark.long,
    pytest.mark.skipif(os.geteuid() != 0, reason="waived: network namespaces need root"),
]

# The first result comes within a second, and the second size keeps the ranks busy for many.
SIZES = ("-o", "mpi_bandwidth.sizes=8,64M", "-o", "mpi_bandwidth.pages=small", "--force", "--silence", "20")
HERE = ("run", "mpi_bandwidth", "memory_copy", *SIZES, "-o", "transports=shm", "-o", "memory_copy.sizes=4K",
        "-o", "threads=one")  # fmt: skip
LOCAL = ("run", "memory_copy", "core_latency", "-o", "sizes=4K,512M", "-o", "threads=one", "--force", "--silence", "20")
BETWEEN = ("run", "mpi_bandwidth", *SIZES)
AT_WORK_BYTES = 100 << 20
BEFORE = r"mpirun ended \("
"""A rank that dies before its first message has no number: the launcher's output tells the signal."""
UNNAMED = {("rank 1 SIGABRT", "start"): "MPICH reports the SIGTERM by which it ends the other rank",
           ("mpirun SIGTERM", "first result"): "mpirun ends its ranks and exits with status 1",
           ("mpirun SIGTERM", "at work"): "mpirun ends its ranks and exits with status 1"}  # fmt: skip
"""The faults whose cause is not named, with the reason."""
ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)


class Fault(NamedTuple):
    """A fault: its name, the act, and the words that name its cause."""

    name: str
    strike: Callable[[Driver, int], object]
    words: str
    measures_on: bool = True
    """True if the launches after it are measured."""

    def __str__(self) -> str:
        return self.name


def interruption(number: signal.Signals) -> Fault:
    """A signal to the command. Before the first launch there is nothing but a message."""
    word = "Ctrl-C" if number is signal.SIGINT else number.name
    said = f"interrupted by {word}" + "|^railwright: interrupted$" * (number is signal.SIGINT)
    return Fault(number.name, lambda _driver, command: os.kill(command, number), said, measures_on=False)


def rank_fault(rank: int, number: signal.Signals, words: str) -> Fault:
    def strike(driver: Driver, _command: int) -> None:
        os.kill(driver.wait_until(lambda: driver.rank(rank), "the rank").pid, number)

    return Fault(f"rank {rank} {number.name}", strike, words.format(rank=rank))


def launcher_fault(number: signal.Signals, words: str) -> Fault:
    def strike(driver: Driver, _command: int) -> None:
        os.kill(next(process.pid for process in driver.processes() if process.is_mpirun), number)

    return Fault(f"mpirun {number.name}", strike, words)


SIGNALS = tuple(map(interruption, ENDING))
OF_RANKS = (
    rank_fault(0, signal.SIGKILL, rf"(?:rank {{rank}} .*|{BEFORE}.*)signal 9"),
    rank_fault(1, signal.SIGSEGV, rf"(?:rank {{rank}} .*|{BEFORE}.*)signal 11"),
    rank_fault(1, signal.SIGABRT, rf"(?:rank {{rank}} .*|{BEFORE}.*)signal 6"),
    rank_fault(0, signal.SIGTERM, rf"(?:rank {{rank}} .*|{BEFORE}.*)(?:SIGTERM|signal 15)"),
    rank_fault(1, signal.SIGSTOP, r"hung: .*(?:rank {rank} [^;]*, stopped|1 rank sent no message: {rank})"),
)
OF_LAUNCHERS = (
    launcher_fault(signal.SIGKILL, r"mpirun ended \(killed by SIGKILL\)"),
    launcher_fault(signal.SIGTERM, r"mpirun.*(?:SIGTERM|signal 15)"),
)
OF_A_RANK_ALONE = (
    rank_fault(0, signal.SIGKILL, r"(?:rank {rank}|local) .*SIGKILL"),
    rank_fault(0, signal.SIGBUS, r"(?:rank {rank}|local) .*SIGBUS"),
    rank_fault(0, signal.SIGSTOP, r"hung: .*(?:rank {rank} [^;]*, stopped|no rank had started)"),
)
MOMENTS: dict[str, Callable[[Driver], object]] = {
    "start": lambda driver: driver.rank(0) and driver.rank(1),
    "first result": lambda driver: driver.results(),
    "at work": lambda driver: all(
        (rank := driver.rank(number)) and rank.resident_bytes() > AT_WORK_BYTES for number in (0, 1)
    ),
}


def finish(driver: Driver, process: object, before: int, fault: Fault) -> Done:
    """Wait for the end and check what holds after every fault. `before` is the number of results before it."""
    done = driver.finish(process)
    assert "Traceback" not in done.err, done.err
    results = driver.results()
    assert len(results) >= before
    assert [one.outcome for one in results[:before]] == ["measured"] * before
    ends = ""
    if results or driver.records():
        ends = driver.ends()[1].interrupted
    told = "\n".join([done.err, ends, *(one.reason for one in results)])
    assert re.search(fault.words, told, re.MULTILINE), told
    assert done.status in (2, 3)
    driver.expect_nothing_left()
    return done


@pytest.mark.parametrize("moment", MOMENTS)
@pytest.mark.parametrize("fault", [*SIGNALS, *OF_RANKS, *OF_LAUNCHERS], ids=str)
def test_a_fault_of_a_run_on_one_host(railwright, moment, fault):
    if (fault.name, moment) in UNNAMED:
        fault = fault._replace(words="")
    mpi = MPIRUNS["mpich" if len(fault.name + moment) % 2 else "openmpi"]
    process = railwright.start(*HERE, "--mpirun", mpi)
    railwright.wait_until(lambda: MOMENTS[moment](railwright), moment)
    before = len(railwright.results())
    fault.strike(railwright, process.pid)
    finish(railwright, process, before, fault)
    last = railwright.results("memory_copy")
    assert [one.outcome for one in last] == ["measured" if fault.measures_on else "waived"] * len(last)
    assert last or (moment == "start" and not fault.measures_on)


@pytest.mark.parametrize("moment", ["start", "first result"])
@pytest.mark.parametrize("fault", [*SIGNALS[2:], *OF_A_RANK_ALONE], ids=str)
def test_a_fault_of_a_launch_without_mpi(railwright, moment, fault):
    process = railwright.start(*LOCAL)
    reached = {"start": lambda: railwright.rank(0), "first result": railwright.results}[moment]
    railwright.wait_until(reached, moment)
    before = len(railwright.results())
    fault.strike(railwright, process.pid)
    finish(railwright, process, before, fault)


@pytest.mark.parametrize("moment", ["first result", "at work"])
def test_a_full_disk_in_the_middle_of_a_run(railwright, small_disk, moment):
    disk = small_disk("disk", "size=1m")
    railwright.output = disk / "out"
    process = railwright.start(*HERE)
    railwright.wait_until(lambda: MOMENTS[moment](railwright), moment)
    before = len(railwright.results())
    with contextlib.suppress(OSError):
        (disk / "hog").write_bytes(bytes(2 << 20))
    done = railwright.finish(process)
    assert "Traceback" not in done.err, done.err
    assert done.status in (2, 3)
    assert re.search(r"No space left on device", done.err), done.err
    assert len(railwright.results()) >= before
    railwright.expect_nothing_left()


def test_a_killed_command_is_judged_as_cut_off(railwright):
    process = railwright.start(*HERE)
    railwright.wait_until(railwright.results, "a first result")
    process.kill()
    process.wait()
    railwright.wait_until(lambda: not railwright.processes(), "the end of all ranks")
    assert "cut off" in railwright("judge", str(railwright.output)).out
    railwright(
        "run", "memory_copy", "-o", "sizes=4K", "-o", "threads=one", "--force", "-O", str(railwright.folder / "2")
    )
    railwright.expect_nothing_left()


@pytest.fixture(scope="module")
def hosts() -> Iterator[Bridged]:
    with bridged(3) as found:
        yield found


def unplug(name: str) -> None:
    ip("-n", name, "link", "set", "net1", "down")


def of_hosts(hosts: Bridged) -> dict[str, tuple[Callable[[int], object], str]]:
    """Return the faults of hosts by name, each with the act and the words that name the cause."""
    name = hosts.names[1]
    return {
        **{
            number.name: (lambda command, number=number: os.kill(command, number), interruption(number).words)
            for number in ENDING
        },
        "a host loses power": (lambda _command: hosts.kill(name), rf"{name}|rank 1"),
        "a rank afar dies": (
            lambda _command: os.kill(hosts.ranks(name)[0], signal.SIGKILL),
            rf"(?:rank 1 .*{name}|{BEFORE}).*signal 9",
        ),
        "a link is cut": (lambda _command: unplug(name), rf"{name}"),
    }


@pytest.mark.parametrize("moment", ["start", "first result"])
@pytest.mark.parametrize("kind", [*(number.name for number in ENDING), "a host loses power", "a rank afar dies",
                                  "a link is cut"])  # fmt: skip
def test_a_fault_between_hosts(railwright, hosts, moment, kind):
    strike, words = of_hosts(hosts)[kind]
    two = hosts.words.rpartition(",")[0]
    process = railwright.start(*BETWEEN, "--hosts", two)
    reached = {"start": lambda: hosts.ranks(hosts.names[1]), "first result": railwright.results}[moment]
    railwright.wait_until(reached, moment)
    before = len(railwright.results())
    try:
        strike(process.pid)
        finish(railwright, process, before, Fault(kind, lambda _driver, _command: None, words))
    finally:
        ip("-n", hosts.names[1], "link", "set", "net1", "up")
    assert all(not hosts.pids(name) for name in hosts.names)


@pytest.mark.parametrize("number", ENDING)
def test_a_signal_to_a_search_of_hosts(railwright, hosts, number):
    journal = railwright.folder / "journal"
    process = railwright.start("locate", "--hosts", hosts.words, "--resume", str(journal), "--force")
    railwright.wait_until(lambda: all(hosts.ranks(name) for name in hosts.names), "the ranks")
    process.send_signal(number)
    done = railwright.finish(process)
    assert (done.status, done.message()) == (
        2,
        "railwright: interrupted" + f" by {number.name}" * (number is not signal.SIGINT),
    )
    assert all(not hosts.pids(name) for name in hosts.names)
    railwright.expect_nothing_left()


@pytest.mark.parametrize("number", ENDING)
def test_a_signal_to_a_watched_command_keeps_its_samples(railwright, tmp_path, number):
    recording, page = tmp_path / "a.arrows", tmp_path / "a.html"
    words = (sys.executable, "-c", "import time; print('at work', flush=True); time.sleep(600)")
    process = railwright.start("watch", "--record", str(recording), "-O", str(page), "--", *words)
    railwright.wait_until(lambda: recording.exists() and recording.stat().st_size > 10_000, "samples")
    process.send_signal(number)
    done = railwright.finish(process)
    assert done.status in (0, 3), done.err
    assert len(read_recording(recording).times_s) > 10
    assert Path(page).stat().st_size > 0
    railwright.expect_nothing_left()

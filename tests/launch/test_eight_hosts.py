"""Eight hosts, some of which die during a measurement: earlier results are kept, the other hosts are measured
completely, and no process or file is left. All hosts are network namespaces of this machine.
"""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable, Iterator

import msgspec
import pytest
from tests.conftest import Driver, wait_until
from tests.launch.bridged import Bridged, bridged
from tests.schemas import fits

pytestmark = [pytest.mark.machine, pytest.mark.skipif(os.geteuid() != 0, reason="waived: network namespaces need root")]

LAUNCHES = 10
PAIRS = ("--parts", "pairs", "--json", "--force")
# The first size is measured at once, and the second takes minutes.
ENDLESS = ("run", "mpi_all_gather", "-o", "sizes=32,64M", "--force")


@pytest.fixture(scope="module")
def eight() -> Iterator[Bridged]:
    with bridged(8) as found:
        yield found


def records(out: str) -> dict[str, list[dict]]:
    """Return the printed records by kind. Assert that each matches its schema."""
    found: dict[str, list[dict]] = {}
    for line in out.splitlines():
        record = msgspec.json.decode(line)
        fits(record, "hosts")
        found.setdefault(record["record"], []).append(record)
    return found


def in_rounds(railwright: Driver, eight: Bridged, number: int, act: Callable[[], None]) -> threading.Thread:
    """Act while the ranks of the given launch of pairs run."""
    journal = railwright.output / "between/pairs.jsonl"

    def lines() -> int:
        return journal.read_bytes().count(b"\n") if journal.exists() else 0

    def wait_and_act() -> None:
        wait_until(lambda: lines() == number and all(eight.ranks(name) for name in eight.names), "that launch")
        act()

    thread = threading.Thread(target=wait_and_act)
    thread.start()
    return thread


def test_pairs_go_on_without_hosts_that_die_and_what_was_measured_before_is_kept(railwright, eight):
    """The first host dies in the search before the pairs, another in the launch of the pairs."""
    first, other = eight.names[0], eight.names[5]
    process = railwright.start("prove", "--hosts", eight.words, *PAIRS)
    killers = [in_rounds(railwright, eight, 1, lambda: eight.kill(first))]
    killers[0].join()
    left = Bridged(tuple(name for name in eight.names if name != first))
    killers.append(in_rounds(railwright, left, 2, lambda: left.kill(other)))
    done = railwright.finish(process)
    killers[1].join()
    assert done.status == 1, done.err  # two suspects
    found = records(done.out)
    (between,) = found["between"]
    assert set(between["left_out"]) == {first, other}
    assert [(one["kind"], one["verdict"]) for one in between["suspects"]] == [("host", "silent")] * 2
    seven = [name for name in eight.names if name not in (first, other)]
    measured = {(one["source"], one["destination"]) for one in found["pair"] if one["value"]}
    assert measured == {(one, two) for one in seven for two in seven if one != two}
    assert not any(one["verdict"]["state"] == "slow" for one in found["pair"])  # they share CPUs
    assert all(not eight.pids(name) for name in eight.names)
    railwright.expect_nothing_left()


@pytest.mark.long
def test_a_host_that_dies_in_the_screen_loses_its_rows_alone(railwright, eight):
    three = Bridged(eight.names[:3])
    gone = three.names[1]
    words = ("--parts", "screen", "--benchmarks", "core_latency", "--launches", str(LAUNCHES), "--json", "--force")
    process = railwright.start("prove", "--hosts", three.words, *words)
    folder = railwright.output / "hosts" / gone
    wait_until(
        lambda: (folder / "results.jsonl").exists() and railwright.results(folder=folder), "a result of that host"
    )
    three.kill(gone)
    done = railwright.finish(process)
    complete = {name for name in three.names if len(railwright.results(folder=folder.parent / name)) == LAUNCHES}
    assert complete == set(three.names) - {gone}, done.err
    (said,) = [one for one in records(done.out)["host"] if one["name"] == gone]
    assert said["cells"], "what was measured before is kept"
    assert "SIGKILL" in json.dumps(said), done.err
    assert all(not eight.pids(name) for name in eight.names)
    railwright.expect_nothing_left()


@pytest.mark.parametrize("which", [0, pytest.param(4, marks=pytest.mark.long)])
def test_a_collective_is_repeated_without_a_host_that_dies(railwright, eight, which):
    """The first host may be missing too, on which mpirun runs and whose rank reports."""
    gone = eight.names[which]
    process = railwright.start(*ENDLESS, "--hosts", eight.words)
    wait_until(lambda: railwright.results("mpi_all_gather"), "a first result")
    eight.kill(gone)
    again = lambda: [one for one in railwright.results("mpi_all_gather") if one.hosts == 7]  # noqa: E731
    wait_until(lambda: any(one.outcome == "measured" for one in again()), "a result of the other seven")
    process.send_signal(2)
    done = railwright.finish(process)
    every = railwright.results("mpi_all_gather")
    kept = [one for one in every if one.hosts == 8]
    assert {one.outcome for one in kept} == {"measured", "failed"}, done.err
    named = again()[0].settings["hosts"].split(",")
    assert named == [name for name in eight.names if name != gone]
    assert all(not eight.pids(name) for name in eight.names)
    railwright.expect_nothing_left()

"""Hosts compared with their siblings: which hosts are behind, which cannot be, and their order."""

from __future__ import annotations

from random import Random

import pytest

from railwright.diagnosis.fleet.host_table import HostTable, host_table
from railwright.diagnosis.verdicts.judged import Diagnosis, Judged, JudgedPath, State, Verdict
from railwright.limits.limit import NoLimit
from railwright.results.statistics import summarise


def path(benchmark: str, launches: tuple[float, ...], quantity: str = "bandwidth_bytes_per_s",
         state: State = "ok", **varied: str) -> JudgedPath:  # fmt: skip
    """Build a path of a host with the medians of its launches."""
    verdict = Verdict(state=state, why="")
    head = Judged(benchmark=benchmark, quantity=quantity, path="memory0>memory0", parameters=varied, outcome="measured",
                  value=sorted(launches)[len(launches) // 2] if launches else None,
                  launches=tuple(summarise([one]) for one in launches),
                  limit=NoLimit(quantity=quantity, why=""), verdict=verdict)  # fmt: skip
    return JudgedPath(benchmark=benchmark, quantity=quantity, path="memory0>memory0", parameters=varied,
                      headline=head, verdict=verdict)  # fmt: skip


def host(*paths: JudgedPath) -> Diagnosis:
    return Diagnosis(points=(), paths=paths, findings=(), exit_status=0)


def behind(table: HostTable) -> dict[str, list[str]]:
    return {
        one.name: [table.columns[cell.column].benchmark for cell in one.behind] for one in table.hosts if one.behind
    }


def test_a_host_that_is_slower_in_all_launches_is_behind():
    fleet = {f"h{number}": host(path("copy", (10e9, 10.2e9, 9.9e9))) for number in range(5)}
    fleet["h3"] = host(path("copy", (7e9, 7.1e9, 6.9e9)))
    table = host_table(fleet)
    assert behind(table) == {"h3": ["copy"]}
    assert table.hosts[0].name == "h3"
    assert table.hosts[0].behind[0].part == pytest.approx(0.7)


def test_one_bad_launch_is_no_slow_host():
    fleet = {f"h{number}": host(path("copy", (10e9, 10.2e9, 9.9e9))) for number in range(5)}
    fleet["h3"] = host(path("copy", (5e9, 5e9, 9.9e9)))
    assert behind(host_table(fleet)) == {}


def test_a_latency_is_worse_when_it_is_longer():
    fleet = {f"h{number}": host(path("ping", (1e-6,), "latency_s")) for number in range(4)}
    fleet["h1"] = host(path("ping", (2e-6,), "latency_s"))
    fleet["h2"] = host(path("ping", (0.99e-6,), "latency_s"))
    assert behind(host_table(fleet)) == {"h1": ["ping"]}


def test_hosts_that_differ_widely_are_not_told_apart():
    random = Random(1)
    for size in (3, 4, 8, 16, 64):
        for _ in range(20):
            rates = [[random.uniform(1e9, 2e9) for _ in range(3)] for _ in range(size)]
            fleet = {f"h{number}": host(path("disk", tuple(three))) for number, three in enumerate(rates)}
            assert behind(host_table(fleet)) == {}, (size, rates)


def test_of_two_hosts_and_of_hosts_that_share_cpus_none_is_behind():
    two = {"a": host(path("copy", (10e9,))), "b": host(path("copy", (1e9,)))}
    assert behind(host_table(two)) == {}
    assert {cell.standing for one in host_table(two).hosts for cell in one.cells} == {"alone"}
    three = two | {"c": host(path("copy", (10e9,)))}
    assert behind(host_table(three)) == {"b": ["copy"]}
    assert behind(host_table(three, compare=False)) == {}


def test_only_the_same_work_is_held_side_by_side():
    fleet = {name: host(path("copy", (rate,), pages=pages))
             for name, rate, pages in (("a", 10e9, "huge"), ("b", 10e9, "huge"), ("c", 2e9, "small"))}  # fmt: skip
    table = host_table(fleet)
    assert len(table.columns) == 2
    assert behind(table) == {}


def test_a_host_without_results_comes_first_and_is_never_like_the_others():
    fleet: dict[str, Diagnosis | str] = {name: host(path("copy", (10e9,))) for name in "abcd"}
    fleet["c"] = host(path("copy", (1e9,)))
    fleet["d"] = "silent for 60 s"
    fleet["e"] = host()
    fleet["f"] = host(path("copy", (), state="failed"))
    table = host_table(fleet)
    assert [one.name for one in table.hosts][:3] == ["d", "e", "c"]
    assert [one.trouble for one in table.hosts][:2] == ["silent for 60 s", "nothing was measured"]
    (failed,) = [one for one in table.hosts if one.name == "f"]
    assert [cell.state for cell in failed.telling] == ["failed"]
    assert [cell.standing for cell in failed.cells] == ["alone"]


def test_what_a_host_waived_is_no_path_of_it():
    table = host_table({name: host(path("gpu", (), state="waived")) for name in "abc"})
    assert table.columns == ()

"""OSU tables inside one host, compared with our own run on the same host."""

from __future__ import annotations

import pytest

from railwright.benchmarks.registry import DECLARATIONS
from railwright.expected.baselines import Baselines
from railwright.expected.machine import Machine
from railwright.explain.table import explain
from railwright.limits.limit import NoLimit
from railwright.results.readers.registry import read
from railwright.results.records import Result, Verification
from railwright.results.statistics import summarise
from railwright.topology.cluster import build_cluster
from railwright.topology.expand import expand

MIB = 2**20
LAPTOP = expand("laptop", {})
SOUND = Verification(method="m", bytes_checked=1, bytes_wrong=0)


def result(benchmark, quantity, value, **parameters):
    return Result(
        benchmark=benchmark, quantity=quantity, path="memory0>memory0", parameters=parameters,
        summary=summarise([value]), verification=SOUND,
    )  # fmt: skip


def copies(rate, **pages):
    sizes = (32 * 1024, MIB, 4 * MIB, 64 * MIB)
    return [result("memory_copy", "bandwidth_bytes_per_s", rate, size_bytes=n, threads=1, **pages) for n in sizes]


RUN = (
    *copies(40e9),
    *copies(12e9, pages="small"),
    result("core_latency", "latency_s", 50e-9),
)


def explained(test, rows, columns="Bandwidth (MB/s)", results=RUN, path=""):
    table = f"# OSU MPI {test} Test v7.4\n# Size      {columns}\n" + "\n".join(
        f"{size} {value}" for size, value in rows
    )
    (file,) = read(table)
    return explain(
        file, Machine(cluster=build_cluster(LAPTOP, 1), measured=Baselines(results, DECLARATIONS), path=path)
    )


def test_a_rate_is_held_against_copies_on_small_pages_and_says_so():
    found = explained("Bandwidth", [(8, 36.0), (MIB, 3000.0), (4 * MIB, 2500.0)])
    assert (found.verdict.state, found.status) == ("ok", 0)
    assert found.rows[-1].limit.value == 12e9
    assert "small pages" in found.rows[-1].limit.because
    assert any("small pages" in note for note in found.notes)


def test_what_falls_below_small_pages_is_slow():
    assert explained("Bandwidth", [(MIB, 3000.0), (4 * MIB, 200.0)]).status == 1


def test_both_ways_and_several_pairs_have_so_many_copies():
    assert explained("Bi-Directional Bandwidth", [(4 * MIB, 2500.0)]).rows[-1].limit.value == 24e9
    title = "Multiple Bandwidth / Message Rate"
    head = "MB/s Messages/s"
    table = f"# OSU MPI {title} Test v7.4\n# [ pairs: 3 ] [ window size: 64 ]\n# Size {head}\n{MIB} 3000.00 2861.02\n"
    (file,) = read(table)
    assert file.workload.pages == "small"
    assert file.ranks == 6


def test_a_latency_is_cache_lines_and_then_the_time_of_a_copy():
    found = explained("Latency", [(8, 0.3), (4 * MIB, 700.0)], "Avg Latency(us)")
    small, large = found.rows
    assert small.limit.value == 50e-9
    assert large.limit.value == pytest.approx(4 * MIB / 12e9)
    assert [row.verdict.state for row in found.rows] == ["ok", "ok"]
    assert explained("Latency", [(8, 0.3), (4 * MIB, 70000.0)], "Avg Latency(us)").status == 1


def test_a_run_without_copies_judges_nothing_and_a_shape_asks_for_a_run():
    assert explained("Bandwidth", [(MIB, 3000.0)], results=()).status == 3
    (file,) = read(f"# OSU MPI Bandwidth Test v7.4\n# Size Bandwidth (MB/s)\n{MIB} 3000.0\n")
    (row,) = explain(file, Machine(cluster=build_cluster(LAPTOP, 1))).rows
    assert isinstance(row.limit, NoLimit)
    assert "--beside RUN" in row.limit.why


def test_tables_of_gpus_are_on_no_pages_of_the_host():
    (file,) = read(
        "# OSU MPI-CUDA Bandwidth Test v7.4\n# Send Buffer on DEVICE (D) and Receive Buffer on DEVICE (D)\n"
        f"# Size Bandwidth (MB/s)\n{MIB} 3000.0\n"
    )
    assert file.workload.pages == ""
    assert file.workload.from_gpu

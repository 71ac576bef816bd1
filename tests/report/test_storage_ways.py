"""Files by each way, as a table and a figure."""

from __future__ import annotations

import re

import pytest

from railwright.report import storage_ways
from railwright.results.records import Result
from railwright.results.statistics import summarise


def seen(benchmark: str, rate: float, path: str = "nvme0n1>gpu0", cost: object = 0.5, **more: object) -> list[Result]:
    """Make the records of a rate and of the latency of its operations."""
    parameters = {"size_bytes": 2**20, "depth": 4, "threads": 1, "order": "random"} | more
    both = (("bandwidth_bytes_per_s", (rate, rate * 1.2, rate)), ("latency_s", (1e-3, 1e-3, 2e-3)))
    return [
        Result(
            benchmark=benchmark, quantity=quantity, path=path, parameters=parameters, samples=samples,
            summary=summarise(samples), settings={"cpu_s_per_gb": cost},
        )
        for quantity, samples in both
    ]  # fmt: skip


def records() -> list[Result]:
    return [
        *seen("gpu_file_read", 6e9, way="gds"),
        *seen("gpu_file_read", 3e9, way="bounce"),
        *seen("file_read", 2e9, path="nvme0n1>memory0", pages="small", engine="io_uring"),
        *seen("file_read", 5e9, path="nvme0n1>memory0", pages="huge", engine="io_uring", cost=0.1),
        *seen("gpu_file_read", 1e9, way="bounce", size_bytes=2**16, threads=2),
    ]


def test_ways_are_listed_together_with_the_gain_of_cufile() -> None:
    (table,) = storage_ways.way_tables(records())
    assert table.title == "Reads, nvme0n1, random"
    first, other = table.points
    assert [row.way for row in first.ways] == ["host memory", "bounce", "gds"]
    assert [first.gain(row) for row in first.ways] == [None, None, pytest.approx(2)]
    assert first.ways[0].rate == 5e9, "the faster kind of pages"
    assert first.ways[0].cpu_s_per_gb == 0.1
    assert [row.way for row in other.ways] == ["bounce"]
    lines = list(storage_ways.lines([table]))
    assert lines[0] == "Reads, nvme0n1, random"
    assert lines[1].split() == " ".join(storage_ways.COLUMNS).split()
    cells = storage_ways.cells(first, first.ways[2])
    assert cells == ("1 MiB", "1 x 4", "gds", "6.00 GB/s", "1.00 ms", "1.98 ms", "0.5", "2.00")
    assert lines[4].split() == " ".join(cells).split()
    assert max(map(len, lines)) <= 80


def test_a_single_way_or_a_missing_measurement_makes_no_table() -> None:
    assert storage_ways.way_tables(seen("gpu_file_read", 1e9, way="gds")) == ()
    waived = [Result(benchmark="gpu_file_read", quantity="latency_s", path="a>b", outcome="waived")]
    assert storage_ways.way_tables(waived) == ()
    odd = seen("gpu_file_read", 1e9, way="gds\x1b[31m", cost="cheap") + seen("gpu_file_read", 1e9, way="bounce")
    text = "\n".join(storage_ways.lines(storage_ways.way_tables(odd)))
    assert "\x1b" not in text


def test_reads_writes_and_drives_have_their_own_tables() -> None:
    written = [*seen("gpu_file_write", 2e9, path="gpu0>nvme0n1", way="gds", operation="write"),
               *seen("gpu_file_write", 2e9, path="gpu0>nvme0n1", way="bounce", operation="write")]  # fmt: skip
    other = [*seen("gpu_file_read", 2e9, path="md0>gpu0", way="gds"),
             *seen("gpu_file_read", 2e9, path="md0>gpu0", way="cufile compat")]  # fmt: skip
    titles = [table.title for table in storage_ways.way_tables(records() + written + other)]
    assert titles == ["Reads, nvme0n1, random", "Writes, nvme0n1, random", "Reads, md0, random"]


def test_orders_and_file_layouts_have_their_own_tables() -> None:
    sequential = [
        record for way in ("gds", "bounce") for record in seen("gpu_file_read", 1e9, way=way, order="sequential")
    ]
    own = [record for way in ("gds", "bounce") for record in seen("gpu_file_read", 1e9, way=way, files="own")]
    titles = [table.title for table in storage_ways.way_tables(records() + sequential + own)]
    assert titles[1:] == ["Reads, nvme0n1, sequential", "Reads, nvme0n1, random, a file for each thread"]


def test_the_figure_has_a_mark_for_each_way_at_each_point() -> None:
    (figure,) = storage_ways.figures(storage_ways.way_tables(records()))
    marks = re.findall(r'(m\d)" d="[^"]+"><title>([^<]+)</title>', figure.svg)
    assert marks == [("m1", "host memory\n5.00 GB/s\n1.00 ms"), ("m2", "bounce\n3.00 GB/s\n1.00 ms"),
                     ("m4", "gds\n6.00 GB/s\n1.00 ms"), ("m2", "bounce\n1.00 GB/s\n1.00 ms")]  # fmt: skip
    assert [label in figure.svg for label in ("1 MiB, 1 x 4", "64 KiB, 2 x 4")] == [True, True]
    assert [entry.words for entry in figure.legend] == ["host memory", "bounce", "gds"]
    assert figure.rows == ()

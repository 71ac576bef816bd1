"""Reads of encoded data compared with fetching and decoding alone; reading ahead, with the reader and the consumers."""

from __future__ import annotations

import pytest
from tests.expected.finders import Finder

from railwright.benchmarks.registry import DECLARATIONS
from railwright.diagnosis.runs.own_runs import LimitFinder
from railwright.limits.limit import NoLimit
from railwright.results.records import Result, Verification
from railwright.results.statistics import summarise
from railwright.topology.expand import expand

GB = 1e9


def seen(part: str, rate: float, **more: str) -> Result:
    parameters = {"part": part, "bytes": "in memory" if part == "decode" else "encoded", "threads": 2} | more
    return Result(
        benchmark="parquet_read",
        quantity="bandwidth_bytes_per_s",
        path="memory0>memory0" if part == "decode" else "pagecache>memory0",
        parameters=parameters,
        samples=(rate,),
        summary=summarise((rate,)),
        verification=Verification(method="", bytes_checked=1, bytes_wrong=0),
    )


def test_reading_is_compared_with_the_slower_of_its_parts_in_its_own_bytes() -> None:
    sizes = {"encoded_bytes": 100, "in_memory_bytes": 400}

    def bounds(fetch: float, decode: float, unit: str, settings=sizes):
        results = (seen("fetch", fetch, cache="hot"), seen("decode", decode))
        parameters = {"part": "both", "bytes": unit, "threads": 2, "cache": "hot"}
        finder = Finder(expand("laptop", {}), results)
        return finder.find("parquet_read", "bandwidth_bytes_per_s", "pagecache>memory0", parameters, settings)

    limit, band = bounds(1 * GB, 2 * GB, "encoded")  # 0.5 GB/s of encoded bytes are decoded
    assert limit.value == pytest.approx(0.5 * GB)
    assert limit.because.startswith("decoding the same bytes alone, in this run (fetching alone 1.00 GB/s)")
    assert band.low == pytest.approx(GB / 3)
    limit, band = bounds(1 * GB, 8 * GB, "in memory")
    assert limit.value == pytest.approx(4 * GB)
    assert limit.because.startswith("fetching")
    assert band.low == pytest.approx(8 * GB / 3)
    assert band.doubtful_to == pytest.approx(4 * GB / 3), "a single launch does not show how slow the next one is"
    for settings in ({}, {"encoded_bytes": 0, "in_memory_bytes": 5}, {"encoded_bytes": "1", "in_memory_bytes": 5}):
        assert isinstance(bounds(GB, GB, "encoded", settings)[0], NoLimit)


def test_missing_parts_of_the_same_point_give_no_limit() -> None:
    parameters = {"part": "both", "bytes": "encoded", "threads": 4, "cache": "hot"}
    finder = Finder(expand("laptop", {}), (seen("fetch", GB, cache="hot"), seen("decode", GB)))
    limit, _ = finder.find("parquet_read", "bandwidth_bytes_per_s", "pagecache>memory0", parameters, {})
    assert isinstance(limit, NoLimit)
    assert "fetching the same bytes alone was not measured" in limit.why
    finder = Finder(expand("laptop", {}), (seen("fetch", GB, cache="hot", threads=4),))
    limit, _ = finder.find("parquet_read", "bandwidth_bytes_per_s", "pagecache>memory0", parameters, {})
    assert isinstance(limit, NoLimit)
    assert "decoding" in limit.why


def test_reading_ahead_is_compared_with_the_slower_of_the_reader_and_all_consumers() -> None:
    def bounds(pace: object, quantity: str = "bandwidth_bytes_per_s", ranks: int = 2, size: object = 50e6, **more: str):
        alone = Result(
            benchmark="deepcam_read",
            quantity="bandwidth_bytes_per_s",
            path="vda>memory0",
            ranks=2,
            parameters={"reader": "direct", "part": "read"},
            samples=(GB,),
            summary=summarise((GB,)),
            verification=Verification(method="", bytes_checked=1, bytes_wrong=0),
        )
        parameters = {"reader": "direct", "part": "delivered", "pace": pace, "prefetch": 2} | more
        if quantity == "operations_per_s":
            parameters["counted"] = "samples"
        point = alone.__class__(
            benchmark="deepcam_read", quantity=quantity, path="vda>memory0", ranks=ranks, parameters=parameters,
            settings={"sample_bytes": size},
        )  # fmt: skip
        return LimitFinder(expand("laptop", {}), (alone,), DECLARATIONS).find(point)

    limit, band = bounds(5)
    assert limit.value == pytest.approx(0.5 * GB), "two ranks take 5 samples of 50 MB"
    assert limit.because == "2 x 5 samples/s are consumed, 0.50 GB/s (the reader alone reaches 1.00 GB/s in this run)"
    assert band.low == pytest.approx(GB / 3)
    limit, band = bounds(5, "operations_per_s")
    assert (limit.value, band.low) == (pytest.approx(10), pytest.approx(20 / 3))
    limit, _ = bounds(20)
    assert limit.value == pytest.approx(GB)
    assert limit.because.startswith("the reader alone")
    for refused in (bounds(5, ranks=3), bounds(5, reader="h5py"), bounds("5"), bounds(0), bounds(5, size="many")):
        assert isinstance(refused[0], NoLimit)

"""Only benchmarks declare the limits and baselines with which a result is compared."""

from __future__ import annotations

import itertools

import msgspec
import pytest
from tests.expected.finders import Finder

from railwright.benchmarks.registry import DECLARATIONS, EVERY
from railwright.diagnosis.runs.own_runs import LimitFinder
from railwright.limits.limit import NoLimit
from railwright.results.declarations import Declaration, find_declaration, list_ceilings
from railwright.results.records import Result, Verification
from railwright.results.statistics import summarise
from railwright.results.workload import Unlimited, Workload
from railwright.topology.expand import expand

MIB = 2**20


def copied(benchmark="memory_copy", **settings):
    return Result(
        benchmark=benchmark, quantity="bandwidth_bytes_per_s", path="memory0>memory0", settings=settings,
        parameters={"size_bytes": MIB, "threads": 1}, summary=summarise([10e9]),
        verification=Verification(method="m", bytes_checked=1, bytes_wrong=0),
    )  # fmt: skip


def test_the_last_declaration_of_each_quantity_covers_whatever_is_varied():
    for name, rows in DECLARATIONS.items():
        for quantity, group in itertools.groupby(sorted(rows, key=lambda row: row.quantity), key=lambda r: r.quantity):
            last = list(group)[-1]
            assert (dict(last.when), last.ends) == ({}, "any"), f"{name}, {quantity}"


def test_undeclared_quantities_and_unknown_benchmarks_have_no_limit():
    finder = Finder(expand("laptop", {}), [copied()])
    for benchmark, quantity in (("memory_copy", "latency_s"), ("a_stranger", "bandwidth_bytes_per_s")):
        limit, band = finder.find(benchmark, quantity, "memory0>memory0", {"size_bytes": MIB})
        assert isinstance(limit, NoLimit)
        assert limit.why == "its benchmark declares no workload for this result"
        assert band is None


def test_an_unknown_workload_has_no_limit():
    class LaterWorkload(Workload, frozen=True):
        """A workload of a later version."""

    declared = {"memory_copy": (Declaration("bandwidth_bytes_per_s", LaterWorkload()),)}
    limit, _ = LimitFinder(expand("laptop", {}), (), declared).find(copied())
    assert isinstance(limit, NoLimit)
    assert limit.why == "no limit is derived for the workload LaterWorkload"


def test_a_record_cannot_make_itself_a_ceiling():
    """A benchmark without baselines cannot supply one, nor can texts in the record."""
    point = ("mpi_bandwidth", "bandwidth_bytes_per_s", "memory0>memory0", {"size_bytes": MIB, "transport": "shm"})
    for forged in (copied("mpi_bandwidth"), copied("a_stranger", supplies="thread copy")):
        limit, _ = Finder(expand("laptop", {}), [forged]).find(*point)
        assert isinstance(limit, NoLimit), forged.benchmark
    limit, _ = Finder(expand("laptop", {}), [copied()]).find(*point)
    assert not isinstance(limit, NoLimit)
    with pytest.raises(msgspec.ValidationError, match="unknown field `supplies`"):
        msgspec.json.decode(msgspec.json.encode({"record": "result", "benchmark": "b", "quantity": "latency_s",
                                                 "path": "p", "supplies": "thread copy"}), type=Result)  # fmt: skip


def test_unverified_and_wrong_copies_are_not_ceilings():
    point = ("mpi_bandwidth", "bandwidth_bytes_per_s", "memory0>memory0", {"size_bytes": MIB, "transport": "shm"})
    unchecked = msgspec.structs.replace(copied(), verification=None)
    wrong = msgspec.structs.replace(copied(), verification=Verification(method="m", bytes_checked=9, bytes_wrong=1))
    for unsound in (unchecked, wrong, msgspec.structs.replace(copied(), outcome="failed")):
        assert isinstance(Finder(expand("laptop", {}), [unsound]).find(*point)[0], NoLimit)


def test_only_the_simplest_measurements_are_baselines():
    """A copy by a GPU, a collective or a library's message is never a baseline."""
    references = {name for name, rows in DECLARATIONS.items() if any(row.is_reference for row in rows)}
    assert references == {
        "memory_stream", "memory_copy", "core_latency", "gpu_latency", "tcp_stream", "device_read", "hpl",
        "gpu_hpl", "parquet_read", "deepcam_read",
    }  # fmt: skip
    parts = [row.when["part"] for row in DECLARATIONS["parquet_read"] if row.is_reference]
    assert parts == [("fetch",), ("fetch",), ("decode",)], "reading by both is judged"
    parts = [row.when["part"] for row in DECLARATIONS["deepcam_read"] if row.is_reference]
    assert parts == [("read",)] * 3, "what a consumer gets is judged"
    for name, expected in (("hpl", ["dgemm"]), ("gpu_hpl", ["dgemm", "sustained dgemm"])):
        parts = [row.when["part"][0] for row in DECLARATIONS[name] if row.is_reference]
        assert parts == expected
    (row_of_own_loads,) = (row for row in DECLARATIONS["gpu_latency"] if row.is_reference)
    assert (row_of_own_loads.ends, row_of_own_loads.when) == ("same", {"kind": ("chase",)})


def test_a_benchmark_names_its_ceilings_and_their_requirements():
    assert list_ceilings("mpi_latency", DECLARATIONS) == ("memory_copy", "core_latency", "tcp_stream")
    assert list_ceilings("kv_vram", DECLARATIONS) == ("gpu_latency",)
    assert list_ceilings("file_read", DECLARATIONS) == ("device_read",)
    assert list_ceilings("memory_copy", DECLARATIONS) == ()
    assert list_ceilings("gpu_hpl", DECLARATIONS) == ()  # its own dgemm, and not that of the CPUs
    assert set(list_ceilings("kv_transfer", DECLARATIONS)) == {"memory_copy", "core_latency", "tcp_stream"}
    named = {name for benchmark in EVERY for name in list_ceilings(benchmark.name, DECLARATIONS)}
    assert named <= set(DECLARATIONS)


def test_the_first_declaration_that_covers_a_result_counts():
    rows = (
        Declaration("bandwidth_bytes_per_s", Unlimited(why="of four"), {"threads": (4,)}),
        Declaration("bandwidth_bytes_per_s", Unlimited(why="without an order"), {"order": (None,)}, ends="same"),
        Declaration("bandwidth_bytes_per_s", Unlimited(why="the rest")),
    )

    def why(**changed):
        declared = find_declaration(msgspec.structs.replace(copied(), **changed), {copied().benchmark: rows})
        return declared.workload.why

    assert why() == "without an order"
    assert why(path="memory0>memory1") == "the rest"
    assert why(parameters={"threads": 4}) == "of four"
    assert why(parameters={"order": "random"}) == "the rest"


def test_messages_are_compared_with_copies_on_equal_pages_and_small_pages_lower_the_band():
    def copies(rate, **pages):
        return [
            msgspec.structs.replace(copied(), parameters={"size_bytes": size, "threads": 1, **pages},
                                    summary=summarise([rate]))
            for size in (MIB, 64 * MIB)
        ]  # fmt: skip

    def bounds(pages, results):
        parameters = {"size_bytes": MIB, "transport": "shm", "pages": pages}
        finder = Finder(expand("laptop", {}), results)
        return finder.find("mpi_bandwidth", "bandwidth_bytes_per_s", "memory0>memory0", parameters)

    both = [*copies(20e9), *copies(10e9, pages="small")]
    (huge, huge_band), (small, small_band) = bounds("huge", both), bounds("small", both)
    assert (huge.value, small.value) == (20e9, 10e9)
    assert "small pages" in small.because
    assert small_band.low < huge_band.low / 2
    assert bounds("small", copies(20e9))[0].value == 20e9, "a run of old that copied on huge pages alone"


def test_a_message_is_a_cache_line_or_the_copy_of_its_bytes_whichever_takes_longer():
    sizes = (32 * 1024, MIB, 64 * MIB)
    copies = [
        msgspec.structs.replace(copied(), parameters={"size_bytes": size, "threads": 1}, summary=summarise([20e9]))
        for size in sizes
    ]
    line = msgspec.structs.replace(
        copied("core_latency"), quantity="latency_s", parameters={}, summary=summarise([50e-9])
    )
    finder = Finder(expand("laptop", {}), [*copies, line])

    def found(size):
        varied = {"size_bytes": size, "transport": "shm", "pages": "small"}
        return finder.find("mpi_latency", "latency_s", "memory0>memory0", varied)

    limit, band = found(8)
    assert (limit.value, band.high) == (50e-9, 20 * 50e-9)
    limit, band = found(32 * 1024)
    assert limit.value == pytest.approx(32 * 1024 / 20e9)
    assert band.low == limit.value
    assert band.high > 3 * 20 * 50e-9, "a larger message is announced before its bytes move"
    assert band.doubtful_to > band.high
    limit, band = found(MIB)
    assert limit.value == pytest.approx(MIB / 20e9)
    assert band.high == pytest.approx(3 * 20 * 50e-9 + MIB / (0.3 * 10e9))


def test_sockets_are_matched_by_pages_from_64_kib_up():
    def socket(size, rate, **pages):
        return msgspec.structs.replace(
            copied("tcp_stream"), parameters={"size_bytes": size, **pages}, summary=summarise([rate])
        )

    finder = Finder(
        expand("laptop", {}),
        [socket(8192, 1e9, pages="small"), socket(MIB, 3e9, pages="small"), socket(MIB, 4e9, pages="huge"),
         socket(2 * MIB, 5e9)],
    )  # fmt: skip

    def limit(size, pages):
        varied = {"size_bytes": size, "transport": "tcp", "pages": pages}
        return finder.find("mpi_bandwidth", "bandwidth_bytes_per_s", "memory0>memory0", varied)[0].value

    assert (limit(MIB, "small"), limit(MIB, "huge")) == (3e9, 4e9)
    assert limit(8192, "huge") == 1e9, "below 64 KiB pages decide nothing"
    assert limit(2 * MIB, "small") == 5e9, "records of old name no pages"


def test_the_limit_is_one_socket_per_sender_and_the_band_is_one_socket():
    socket = msgspec.structs.replace(copied("tcp_stream"), parameters={"size_bytes": MIB}, summary=summarise([2e9]))
    point = {"size_bytes": MIB, "transport": "tcp", "pairs": 3}

    def found(benchmark, path, **settings):
        at = msgspec.structs.replace(socket, path=path)
        return Finder(expand("laptop", {}), [at]).find(benchmark, "bandwidth_bytes_per_s", path, point, settings)

    for path in ("memory0>memory0", "memory0@0>memory0@1"):
        one_way, band = found("mpi_bandwidth", path)
        assert (one_way.value, band.low) == (6e9, 0.25 * 2e9)
        assert one_way.because.startswith("3 at once of a plain socket")
        assert found("mpi_bidirectional", path)[0].value == 12e9
    assert isinstance(found("mpi_bandwidth", "memory0>memory0", functional=True)[0], NoLimit)


def test_a_tcp_message_has_the_fastest_socket_as_limit_and_its_own_pages_as_band():
    """The case of a VM with 2 cores, where each launch of a ping-pong is fast or slow by a factor of two."""

    def launch(pages, *seconds):
        return msgspec.structs.replace(
            copied("tcp_stream"), quantity="latency_s", parameters={"size_bytes": 2 * MIB, "pages": pages},
            summary=summarise(list(seconds)),
        )  # fmt: skip

    small, huge = launch("small", 500e-6, 630e-6, 900e-6), launch("huge", 262e-6, 430e-6, 700e-6)
    finder = Finder(expand("laptop", {}), [small, launch("small", 520e-6, 693e-6, 910e-6), huge])
    point = {"size_bytes": 2 * MIB, "transport": "tcp", "pages": "small"}
    limit, band = finder.find("mpi_latency", "latency_s", "memory0>memory0", point)
    assert (limit.value, limit.varies) == (262e-6, 1.0)
    assert (band.high, band.doubtful_to) == (4 * 630e-6, 4 * 693e-6)
    lonely = Finder(expand("laptop", {}), [small, launch("small", 560e-6, 693e-6, 910e-6)])
    limit, _ = lonely.find("mpi_latency", "latency_s", "memory0>memory0", point)
    assert limit.value == 500e-6

"""Real runs of the MPI benchmarks with N ranks and in both directions: data, rates and faults."""

from __future__ import annotations

import ctypes
import os
import re
import signal
import subprocess
from pathlib import Path

import msgspec
import pytest
from tests.benchmarks.jobs import job_of
from tests.expected.finders import Finder

from railwright.benchmarks.mpi.collective import counts, moved_bytes, plan, repeats
from railwright.benchmarks.registry import BENCHMARKS, DECLARATIONS, EVERY, find
from railwright.busbw import busbw_factor
from railwright.diagnosis.runs.own_runs import LimitFinder
from railwright.errors import UsageError
from railwright.limits.limit import NoLimit
from railwright.native.memory import Buffer
from railwright.native.mpi_collectives import OPERATIONS, Pattern
from railwright.results.records import Result, Verification
from railwright.results.statistics import summarise
from railwright.topology.expand import expand

NAMES = [f"mpi_{operation}" for operation in OPERATIONS]
PAIRS = ["mpi_message_rate", "mpi_bidirectional"]
SIZES = (8, 65536)
TINY = ("-o", "sizes=8,64K", "-o", "ranks=2", "-o", "pages=small", "--force")
# Over TCP waiting ranks poll as well, so ten thousand small operations take ten CPU seconds: one of a kind is enough.
OVER_TCP = ("mpi_all_reduce", "mpi_bidirectional")
KIB, MIB = 1 << 10, 1 << 20

# A library that corrupts the sum in one word on one rank.
WRONG_LIBRARY = """
#include <stdint.h>
int PMPI_Allreduce(const void *, void *, int, intptr_t, intptr_t, intptr_t);
int PMPI_Comm_rank(intptr_t, int *);
int MPI_Allreduce(const void *out, void *in, int count, intptr_t type, intptr_t sum, intptr_t comm) {
  int rank = 0, status = PMPI_Allreduce(out, in, count, type, sum, comm);
  PMPI_Comm_rank(comm, &rank);
  if (rank == 1 && count > 1000) ((float *)in)[count - 1] += 1;
  return status;
}
"""


@pytest.fixture(scope="module")
def measured(driver_of_module, mpiruns):
    """Return the results of all collectives with two ranks over shared memory, and of some over TCP."""
    both = [word for name in OVER_TCP for word in ("-o", f"{name}.transports=shm,tcp")]
    done = driver_of_module("run", *NAMES, *PAIRS, *TINY, *both, "--mpirun", mpiruns["openmpi"])
    assert done.status == 3, done.err
    driver_of_module.expect_nothing_left()
    return driver_of_module.results()


def of(results, benchmark, quantity, **parameters):
    return [
        one
        for one in results
        if (one.benchmark, one.quantity) == (benchmark, quantity)
        and all(one.parameters.get(key) == value for key, value in parameters.items())
    ]


@pytest.mark.parametrize(
    ("operation", "transport"), [*((operation, "shm") for operation in OPERATIONS), ("all_reduce", "tcp")]
)
def test_each_collective_gives_both_rates_and_the_time_of_small_sizes(measured, operation, transport):
    name = f"mpi_{operation}"
    algbw = of(measured, name, "bandwidth_bytes_per_s", rate="algbw", transport=transport)
    busbw = of(measured, name, "bandwidth_bytes_per_s", rate="busbw", transport=transport)
    times = of(measured, name, "latency_s", transport=transport)
    assert [one.parameters["size_bytes"] for one in algbw] == list(SIZES)
    assert [one.parameters["size_bytes"] for one in times] == [8], "a time is of sizes below 64 KiB"
    for a, b in zip(algbw, busbw, strict=True):
        assert (a.outcome, a.reason, a.ranks) == ("measured", "", 2)
        assert b.samples == pytest.approx([float(busbw_factor(operation, 2)) * one for one in a.samples], rel=1e-5)
        size = a.parameters["size_bytes"]
        held = {"all_reduce": 2 * size, "all_gather": 2 * size, "reduce_scatter": size, "all_to_all": 2 * size}
        assert (a.verification.bytes_checked, a.verification.bytes_wrong) == (held[operation], 0)
        assert [(one.claim, one.value) for one in a.evidence] == [("transport", transport)]
        assert a.settings["functional"] is (len(os.sched_getaffinity(0)) < 2)
    for a, time in zip(algbw, times, strict=False):
        assert a.samples == pytest.approx([a.parameters["size_bytes"] / one for one in time.samples], rel=1e-5)


def test_messages_per_second_are_the_bandwidth_by_the_size(measured):
    rates = of(measured, "mpi_message_rate", "messages_per_s", transport="shm")
    bandwidths = of(measured, "mpi_message_rate", "bandwidth_bytes_per_s", transport="shm")
    assert [one.parameters["size_bytes"] for one in rates] == list(SIZES)
    for rate, bandwidth in zip(rates, bandwidths, strict=True):
        size = rate.parameters["size_bytes"]
        assert bandwidth.samples == pytest.approx([size * one for one in rate.samples], rel=1e-5)
        assert (rate.outcome, rate.verification.bytes_wrong, rate.evidence[0].value) == ("measured", 0, "shm")


@pytest.mark.parametrize("transport", ["shm", "tcp"])
def test_both_directions_are_checked_on_both_ranks(measured, transport):
    found = of(measured, "mpi_bidirectional", "bandwidth_bytes_per_s", transport=transport)
    assert [one.parameters["size_bytes"] for one in found] == list(SIZES)
    for one in found:
        assert one.outcome == "measured", one.reason
        assert one.verification.bytes_checked == 2 * one.parameters["size_bytes"]
        assert one.verification.bytes_wrong == 0
        assert one.evidence[0].value == transport


def floats(buffer, count):
    return (ctypes.c_float * count).from_address(buffer.address)


def done_right(operation, rank, sent):
    """Return the expected data on a rank, computed from all ranks' data without the benchmark's own check."""
    ranks, count = len(sent), len(sent[0])
    share = count // ranks
    sums = [sum(each[i] for each in sent) for i in range(count)]
    if operation == "all_reduce":
        return sums
    if operation == "reduce_scatter":
        return sums[rank * share : (rank + 1) * share]
    if operation == "all_gather":
        return [word for each in sent for word in each]
    return [word for each in sent for word in each[rank * share : (rank + 1) * share]]


@pytest.mark.parametrize("operation", OPERATIONS)
@pytest.mark.parametrize("ranks", [2, 3, 5])
def test_the_check_accepts_the_right_result_and_rejects_every_kind_of_wrong_one(operation, ranks):
    count = 101
    patterns = [Pattern(operation, count, rank, ranks) for rank in range(ranks)]
    with Buffer(count * ranks * 4) as out, Buffer(count * ranks * 4) as into:
        sent = []
        for pattern in patterns:
            pattern.fill(out, into)
            sent.append(list(floats(out, pattern.sent_bytes // 4)))
        for rank, pattern in enumerate(patterns):
            pattern.fill(out, into)
            assert pattern.verify(into).bytes_wrong == pattern.received_bytes, "untouched memory is all wrong"
            right = done_right(operation, rank, sent)
            held = floats(into, pattern.received_bytes // 4)
            held[:] = right
            assert pattern.verify(into).bytes_wrong == 0
            assert pattern.verify(into).bytes_checked == len(right) * 4
            held[len(right) // 2] += 1
            assert pattern.verify(into).bytes_wrong == 4
            held[:] = right[1:] + right[:1]
            assert pattern.verify(into).bytes_wrong > 0, "shifted by one"
            held[:] = done_right(operation, rank, [*sent[:-1], sent[0]])
            assert pattern.verify(into).bytes_wrong > 0, "the last rank never took part, the first one twice"


def test_buffers_that_are_too_small_and_ranks_that_cannot_be_are_refused():
    with Buffer(64) as small, pytest.raises(ValueError, match="must have at least"):
        Pattern("all_gather", 16, 0, 2).fill(small, small)
    for count, rank, ranks in ((0, 0, 2), (1, 2, 2), (1, 0, 1025), (2**31, 0, 2)):
        with pytest.raises(ValueError, match="cannot be checked"):
            Pattern("all_reduce", count, rank, ranks)


def job(ranks=2, cpus=(0, 1), **options):
    return job_of(find("mpi_all_reduce"), expand("laptop", {}), cpus, {"ranks": str(ranks), **options})


@pytest.mark.parametrize(("cpus", "ranks"), [(1, 2), (2, 2), (5, 5), (64, 64), (300, 64)])
def test_without_a_number_there_is_a_rank_for_each_core(cpus, ranks):
    asked = (("mpi_all_reduce", {}, ranks), ("mpi_all_reduce", {"ranks": "7"}, 7), ("mpi_latency", {}, 2))
    for name, given, expected in asked:
        assert job_of(find(name), expand("laptop", {}), tuple(range(cpus)), given).ranks == expected


@pytest.mark.parametrize("text", ["1", "0", "-2", "513", "two", "", "2.0", "٣", "9" * 5000])
def test_an_invalid_number_of_ranks_is_refused(text):
    with pytest.raises(UsageError, match="must be 'cores' or a whole number from 2 to 512"):
        find("mpi_all_to_all").parse({"ranks": text})


def test_sizes_are_rounded_down_to_whole_floats_of_every_rank_as_nccl_tests_does():
    assert counts("all_reduce", job(ranks=3, sizes="1,4,10,4K")) == (1, 2, 1024)
    assert counts("all_gather", job(ranks=3, sizes="1,8,12,4K")) == (1, 341)


def test_the_plan_counts_every_rank_s_buffers_and_what_passes_between_them():
    small, large = (plan("all_to_all", job(ranks=4, cpus=(0, 1, 2, 3), sizes=size)) for size in ("64M", "128M"))
    assert large.memory_bytes - small.memory_bytes == 4 * 2 * 64 * MIB
    assert small.moved_bytes == repeats(64 * MIB, functional=False).total * 3 * 64 * MIB
    assert moved_bytes("all_reduce", MIB, 4) == 6 * MIB
    assert "limit of MPI counts" in plan("all_reduce", job(sizes="16G")).waived
    assert plan("all_gather", job(sizes="15G")).waived == "", "a share of 7.5 GiB"


def test_sizes_that_do_not_fit_into_memory_are_refused_before_the_run(railwright):
    done = railwright("run", "mpi_all_to_all", "-o", "sizes=7G", "-o", "ranks=512", "--force")
    assert done.status == 2
    assert re.search(r"mpi_all_to_all would need 7\.\d TiB of memory, .* are free", done.message())
    railwright.expect_nothing_left()


def test_ranks_that_share_a_core_are_marked_and_never_judged(railwright):
    """Two ranks share one CPU, whatever the machine."""
    one = {min(os.sched_getaffinity(0))}
    done = railwright(
        *("run", "mpi_all_reduce", "memory_copy", "-o", "mpi_all_reduce.sizes=8,4K", "-o", "memory_copy.sizes=4K"),
        *("-o", "ranks=2", "--force"),
        preexec_fn=lambda: os.sched_setaffinity(0, one),
    )
    assert done.status == 3, done.err
    found = railwright.results("mpi_all_reduce")
    assert [result.outcome for result in found] == ["measured"] * 6
    assert all(result.settings["functional"] is True and result.verification.bytes_wrong == 0 for result in found)
    assert "functional run: its 2 ranks shared cores" in " ".join(done.out.split())
    railwright.expect_nothing_left()


def test_mpich_does_them_all_and_collectives_with_ranks_that_are_no_power_of_two(railwright, mpiruns):
    done = railwright(
        *("run", *NAMES, *PAIRS, "-o", "sizes=16,4K", *(word for name in NAMES for word in ("-o", f"{name}.ranks=3"))),
        *("-o", "transports=shm", "--force", "--mpirun", mpiruns["mpich"]),
    )
    assert done.status == 3, done.err
    found = railwright.results()
    assert {result.benchmark for result in found} == {*NAMES, *PAIRS}
    for result in found:
        ranks = 3 if result.benchmark in NAMES else 2
        assert (result.outcome, result.ranks) == ("measured", ranks), result.reason
        assert result.verification.bytes_wrong == 0
    assert {one.parameters["size_bytes"] for one in found if one.benchmark == "mpi_all_gather"} == {12, 4092}
    railwright.expect_nothing_left()


def test_a_rank_that_dies_in_a_collective_is_named_and_costs_its_launch_only(railwright):
    process = railwright.start(
        *("run", "mpi_all_reduce", "memory_copy", "-o", "mpi_all_reduce.sizes=8,64M", "-o", "memory_copy.sizes=4K"),
        *("-o", "ranks=2", "--force"),
    )
    railwright.wait_until(railwright.results, "a first result")
    victim = railwright.wait_until(
        lambda: next((one for one in [railwright.rank(1)] if one and one.resident_bytes() > 100 * MIB), None),
        "rank 1 at work on 64 MiB",
    )
    os.kill(victim.pid, signal.SIGKILL)
    done = railwright.finish(process)
    assert done.status == 3, done.err
    *kept, failed = railwright.results("mpi_all_reduce")
    assert [one.outcome for one in kept] == ["measured"] * 3
    assert (failed.outcome, failed.ranks) == ("failed", 2)
    assert re.match(rf"rank 1 \(host \S+, pid {victim.pid}\) at step 'mpi_all_reduce 64 MiB'", failed.reason)
    assert {result.outcome for result in railwright.results("memory_copy")} == {"measured"}
    railwright.expect_nothing_left()


def test_a_wrong_word_on_one_rank_fails_the_size_and_names_the_rank(railwright, mpirun):
    """A library in front of MPI adds one to the last float of rank 1, but not at small sizes."""
    real = Path(mpirun).parent.parent / "lib"
    name = "libmpi.so.40" if (real / "libmpi.so.40").exists() else "libmpi.so.12"
    (railwright.folder / "lib").mkdir()
    (railwright.folder / "bin").mkdir()
    source = railwright.folder / "wrong.c"
    source.write_text(WRONG_LIBRARY)
    flags = ["-shared", "-fPIC", "-Wl,--no-as-needed", f"-Wl,-rpath,{real.resolve()}"]
    library = railwright.folder / "lib" / name
    subprocess.run(["cc", *flags, "-o", str(library), str(source), str((real / name).resolve())], check=True)
    wrapper = railwright.folder / "bin" / "mpirun"
    wrapper.write_text(f'#!/bin/sh\nexec {mpirun} "$@"\n')
    wrapper.chmod(0o755)
    done = railwright(
        *("run", "mpi_all_reduce", "-o", "sizes=8,64K", "-o", "ranks=2", "--force", "--mpirun", str(wrapper))
    )
    assert done.status == 3, done.err
    found = railwright.results()
    small = [one for one in found if one.parameters["size_bytes"] == 8]
    large = [one for one in found if one.parameters["size_bytes"] == 64 * KIB]
    assert [one.outcome for one in small] == ["measured"] * 3, [one.reason for one in small]
    assert [one.outcome for one in large] == ["failed"] * 2
    for one in large:
        assert one.reason == "wrong result at 64 KiB: 4 bytes on rank 1"
        assert (one.verification.bytes_checked, one.verification.bytes_wrong) == (2 * 64 * KIB, 4)
    assert "wrong result at 64 KiB" in " ".join(done.out.split())


def seen(benchmark, quantity, value, **parameters):
    settings = parameters.pop("settings", {})
    return Result(benchmark=benchmark, quantity=quantity, path="memory0>memory0", parameters=parameters, ranks=4,
                  samples=(value,), summary=summarise([value]), settings=settings,
                  verification=Verification(method="x", bytes_checked=1, bytes_wrong=0))  # fmt: skip


def limit_of(benchmark, quantity, *results, **parameters):
    copy = seen("memory_copy", "bandwidth_bytes_per_s", 10e9, size_bytes=2 * MIB, threads=1)
    finder = Finder(expand("laptop", {}), [copy, *results])
    return finder.find(benchmark, quantity, "memory0>memory0", {"size_bytes": 2 * MIB, "transport": "shm"} | parameters)


def test_two_directions_are_limited_by_two_copies_and_expected_to_reach_one_direction():
    one, expected_of_one = limit_of("mpi_bandwidth", "bandwidth_bytes_per_s")
    both, expected_of_both = limit_of("mpi_bidirectional", "bandwidth_bytes_per_s")
    rate, _ = limit_of("mpi_message_rate", "bandwidth_bytes_per_s")
    assert (one.value, both.value, rate.value) == (10e9, 20e9, 10e9)
    assert expected_of_both.low == expected_of_one.low == 5e9
    assert both.because.startswith("2 at once of one thread's memory copy of 2 MiB")


def test_a_message_rate_has_no_limit():
    limit, expected = limit_of("mpi_message_rate", "messages_per_s")
    assert isinstance(limit, NoLimit)
    assert (limit.why, expected) == ("no document gives a rate of messages", None)


def bounds_of_collective(name, quantity, ranks, *ceilings, **parameters):
    point = msgspec.structs.replace(seen(name, quantity, 1.0, **parameters), ranks=ranks)
    return LimitFinder(expand("laptop", {}), ceilings, DECLARATIONS).find(point)


def copies_of(*sizes):
    return [seen("memory_copy", "bandwidth_bytes_per_s", 10e9, size_bytes=size, threads=1) for size in sizes]


@pytest.mark.parametrize(
    ("name", "written", "busbw"),
    [("all_reduce", 1, 1.5), ("all_gather", 1, 0.75), ("reduce_scatter", 4, 0.75), ("all_to_all", 1, 0.75)],
)
def test_a_collective_is_compared_with_the_copies_of_the_bytes_that_each_rank_writes(name, written, busbw):
    """`written` is the size over the bytes that one of four ranks writes."""
    for rate, factor_of_rate in (("algbw", 1.0), ("busbw", busbw)):
        limit, band = bounds_of_collective(
            f"mpi_{name}", "bandwidth_bytes_per_s", 4, *copies_of(2 * MIB, 8 * MIB), size_bytes=8 * MIB, rate=rate
        )
        assert limit.value == pytest.approx(10e9 * written * factor_of_rate)
        # Half of a copy, 2/n of that, a tenth where floats are summed.
        reduced = 0.1 if "reduce" in name else 1.0
        assert band.low == pytest.approx(limit.value * 0.5 * 2 / 4 * reduced)


def test_a_collective_over_sockets_is_limited_by_copies_and_nothing_is_expected_of_it():
    line = seen("core_latency", "latency_s", 100e-9)
    for quantity, size in (("bandwidth_bytes_per_s", 8 * MIB), ("latency_s", 8)):
        found = {
            transport: bounds_of_collective(
                "mpi_all_gather", quantity, 4, *copies_of(8 * MIB), line, size_bytes=size, transport=transport
            )
            for transport in ("shm", "tcp")
        }
        assert found["shm"][0] == found["tcp"][0]
        assert not isinstance(found["tcp"][0], NoLimit)
        assert found["shm"][1] is not None
        assert found["tcp"][1] is None


@pytest.mark.parametrize("ranks", [1, 0, -3, 10**400])
def test_a_record_of_a_collective_with_no_ranks_has_no_limit(ranks):
    for name in NAMES:
        for quantity in ("bandwidth_bytes_per_s", "latency_s"):
            limit, band = bounds_of_collective(name, quantity, ranks, *copies_of(2 * MIB), size_bytes=2 * MIB)
            assert isinstance(limit, NoLimit)
            assert "must have 2 to" in limit.why
            assert band is None


def test_a_functional_run_is_unknown_by_that_reason_even_where_a_limit_is_known():
    varied = {"size_bytes": 2 * MIB, "transport": "shm"}
    copy = seen("memory_copy", "bandwidth_bytes_per_s", 10e9, size_bytes=2 * MIB, threads=1)
    alone, crowded = (
        seen("mpi_bidirectional", "bandwidth_bytes_per_s", 9e9, settings={"functional": functional}, **varied)
        for functional in (False, True)
    )
    finder = LimitFinder(expand("laptop", {}), [copy, crowded], DECLARATIONS)
    limit, expected = finder.find(crowded)
    assert isinstance(limit, NoLimit)
    assert (limit.why, expected) == ("functional run: its 4 ranks shared cores", None)
    assert not isinstance(finder.find(alone)[0], NoLimit)


def test_prove_runs_none_of_them_and_run_finds_all():
    assert not {benchmark.name for benchmark in BENCHMARKS} & {*NAMES, *PAIRS}
    assert {benchmark.name for benchmark in EVERY} >= {*NAMES, *PAIRS}

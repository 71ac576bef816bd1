"""The Intel MPI Benchmarks: times, rates in megabytes of either kind, and tables of several numbers of processes."""

from __future__ import annotations

from pathlib import Path

import pytest

from railwright.errors import UsageError
from railwright.expected.messages import SINGLE_MESSAGES_FROM
from railwright.results.readers import imb, registry
from railwright.results.workload import Message, Unlimited

FOLDER = Path(__file__).parents[3] / "testdata/external/imb"
ROCE = (FOLDER / "2021-pingpong-100g-roce.txt").read_text()
OLD = (FOLDER / "before-2018-pingpong-connectx3.txt").read_text()
COLLECTIVE = (FOLDER / "2021-alltoall-2-and-4-hosts.txt").read_text()
HEAD = "# Benchmarking {}\n# #processes = {}\n  #bytes #repetitions  {}\n"


def rates(file):
    return {one.parameters["size_bytes"]: one.samples[0] for one in file.results if one.quantity[0] == "b"}


def times(file):
    return {one.parameters.get("size_bytes"): one.samples[0] for one in file.results if one.quantity == "latency_s"}


def test_the_rows_say_which_megabytes_they_are():
    (now,), (before,) = registry.read(ROCE), registry.read(OLD)
    assert rates(now) == {2**27: 12226.80e6, 2**28: 12234.69e6}
    assert rates(before)[2**18] == pytest.approx(5121.09 * 2**20)
    assert rates(before)[1] == pytest.approx(0.54 * 2**20)  # of the whole table, though such a row fits both
    assert times(before)[0] == pytest.approx(1.59e-6)
    assert (now.tool, now.test, now.ranks) == ("IMB", "PingPong", 2)


def test_messages_that_wait_for_each_other_are_judged_from_a_mebibyte_on():
    (before,) = registry.read(OLD)
    assert isinstance(before.workload, Message)
    assert before.workload.one_at_a_time
    assert max(rates(before)) < SINGLE_MESSAGES_FROM


def test_of_a_collective_the_time_of_the_last_process_counts():
    two, four = registry.read(COLLECTIVE)
    assert [one.ranks for one in (two, four)] == [2, 4]
    assert (two.workload.by, two.workload.operation, two.workload.of_each_rank) == ("mpi", "all_to_all", True)
    assert times(four)[4194304] == pytest.approx(1787.67e-6)
    last = four.results[-1].settings
    assert (last["min_rank_s"], last["avg_rank_s"]) == (pytest.approx(1588.80e-6), pytest.approx(1688.05e-6))


def test_rates_count_the_messages_of_an_operation():
    columns = "t_min[usec]  t_max[usec]  t_avg[usec]  Mbytes/sec"
    row = "  1048576  40  99.00  100.00  99.50  {}\n"
    for name, count in (("Sendrecv", 2), ("Exchange", 4)):
        (file,) = imb.read(HEAD.format(name, 2, columns) + row.format(f"{count * 1048576 / 100:.2f}"))
        assert rates(file) == {1048576: pytest.approx(count * 1048576e4, rel=1e-4)}
        assert file.workload.both_ways
        with pytest.raises(UsageError, match="is not 1048576 bytes"):
            imb.read(HEAD.format(name, 2, columns) + row.format(f"{count * 1048576 / 300:.2f}"))


def test_uniband_has_messages_and_no_time():
    text = HEAD.format("Uniband", 2, "Mbytes/sec  Msg/sec") + "  0 1000 0.00 2189915\n  4194304 10 12000.00 2861\n"
    (file,) = imb.read(text)
    assert rates(file) == {4194304: 12000e6}
    assert not file.workload.one_at_a_time
    many = imb.read(text.replace("= 2", "= 8"))[0]
    assert isinstance(many.workload, Unlimited)  # of four pairs together


def test_a_barrier_has_no_sizes_and_a_table_without_a_name_is_of_a_pair():
    barrier = "# Benchmarking Barrier\n# #processes = 6\n #repetitions  t_min[usec]  t_max[usec]  t_avg[usec]\n"
    (file,) = registry.read(barrier + "        1000        22.93        22.95        22.94\n")
    assert times(file) == {None: pytest.approx(22.95e-6)}
    (bare,) = registry.read(ROCE[ROCE.index("       #bytes") :])
    assert (bare.test, bare.ranks) == ("PingPong", 2)


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ("12234.69", "13234.69", "13234.69 Mbytes/sec is not 268435456 bytes"),
        ("268435456", "134217728", "size 134217728 follows size 134217728"),
        ("t[usec]", "t[ms]", "no row|known|are not known"),
    ],
)
def test_what_contradicts_itself_is_refused(old, new, reason):
    with pytest.raises(UsageError, match=reason):
        imb.read(ROCE.replace(old, new))


def test_extremes_and_averages_belong_together():
    with pytest.raises(UsageError, match=r"average must be between .*, got 99\.91 us"):
        imb.read(COLLECTIVE.replace("         7.91", "        99.91"))


def test_defects_are_told():
    columns = "t_min[usec]  t_max[usec]  t_avg[usec]  defects"
    (file,) = imb.read(HEAD.format("Allreduce", 4, columns) + "  1024 1000 9.0 10.0 9.5 3.00\n")
    assert any("reports wrong data" in note for note in file.notes)


def test_groups_that_run_at_once_are_told_from_one_pair():
    (file,) = registry.read(
        "# Benchmarking Multi-PingPong\n# ( 2 groups of 2 processes each running simultaneous )\n# Group  0: 0 1\n"
        "  #bytes #repetitions  t_min[usec]  t_max[usec]  t_avg[usec]   Mbytes/sec\n"
        "    1024       100000        56.92        61.39        59.15        16.68\n"
    )
    assert (file.test, file.ranks, type(file.workload)) == ("PingPong", 4, Unlimited)
    assert rates(file) == {1024: 16.68e6}


def test_a_name_alone_above_the_rows_tells_the_benchmark():
    (file,) = imb.read(
        "Exchange:\n#bytes #repetitions t_min[usec] t_max[usec] t_avg[usec] Mbytes/sec\n"
        "1024 1000 1.90 2.00 1.95 2048.00 * drops\n"
    )
    assert (file.test, rates(file)) == ("Exchange", {1024: 2048e6})

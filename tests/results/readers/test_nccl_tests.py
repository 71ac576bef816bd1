"""nccl-tests: every recorded table is read completely, and every kind of inconsistent table is refused."""

from __future__ import annotations

import json
import re

import pytest
from tests.results.readers.recorded import sizes, text, value

from railwright.errors import UsageError
from railwright.results.readers.nccl_tests import text as nccl_tests

HEALTHY = "nccl_tests/2.18.3-all_gather-2xgb10-healthy.txt"
OLD = "nccl_tests/before-2.13-all_reduce-4xv100-pcie.txt"
JSON = "nccl_tests/2.19.6-all_reduce-2xh200.json"
H200 = "NVIDIA H200"
ALL_TO_ALL = "nccl_tests/2.18.3-alltoall-16xrtx6000d-slow.txt"


def test_an_old_table_without_root_or_version_is_read_to_its_last_row() -> None:
    (file,) = nccl_tests.read(text(OLD))
    assert (file.test, file.ranks, file.hosts, file.version) == ("all_reduce", 4, 1, "")
    assert file.gpus == ("Tesla V100-PCIE-32GB",)
    assert len(file.results) == 2 * 25
    first, last = file.results[0], file.results[-1]
    assert (first.parameters["size_bytes"], first.parameters["placement"]) == (8, "out_of_place")
    assert value(first) == pytest.approx(8 / 16.36e-6)
    assert (last.parameters["size_bytes"], last.parameters["placement"]) == (134217728, "in_place")
    assert value(last) == pytest.approx(134217728 / 17974e-6)
    assert last.settings["busbw_bytes_per_s"] == pytest.approx(134217728 / 17974e-6 * 1.5)
    assert last.settings["shown"] == "11.20 GB/s busbw"
    assert last.settings["line"] == 36
    assert last.settings["iterations"] == 20
    assert last.verification is not None
    assert last.verification.bytes_wrong == 0


def test_ranks_and_hosts_come_from_the_device_lines() -> None:
    (file,) = nccl_tests.read(text(ALL_TO_ALL))
    assert (file.tool, file.version, file.test) == ("nccl-tests", "2.18.3", "all_to_all")
    assert (file.ranks, file.hosts, file.gpus) == (16, 2, ("NVIDIA RTX 6000D",))
    assert {result.ranks for result in file.results} == {16}
    assert {result.hosts for result in file.results} == {2}
    assert file.environment["NCCL_P2P_DISABLE"] == "1"
    assert file.environment["NCCL_NETDEVS_POLICY"] == "MAX:1"


def test_the_collapse_of_a_faulty_network_is_read_as_printed() -> None:
    (file,) = nccl_tests.read(text(ALL_TO_ALL))
    assert len(file.results) == 2 * 24
    at_16_mib = [r for r in file.results if r.parameters["size_bytes"] == 16777216]
    assert value(at_16_mib[0]) == pytest.approx(16777216 / 459.13e-6)
    assert value(at_16_mib[1]) == pytest.approx(16777216 / 70123.2e-6)


def test_a_column_that_says_na_is_not_a_check() -> None:
    (file,) = nccl_tests.read(text(ALL_TO_ALL))
    for result in file.results:
        assert (result.verification is None) == (result.parameters["placement"] == "in_place")


def test_the_slow_machine_is_seven_times_slower_than_the_healthy_one() -> None:
    (healthy,), (slow,) = (nccl_tests.read(text(name)) for name in (HEALTHY, HEALTHY.replace("healthy", "slow")))
    assert sizes(healthy.results) == sizes(slow.results)
    assert value(healthy.results[-1]) == pytest.approx(4294967296 / 95610.9e-6)
    assert value(slow.results[-1]) == pytest.approx(4294967296 / 758014e-6)


def test_a_table_of_the_first_algbw_definition_gives_algbw_of_today() -> None:
    (file,) = nccl_tests.read(text("nccl_tests/before-2.10-all_gather-2xrtx2080ti-part.txt"))
    assert (file.test, file.ranks, len(file.results)) == ("all_gather", 2, 26)
    assert value(file.results[-1]) == pytest.approx(134217728 / 3070.3e-6)  # the table prints half of it
    assert any("busbw in both columns" in note for note in file.notes)
    assert any("rows are missing" in note for note in file.notes)


def test_two_tables_of_one_text_are_two_files_with_their_own_ranks_and_environment() -> None:
    pair, four = nccl_tests.read(text("nccl_tests/since-2.13-all_reduce-nvlink-pair-and-sys.txt"))
    assert (pair.ranks, len(pair.results), pair.environment) == (2, 8, {})
    assert (four.ranks, len(four.results), four.environment) == (4, 8, {"NCCL_P2P_DISABLE": "1"})
    assert pair.hosts is None
    assert any("busbw / algbw implies 2 ranks" in note for note in pair.notes)


def test_a_recorded_json_file_is_read_whole() -> None:
    (file,) = nccl_tests.read(text(JSON))
    assert (file.tool, file.test, file.ranks, file.hosts, file.gpus) == ("nccl-tests", "all_reduce", 2, 1, (H200,))
    assert file.environment == {"NCCL_VERSION": "2.28.3-1", "NCCL_NVLS_ENABLE": "0"}
    assert sizes(file.results) == [size for step in range(6) for size in [2**20 * 4**step] * 2]
    first, last = file.results[0], file.results[-1]
    assert (first.parameters["placement"], last.parameters["placement"]) == ("out_of_place", "in_place")
    assert value(first) == pytest.approx(2**20 / 17.1116e-6)
    assert value(last) == pytest.approx(2**30 / 3258.32905e-6)
    assert last.settings["busbw_bytes_per_s"] == pytest.approx(329.537566e9)
    assert last.settings["nccl_version_code"] == 22809
    assert all(check is not None and not check.bytes_wrong for check in (one.verification for one in file.results))


def test_a_json_file_says_the_same_as_the_text() -> None:
    """The text is generated from the file, with the columns and digits of the table recorded on the same machine."""
    halves = ("out_of_place", "in_place")
    table = text("nccl_tests/2.19.6-all_reduce-2xh200.txt")
    lines = [line for line in table.split("\n") if line.startswith("#")]
    for row in json.loads(text(JSON))["results"]:
        cells = [cell for half in halves for cell in row[half].values()]
        printed = "".join(f" {cell:8.2f}" if place % 4 < 3 else f" {cell:7.0f}" for place, cell in enumerate(cells))
        lines.insert(
            -5, f"{row['size']:12} {row['count']:13} {row['type']:>9} {row['redop']:>7} {row['root']}{printed}"
        )
    (printed_file,), (written,) = nccl_tests.read("\n".join(lines)), nccl_tests.read(text(JSON))
    assert (written.test, written.ranks, written.hosts) == (printed_file.test, printed_file.ranks, printed_file.hosts)
    assert [value(one) for one in written.results] == pytest.approx(
        [value(one) for one in printed_file.results], rel=1e-3
    )
    assert [one.verification for one in written.results] == [one.verification for one in printed_file.results]
    assert [one.parameters for one in written.results] == [one.parameters for one in printed_file.results]


def test_a_json_file_of_several_processes_has_a_device_for_each() -> None:
    content = json.loads(text(JSON))
    device = content["config"]["devices"][0]
    content["config"] |= {"ngpus": 1, "devices": [device, device | {"rank": 1, "hostname": "node1"}]}
    (file,) = nccl_tests.read(json.dumps(content))
    assert (file.ranks, file.hosts) == (2, 2)


@pytest.mark.parametrize(
    "wrap",
    [
        pytest.param(lambda line: f"[1,0]<stdout>:{line}", id="mpirun --tag-output"),
        pytest.param(lambda line: f"[prterun-node1-2741@1,0]<stdout>: {line}", id="prterun"),
        pytest.param(lambda line: f" 0: {line}", id="srun --label"),
        pytest.param(lambda line: f"[0] {line}", id="mpiexec -l"),
        pytest.param(lambda line: f"2026-09-01T10:00:00.123456789Z {line}", id="kubectl --timestamps"),
        pytest.param(lambda line: f"[2026-09-01 10:00:00] [1,0]<stdout>:{line}", id="time stamp and tag"),
        pytest.param(lambda line: f"\x1b[32m{line}\x1b[0m", id="colours"),
        pytest.param(lambda line: f"{line}\r", id="CRLF"),
        pytest.param(lambda line: f"    {line}", id="indented"),
        pytest.param(lambda line: f"{line}\nnode1:21:21 [0] NCCL INFO comm 0x7f rank 0 nranks 2 - COMPLETE", id="log"),
    ],
)
def test_what_a_launcher_puts_before_the_lines_does_not_matter(wrap: object) -> None:
    assert callable(wrap)
    plain = nccl_tests.read(text(HEALTHY))
    wrapped = nccl_tests.read("\n".join(wrap(line) for line in text(HEALTHY).split("\n")))
    assert [(r.parameters, r.samples) for r in wrapped[0].results] == [
        (r.parameters, r.samples) for r in plain[0].results
    ]
    assert (wrapped[0].ranks, wrapped[0].hosts, len(wrapped)) == (2, 2, 1)


def test_the_recorded_log_with_tags_is_read_whole() -> None:
    (file,) = nccl_tests.read(text("nccl_tests/2.18.0-all_reduce-2xrtx5090-socket.txt"))
    assert (file.version, file.ranks, file.hosts, len(file.results)) == ("2.18.0", 2, 1, 16)
    assert value(file.results[-1]) == pytest.approx(134217728 / 58055.4e-6)


def test_a_variable_in_nccls_log_is_part_of_the_environment() -> None:
    logged = "node1:1:1 [0] NCCL INFO NCCL_IB_HCA set by environment to mlx5_0.\n" + text(HEALTHY)
    assert nccl_tests.read(logged)[0].environment["NCCL_IB_HCA"] == "mlx5_0"


def test_wrong_elements_are_wrong_bytes() -> None:
    wrong = text(HEALTHY).replace("22.14       0", "22.14       5")
    (file,) = nccl_tests.read(wrong)
    checks = [result.verification for result in file.results]
    assert [check.bytes_wrong for check in checks if check] == [0, 0, 0, 0, 5 * 4, 0]


def test_an_old_table_with_values_out_of_bounds_is_verified_nowhere() -> None:
    (file,) = nccl_tests.read(text(OLD).replace("Out of bounds values : 0 OK", "Out of bounds values : 3 FAILED"))
    assert all(result.verification is None for result in file.results)
    assert any("3 values out of bounds" in note for note in file.notes)


def test_a_table_cut_inside_its_last_row_is_read_up_to_there() -> None:
    whole = text(HEALTHY)
    (file,) = nccl_tests.read(whole[: whole.index("95610.9")])
    assert len(file.results) == 4
    assert any("ends inside line 15" in note for note in file.notes)
    assert any("no end" in note for note in file.notes)


def test_a_table_cut_inside_a_row_before_the_next_run_is_read_up_to_there() -> None:
    whole = text(HEALTHY)
    killed = whole[: whole.index("95610.9")]
    for between in ("\n", "\nKilled\n\n$ ./all_reduce_perf\n"):
        first, second = nccl_tests.read(killed + between + whole)
        assert (len(first.results), len(second.results)) == (4, len(nccl_tests.read(whole)[0].results))
        assert any("ends inside line 15" in note for note in first.notes)
        assert not any("inside line" in note for note in second.notes)


def test_the_per_iteration_columns_of_2_19_are_kept_beside_the_value() -> None:
    table = (
        "# Collective test starting: all_reduce_perf\n"
        "#       size   count   type  redop  root  time  algbw  busbw #wrong i_min i_max i_p99 i_cv%"
        "  time  algbw  busbw #wrong i_min i_max i_p99 i_cv%   timestamp\n"
        "     1048576  262144  float    sum    -1  100.00  10.49  18.35      0  98.10 103.20 103.00 1.20"
        "  101.00  10.38  18.17      0  99.00 104.00 104.00 1.10  2026-09-26 10:00:00\n"
        "# Avg bus bandwidth    : 18.26\n"
    )
    (file,) = nccl_tests.read(table)
    assert file.ranks == 8
    assert file.results[0].settings["iteration_max_s"] == pytest.approx(103.2e-6)


TAMPERED = [
    pytest.param("22.14", "32.14", "busbw 32.14 is not algbw 44.28", id="busbw"),
    pytest.param("44.28   22.14", "54.28   27.14", "algbw 54.28 GB/s is not size", id="both bandwidths"),
    pytest.param("96986.7", "96.9867", "algbw 44.28 GB/s is not size", id="time in ms"),
    pytest.param("  536870912 ", "  536870911 ", "must be the same integer", id="count"),
    pytest.param("536870912     float", "536870912      half", "must be the same integer", id="type"),
    pytest.param(
        "536870912     float", "536870912     quark", "type must be an NCCL type, got 'quark'", id="unknown type"
    ),
    pytest.param("22.14", "nan", "busbw must be a number of zero or more, got 'nan'", id="nan"),
    pytest.param("96986.7", "inf", "time must be a number of zero or more, got 'inf'", id="inf"),
    pytest.param("96986.7", "-96986.7", "time must be a number of zero or more, got '-96986.7'", id="negative"),
    pytest.param("96986.7", "0", "time must be above 0 us, got 0", id="no time"),
    pytest.param("all_gather_perf", "all_reduce_perf", "is not count", id="another operation"),
    pytest.param("  4294967296  ", "   429496729  ", "rows of several tables are mixed", id="size"),
]


@pytest.mark.parametrize(("old", "new", "reason"), TAMPERED)
def test_a_table_that_contradicts_itself_is_refused_with_line_and_value(old: str, new: str, reason: str) -> None:
    assert old in text(HEALTHY)
    with pytest.raises(UsageError) as refused:
        nccl_tests.read(text(HEALTHY).replace(old, new))
    assert reason in refused.value.message
    assert refused.value.message.startswith("line ")
    assert refused.value.hint


def test_the_wrong_factor_is_refused_when_device_lines_name_other_ranks() -> None:
    eight = text(OLD).replace("Rank  3 ", "Rank  7 ")
    with pytest.raises(UsageError, match=r"the factor of all_reduce for 8 ranks"):
        nccl_tests.read(eight)


def test_tables_of_several_processes_without_mpi_are_told_apart_and_said_to_be_so() -> None:
    doubled = "\n".join(line for line in text(OLD).split("\n") for _ in (1, 2))
    files = nccl_tests.read(doubled)
    assert [len(file.results) for file in files] == [50, 50]
    assert all("without MPI=1" in file.notes[0] and file.hosts == 1 for file in files)


def test_processes_without_mpi_that_are_labelled_are_read_apart() -> None:
    lines = [f"[1,{rank}]<stdout>:{line}" for line in text(OLD).split("\n") for rank in (0, 1)]
    assert [len(file.results) for file in nccl_tests.read("\n".join(lines))] == [50, 50]


def test_a_table_without_a_name_is_what_its_check_in_place_says_else_both_are_told() -> None:
    nameless = "\n".join(line for line in text(HEALTHY).split("\n") if "_perf" not in line)
    (checked,) = nccl_tests.read(nameless)
    assert (checked.test, checked.rivals) == ("all_gather", ())
    (unchecked,) = nccl_tests.read(re.sub(r" 0(?=\s|$)", " N/A", nameless))
    assert (unchecked.test, unchecked.rivals) == ("all_gather", ("all_to_all",))
    (named,) = nccl_tests.read(nameless, "all_to_all")
    assert (named.test, named.rivals) == ("all_to_all", ())


def test_rows_below_16_bytes_per_rank_are_left_out_and_counted() -> None:
    empty = "           0             0     float    none      -1" + "     5.70    0.00    0.00       0" * 2 + "\n"
    whole = text(HEALTHY)
    place = whole.index("  1073741824     134")
    (file,) = nccl_tests.read(whole[:place] + empty + whole[place:])
    assert len(file.results) == 6
    assert any("less than 16 bytes per rank send nothing and are left out: 1" in note for note in file.notes)


def test_a_second_cycle_of_the_same_sizes_is_another_launch() -> None:
    whole = text(HEALTHY)
    rows = whole[whole.index("  1073741824     134") : whole.index("# Out of bounds")]
    (file,) = nccl_tests.read(whole.replace(rows, rows * 2))
    assert [result.launch for result in file.results] == [0] * 6 + [1] * 6


def test_a_json_file_of_a_run_that_died_or_of_another_version_is_refused() -> None:
    whole = text(JSON)
    with pytest.raises(UsageError, match="not a whole -J file"):
        nccl_tests.read(whole[:-20])
    with pytest.raises(UsageError, match="version must be 1 to 3, got 9"):
        nccl_tests.read(json.dumps({**json.loads(whole), "version": 9}))


def test_text_without_a_row_is_refused() -> None:
    with pytest.raises(UsageError, match="nccl-tests must contain a row"):
        nccl_tests.read("# algbw and busbw, see doc/PERFORMANCE.md")


@pytest.mark.parametrize(
    ("name", "told"),
    [("2.19.6-alltoall-4xh200", True), ("2.19.6-alltoall-2xh200", False), ("2.19.6-all_gather-4xh200", False)],
)
def test_an_all_to_all_of_memory_that_nothing_wrote_says_that_it_is_faster_so(name: str, *, told: bool) -> None:
    (file,) = nccl_tests.read(text(f"nccl_tests/{name}.txt"))
    assert any("memory that was never written" in note for note in file.notes) == told


def test_the_form_of_mscclpp_has_no_type_and_its_first_half_is_in_place() -> None:
    text = (
        "#                                        in-place                       out-of-place\n"
        "#       size         count     time   algbw   busbw  #wrong     time   algbw   busbw  #wrong\n"
        "     6291456       1572864    76.21   82.55  144.46      0\n"
        "    12582912       3145728    138.4   90.93  159.12      0\n"
    )
    (file,) = nccl_tests.read(text)
    assert (file.test, file.ranks) == ("all_reduce", 8)
    assert [(one.parameters["placement"], one.samples[0] / 1e9) for one in file.results] == [
        ("in_place", pytest.approx(82.55, rel=1e-3)), ("in_place", pytest.approx(90.93, rel=1e-3)),
    ]  # fmt: skip


@pytest.mark.parametrize(("command", "ranks"), [("mpirun.mpich -np 4", 8), ("mpirun -np 3000000", None)])
def test_the_command_gives_the_ranks_that_the_rates_leave_open(command: str, ranks: int | None) -> None:
    (file,) = nccl_tests.read(
        f"$ {command} ./build/all_reduce_perf -b 8 -e 1K -g 2 -n 250\n"
        "#  size  count  type  redop  time  algbw  busbw  error  time  algbw  busbw  error\n"
        "    1024  256  float  sum  31.25  0.03  0.06  4e-07  31.30  0.03  0.06  2e-07\n"
    )
    assert file.ranks == ranks

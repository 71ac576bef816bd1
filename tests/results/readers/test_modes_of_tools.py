"""Modes, versions and summaries in which a tool prints something other than its usual table."""

from __future__ import annotations

from pathlib import Path

import pytest

from railwright.errors import UsageError
from railwright.results.readers import registry
from railwright.results.readers.foreign_file import ForeignFile

THREADS = Path(__file__).parents[3] / "testdata/external/threads"


def text_of(number: str) -> str:
    (path,) = THREADS.glob(f"{number}-*.txt")
    return path.read_text(encoding="utf-8")


def read(number: str) -> ForeignFile:
    (file,) = registry.read(text_of(number))
    return file


def values(file: ForeignFile) -> list[float]:
    return [one.samples[0] for one in file.results]


def test_rows_of_ior_are_read_without_its_header_and_its_maxima_without_its_rows() -> None:
    rows = read("231")
    assert [one.parameters["operation"] for one in rows.results[:3]] == ["read", "write", "read"]
    assert values(rows)[:2] == [22660 * 2**20, 25110 * 2**20]
    (best,) = registry.read("Max Write: 25154.87 MiB/sec (26376.80 MB/sec)\nMax Read:  22659.51 MiB/sec\n")
    assert values(best) == [pytest.approx(25154.87 * 2**20), pytest.approx(22659.51 * 2**20)]
    assert any("only the best pass" in note for note in best.notes)


def test_the_summary_of_ior_gives_its_means() -> None:
    assert values(read("239")) == [pytest.approx(565.67 * 2**20)]
    head = (
        "Operation   Max(MiB)   Min(MiB)  Mean(MiB)     StdDev   Max(OPs)   Min(OPs)  Mean(OPs)     StdDev    Mean(s)\n"
    )
    with pytest.raises(UsageError, match=r"the mean must be between .*, got 665\.67"):
        registry.read(f"{head}write 565.67 565.67 665.67 0.00 565.67 565.67 565.67 0.00 2.71535 NA NA\n")


def test_linpack_of_amd_has_a_column_for_how_rows_are_swapped() -> None:
    (result,) = read("232").results
    assert (result.parameters["n"], result.parameters["nb"], result.samples[0]) == (121752, 456, 1.9157e12)


def test_the_sums_of_fio_2_stand_for_its_jobs_where_these_are_missing() -> None:
    assert values(read("233")) == [16406 * 1024, 5021 * 1024, 354 * 1024, 5042 * 1024, 398 * 1024]
    with pytest.raises(UsageError, match="aggrb=26406KB/s is not io=984576KB"):
        registry.read("  WRITE: io=984576KB, aggrb=26406KB/s, minb=1KB/s, maxb=1KB/s, mint=60011msec, maxt=60011msec\n")


def test_runs_that_a_hand_put_side_by_side_are_told_apart() -> None:
    file = read("236")
    assert {one.parameters["column"] for one in file.results} == {1, 2, 3, 4}
    assert values(file)[:4] == [pytest.approx(us * 1e-6) for us in (100.92, 271.86, 82.11, 263.98)]
    assert [note for note in file.notes if "4 columns stand under" in note or "that row is left out" in note]
    with pytest.raises(UsageError, match="3 columns where the rows above have 4"):
        registry.read("# OSU MPI Latency Test v7.2\n# Size  Latency (us)\n1 1.0 2.0 3.0\n2 1.0 2.0\n4 1.0 2.0 3.0\n")


def test_matrices_of_the_older_samples_are_read() -> None:
    file = read("241")
    assert {str(one.parameters["test"]) for one in file.results} == {
        "device_to_device_write", "device_to_device_bidirectional_write"
    }  # fmt: skip
    assert values(file)[:2] == [3.32e9, 3.32e9]


def test_each_line_of_bandwidthtest_in_its_mode_of_many_sizes_is_a_result() -> None:
    file = read("243")
    assert [one.parameters["size_bytes"] for one in file.results] == [*range(1000, 15000, 1000)]
    assert values(file)[0] == 0.4e9  # a copy inside a GPU counts bytes read and bytes written
    (both,) = registry.read(
        "bandwidthTest-H2D-Pinned, Bandwidth = 12152.4 MB/s, Time = 0.00258 s, Size = 33554432 bytes, NumDevsUsed = 1\n"
        "bandwidthTest-D2H-Paged, Bandwidth = 6.4 GB/s, Time = 0.00258 s, Size = 33554432 bytes, NumDevsUsed = 1\n"
    )
    assert [one.path for one in both.results] == ["memory0>gpu0", "gpu0>memory0"]
    assert values(both) == [12152.4 * 2**20, 6.4e9]


@pytest.mark.parametrize(
    ("title", "name"),
    [
        ("OSU NCCL-CUDA Allreduce Latency Test v7.3", "osu_nccl_allreduce"),
        ("OSU NCCL-CUDA Bandwidth Test v7.3", "osu_nccl_bw"),
        ("OSU OpenSHMEM Put Test v5.6.3", "osu put"),
        ("OMB Python MPI Latency Test", "osu_latency"),
    ],
)
def test_the_same_patterns_over_other_libraries_are_read(title: str, name: str) -> None:
    (file,) = registry.read(f"# {title}\n# Size (B)      Latency (us)\n1                       1.20\n")
    assert (file.test, values(file)) == (name, [pytest.approx(1.2e-6)])


LINPACK = """Number of threads: 64

Size   LDA    Align. Time(s)    GFlops   Residual     Residual(norm) Check
1000   1000   4      0.012      54.8742  9.565903e-13 3.262250e-02   pass
20000  20000  4      5.401      987.5641 4.036930e-10 3.573605e-02   {check}

Performance Summary (GFlops)

Size   LDA    Align.  Average  Maximal
20000  20000  4       987.5641 987.5641
"""


def test_intels_linpack_gives_each_trial_and_whether_it_was_right() -> None:
    (file,) = registry.read(LINPACK.format(check="pass"))
    assert [one.parameters["n"] for one in file.results] == [1000, 20000]
    assert values(file) == [54.8742e9, 987.5641e9]
    (wrong,) = registry.read(LINPACK.format(check="fail"))
    assert [one.verification and one.verification.bytes_wrong for one in wrong.results] == [0, 160000]
    with pytest.raises(UsageError, match=r"1987\.5641 GFlops is not \(2/3 N\^3 \+ 2 N\^2\)"):
        registry.read(LINPACK.format(check="pass").replace("5.401      987", "5.401      1987"))


PERFTEST = '{"test_info": {"test": "RDMA_Write_BW", "Mtu": 4096, "Number_of_qps": 4}, "results": {"MsgSize": 65536,'
PERFTEST += '"n_iterations": 5000, "BW_peak": 392.2, "BW_average": %s, "MsgRate": 0.747299}}'


def test_the_json_of_perftest_has_the_unit_that_its_messages_give() -> None:
    (file,) = registry.read(PERFTEST % "391.8")
    assert (file.test, file.results[0].settings["mtu_bytes"], values(file)[0]) == ("ib_write_bw", 4096, 391.8e9 / 8)
    (megabytes,) = registry.read(PERFTEST % "46706.2")
    assert values(megabytes)[0] == 46706.2 * 2**20
    with pytest.raises(UsageError, match=r"191\.8 is not .* in any unit"):
        registry.read(PERFTEST % "191.8")


def test_the_json_of_nvbandwidth_is_read_as_its_text_is() -> None:
    text = (
        '{"nvbandwidth": {"GPU Device list": ["0: NVIDIA H100 80GB HBM3: (00000000:18:00)"], "git_version": "v0.5",'
        '"testcases": [{"bandwidth_description": "memcpy CE CPU(row) -> GPU(column) bandwidth (GB/s)",'
        '"bandwidth_matrix": [["55.31", "55.30"]], "name": "host_to_device_memcpy_ce", "sum": %s},'
        '{"name": "not_run", "status": "Waived"}]}}'
    )
    (file,) = registry.read(text % "110.61")
    assert (file.version, values(file)) == ("0.5", [55.31e9, 55.30e9])
    assert [one.path for one in file.results] == ["memory0>gpu0", "memory0>gpu1"]
    with pytest.raises(UsageError, match=r"SUM must be the sum of the matrix, 110\.61, got 210\.61"):
        registry.read(text % "210.61")


ROCM = """RocmBandwidthTest Version: 2.6.0
          Device: 0,  AMD EPYC 9654 96-Core Processor
          Device: 1,  AMD Instinct MI300X,  GPU-0123456789abcdef,  c1:0.0
          Device: 2,  AMD Instinct MI300X,  GPU-0123456789abcdee,  c2:0.0

          {way} copy peak bandwidth GB/s

          D/D       0           1           2

          0         N/A         55.601      55.588

          1         55.611      3305.611    48.604

          2         55.604      48.602      3308.811
"""


def test_devices_of_rocm_bandwidth_test_are_counted_by_kind() -> None:
    (file,) = registry.read(ROCM.format(way="Unidirectional"))
    assert (file.gpus, file.version) == (("AMD Instinct MI300X",), "2.6.0")
    assert {one.path: one.samples[0] for one in file.results} == {
        "memory0>gpu0": 55.601e9, "memory0>gpu1": 55.588e9, "gpu0>memory0": 55.611e9, "gpu0>gpu1": 48.604e9,
        "gpu1>memory0": 55.604e9, "gpu1>gpu0": 48.602e9,
    }  # fmt: skip
    (both,) = registry.read(ROCM.format(way="Bidirectional"))
    assert both.results[0].samples[0] == 55.601e9 / 2
    with pytest.raises(UsageError, match="2 columns where the matrix has 3"):
        registry.read(ROCM.format(way="Unidirectional").replace("55.611      3305.611", "3305.611"))


def test_lines_of_fio_minimal_are_read_and_held_against_their_time() -> None:
    written = ";".join(["0"] * 41)
    read_side = ";".join(["4194304", "699050", "174762", "6000", *["0"] * 37])
    line = f"3;fio-3.28;randread;0;0;{read_side};{written};10.0%;20.0%;100;0;5\n"
    (file,) = registry.read(line)
    assert (file.version, file.results[0].parameters["operation"]) == ("3.28", "read")
    assert values(file) == [699050 * 1024, 174762]
    with pytest.raises(UsageError, match="899050 KiB/s is not 4194304 KiB in 6000 ms"):
        registry.read(line.replace("699050", "899050"))


def test_a_live_csv_of_elbencho_gives_the_rate_of_all_bytes_of_its_last_whole_line() -> None:
    file = read("245")
    assert values(file) == [pytest.approx(470143205376 / 9.001), pytest.approx(10021e-6)]
    assert file.results[0].parameters == {"operation": "read"}


PHASES = (
    "ISO date,label,threads,block size,operation,time ms [first],time ms [last],IOPS [first],IOPS [last],"
    "MiB/s [first],MiB/s [last],MiB [first],MiB [last],IO lat us [min],IO lat us [avg]\n"
    "2026-01-01,,4,1048576,WRITE,1900,2000,99,{rate},99,{rate},200,{total},1,40\n"
    "2026-01-01,,4,1048576,RMFILES,19,20,,,,,,,,\n"
)


def test_a_csv_of_elbencho_gives_its_phases_that_move_data() -> None:
    (file,) = registry.read(PHASES.format(rate=100, total=200))
    assert values(file) == [100 * 2**20, 100, pytest.approx(40e-6)]
    assert file.results[0].parameters == {"operation": "write", "size_bytes": 2**20, "threads": 4}
    with pytest.raises(UsageError, match="300 MiB/s is not 200 MiB in 2000 ms"):
        registry.read(PHASES.format(rate=300, total=200))


@pytest.mark.parametrize("column", ["Rank", "MixType", "DoneBytes"])
def test_a_live_csv_of_elbencho_without_a_column_is_refused_by_its_name(column: str) -> None:
    with pytest.raises(UsageError, match=f"elbencho's CSV must have a column {column}"):
        registry.read(text_of("245").replace(f",{column},", ",Other,"))


@pytest.mark.parametrize(
    "garbled", ["a\rb" + "," * 14, "x" * 2**18 + "," * 14], ids=["a carriage return", "a long field"]
)
def test_a_garbled_line_of_a_csv_is_no_row(garbled: str) -> None:
    whole = PHASES.format(rate=100, total=200)
    assert values(registry.read(whole + garbled + "\n")[0]) == values(registry.read(whole)[0])


def test_a_table_of_mdtest_may_be_without_colons_and_deviation() -> None:
    file = read("246")
    assert file.results[-1].parameters == {"operation": "file removal"}
    assert values(file)[-1] == 45404.986


def test_rows_of_a_collective_that_names_no_reduction_are_known_without_a_header() -> None:
    file = read("249")
    assert (file.test, file.ranks, len(file.results)) == ("all_gather", 2, 26)


def test_the_summary_of_kbench_has_what_was_read_and_what_was_written() -> None:
    file = read("251")
    assert values(file)[:2] == [28832, 5730]
    assert values(file)[-1] == pytest.approx(934854e-9)
    assert file.results[5].parameters == {"operation": "random write"}
    with pytest.raises(UsageError, match="kbench's summary must contain a row"):
        registry.read("FIO Benchmark Summary\nFor: test_device\n")


def test_the_raw_total_of_hpcg_stands_for_a_result_that_is_not_in_the_text() -> None:
    file = read("259")
    assert values(file) == [pytest.approx(196.268e9)]
    assert any("which says whether the result is valid" in note for note in file.notes)
    (whole,) = registry.read(
        "GFLOP/s Summary::Raw Total=196.268\nFinal Summary::HPCG result is VALID with a GFLOP/s rating of=190.5\n"
    )
    assert values(whole) == [pytest.approx(190.5e9)]


def test_a_run_without_a_row_may_stand_before_one_with_rows() -> None:
    text = text_of("193")
    empty = next(line for line in text.split("\n") if line.split()[:2] == ["0", "0"])
    told = "# Collective test starting: alltoall_perf"
    files = registry.read(text.replace(told, f"{told}\n{empty}", 1))
    assert [len(file.results) > 0 for file in files] == [False, True]


def test_words_about_fio_are_no_rate_and_a_row_of_hpl_may_stand_among_words() -> None:
    (file,) = registry.read(
        "  read: IOPS=10k, BW=40MiB/s (42MB/s)(1000MiB/25003msec)\nHere\nread: IOPS=10k\nmeans much.\n"
    )
    assert values(file) == [pytest.approx(40 * 2**20), 10_000]
    (row,) = registry.read(
        "T/V N NB P Q Time Gflops ---------- WR01C2L8 102144 192 8 8 514.92 1.380e+03 There is no least\n"
    )
    assert values(row) == [1.38e12]

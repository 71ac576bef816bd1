"""iperf3, STREAM, elbencho and HPCG: the results that are read, and the contradictions that are refused."""

from __future__ import annotations

import json

import pytest
from tests.results.readers.recorded import THREADS, text

from railwright.errors import UsageError
from railwright.results.readers import hpcg, iperf3, registry, stream
from railwright.results.readers.elbencho import text as elbencho
from railwright.results.workload import Message, Unlimited

TWO_STREAMS = """\
iperf3 -c 10.0.0.2 -P 2 -t 10
Connecting to host 10.0.0.2, port 5201
[ ID] Interval           Transfer     Bitrate         Retr  Cwnd
[  5]   0.00-1.00   sec  5.50 GBytes  47.2 Gbits/sec   12   3.10 MBytes
[  7]   0.00-1.00   sec  5.40 GBytes  46.4 Gbits/sec    3   3.10 MBytes
[SUM]   0.00-1.00   sec  10.9 GBytes  93.6 Gbits/sec   15
[ ID] Interval           Transfer     Bitrate         Retr
[  5]   0.00-10.00  sec  55.0 GBytes  47.2 Gbits/sec   12             sender
[  5]   0.00-10.04  sec  55.0 GBytes  47.1 Gbits/sec                  receiver
[  7]   0.00-10.00  sec  54.0 GBytes  46.4 Gbits/sec    3             sender
[  7]   0.00-10.04  sec  54.0 GBytes  46.2 Gbits/sec                  receiver
[SUM]   0.00-10.00  sec   109 GBytes  93.6 Gbits/sec   15             sender
[SUM]   0.00-10.04  sec   109 GBytes  93.3 Gbits/sec                  receiver
"""


def values(found: str) -> list[float]:
    (file,) = registry.read(found)
    return [result.summary.median for result in file.results if result.summary is not None]


def test_of_iperf3_what_the_receiver_has_of_all_streams_counts() -> None:
    assert values(TWO_STREAMS) == [93.3e9 / 8]
    assert values("".join(f"pod-7  {line}\n" for line in TWO_STREAMS.splitlines())) == [93.3e9 / 8]
    (file,) = registry.read(TWO_STREAMS)
    assert file.results[0].parameters["streams"] == 2
    assert (type(file.workload), file.workload.transport) == (Message, "sockets")


def test_of_iperf3_streams_without_their_sum_are_added_up() -> None:
    """The paste ends after three of eight streams; a single stream would be judged slow."""
    (file,) = iperf3.read((THREADS / "212-iperf3-40g-8-streams-cut.txt").read_text(encoding="utf-8"))
    assert [one.samples[0] for one in file.results] == [pytest.approx((580 + 578 + 575) * 1e6 / 8)]
    assert file.results[0].settings["retransmits"] == 548 + 352 + 416
    twice = "[  5]   0.00-10.00  sec  1.10 GBytes   941 Mbits/sec                  receiver\n" * 2
    assert [one.samples[0] for one in iperf3.read(twice)[0].results] == [941e6 / 8] * 2  # of two runs


def test_of_iperf3_what_is_no_number_of_retries_is_left_out() -> None:
    assert values(TWO_STREAMS.replace("   15  ", "   ²  ")) == [93.3e9 / 8]


def test_of_iperf3_both_ways_and_intervals_of_a_cut_run_are_rows() -> None:
    both = """[ ID][Role] Interval           Transfer     Bitrate         Retr
[  5][TX-C]   0.00-10.00  sec  10.9 GBytes  9.36 Gbits/sec    0             sender
[  5][TX-C]   0.00-10.04  sec  10.9 GBytes  9.32 Gbits/sec                  receiver
[  7][RX-C]   0.00-10.00  sec  5.45 GBytes  4.68 Gbits/sec    0             sender
[  7][RX-C]   0.00-10.04  sec  5.45 GBytes  4.66 Gbits/sec                  receiver
"""
    assert values(both) == [9.32e9 / 8, 4.66e9 / 8]
    (cut,) = iperf3.read(text("iperf3/vm-to-host-cut.txt"))
    assert cut.hosts == 2
    (alone,) = iperf3.read(text("iperf3/vm-to-host-cut.txt").replace("172.22.22.6", "172.22.22.3"))
    assert alone.hosts == 1
    assert len(cut.results) == 4
    assert any("intervals" in note for note in cut.notes)


def test_datagrams_go_at_the_rate_that_was_asked_for_and_are_not_judged() -> None:
    asked = """[ ID] Interval           Transfer     Bitrate         Jitter    Lost/Total Datagrams
[  5]   0.00-10.00  sec  1.25 MBytes  1.05 Mbits/sec  0.010 ms  0/906 (0%)  receiver
"""
    (file,) = registry.read(asked)
    assert isinstance(file.workload, Unlimited)


def test_the_json_of_iperf3_is_read_and_its_arithmetic_checked() -> None:
    received = {"seconds": 10.0, "bytes": 1.25e10, "bits_per_second": 1e10}
    report = {
        "start": {"version": "iperf 3.12", "test_start": {"protocol": "TCP", "num_streams": 8}},
        "end": {"sum_sent": received, "sum_received": received},
    }
    assert values(json.dumps(report)) == [1.25e9]
    received["bytes"] = 1e9
    with pytest.raises(UsageError, match="is not 1e"):
        registry.read(json.dumps(report))


def test_of_elbencho_the_last_that_ended_counts_and_phases_without_data_are_no_rows() -> None:
    assert values(text("elbencho/write-3-hosts.txt")) == [33352 * 2**20, 33352.0]
    several = "MKDIRS    Elapsed ms       :          1          2\n          Dirs/s           :       9606      12441\n"
    (file,) = elbencho.read(several + text("elbencho/1.8-read-4k-latency.txt"))
    assert [result.quantity for result in file.results] == ["bandwidth_bytes_per_s", "operations_per_s", "latency_s"]
    assert file.results[0].parameters == {"operation": "read", "size_bytes": 4096}


def test_of_stream_each_kernel_is_a_row_and_gpus_are_told_apart() -> None:
    (file,) = stream.read(text("stream/5.10-validated.txt"))
    assert [result.parameters["kernel"] for result in file.results] == ["copy", "scale", "add", "triad"]
    on_gpu = """BabelStream
Version: 5.0
Running kernels 100 times
Precision: double
Array size: 268.4 MB (=0.3 GB)
Using CUDA device NVIDIA H100 80GB HBM3
Function    MBytes/sec  Min (sec)   Max         Average
Copy        3012345.1   0.00018     0.00019     0.00018
Triad       3050000.0   0.00026     0.00028     0.00027
"""
    (file,) = registry.read(on_gpu)
    assert (file.tool, file.gpus, file.workload.on_gpu) == ("BabelStream", ("NVIDIA H100 80GB HBM3",), True)


FIO_2 = """\
randread: (g=0): rw=randread, bs=4K-4K/4K-4K/4K-4K, ioengine=libaio, iodepth=32
fio-2.2.10
randread: (groupid=0, jobs=1): err= 0: pid=12345: Tue Jan 12 10:00:00 2016
  read : io=4096.0MB, bw=780190KB/s, iops=195047, runt=  5376msec
    clat (usec): min=20, max=2000, avg=160.00, stdev=30.00
"""


def test_of_fio_2_a_kilobyte_is_1024_bytes() -> None:
    (file,) = registry.read(FIO_2)
    assert values(FIO_2) == [780190 * 1024, 195047.0, 160e-6]
    assert (file.version, file.results[0].parameters["size_bytes"], file.results[0].parameters["depth"]) == (
        "2.2.10", 4096, 32,
    )  # fmt: skip


def test_of_hpcg_the_rating_counts_and_an_invalid_one_is_refused() -> None:
    whole = text("hpcg/3.1-8-ranks.txt") + "Machine Summary::Distributed Processes=8\n"
    (file,) = hpcg.read(whole)
    assert (file.ranks, values(whole)) == (8, [5.99649e9])
    with pytest.raises(UsageError, match="not valid"):
        registry.read(whole.replace("is VALID", "is INVALID"))


@pytest.mark.parametrize(
    ("broken", "said"),
    [
        (TWO_STREAMS.replace("109 GBytes  93.3", "109 GBytes  9.33"), "are not 9.33"),
        (text("elbencho/write-3-hosts.txt").replace("2m5.755s", "3m5.755s"), "is not 4194304 MiB"),
        (FIO_2.replace("780190KB", "78019KB"), "is not io=4096.0MB"),
        ("Array size = 30000000 (elements)\n" + text("stream/5.10-laptop-8-threads.txt"), "is not 2 arrays"),
    ],
)
def test_a_rate_that_is_not_that_of_its_bytes_is_refused(broken: str, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        registry.read(broken)


def test_rows_of_iperf_alone_are_read() -> None:
    assert values("[SUM]  0.0-30.0 sec    337 GBytes  96.4 Gbits/sec\n") == [96.4e9 / 8]


def test_what_nvidias_hpcg_prints_is_read_and_held_against_its_processes() -> None:
    (file,) = registry.read((THREADS / "094-hpcg-8-k80-nvidia-2017.txt").read_text(encoding="utf-8"))
    assert (file.ranks, file.gpus) == (8, ("Tesla K80",))
    assert [result.summary.median for result in file.results if result.summary] == [202.6e9]
    with pytest.raises(UsageError, match=r"4 processes x 25\.3 GF"):
        registry.read("2x2x1 process grid\nfinal =  202.6 GF (1536.3 GB/s Effective)   25.3 GF_per ( 192.0 GB/s)\n")


def test_a_suite_of_osu_gives_the_tests_that_are_known_and_names_the_others() -> None:
    files = registry.read((THREADS / "133-osu-pt2pt-suite-omni-path-log.txt").read_text())
    assert {file.test for file in files} >= {"osu_bibw", "osu_bw", "osu_latency"}
    assert any("the OSU test 'Init' is not supported" in note for note in files[0].notes)


def test_a_barrier_has_one_row_without_a_size() -> None:
    (file,) = registry.read((THREADS / "137-osu_barrier-under-profiler.txt").read_text())
    (one,) = file.results
    assert (file.test, one.quantity, one.parameters, one.summary.median) == (
        "osu_barrier", "latency_s", {}, pytest.approx(238.15e-6),
    )  # fmt: skip


def test_percentiles_of_fsync_are_not_those_of_completion() -> None:
    (file,) = registry.read((THREADS / "152-fio-fdatasync-raidz-without-log.txt").read_text())
    (latency,) = [one for one in file.results if one.quantity == "latency_s"]
    assert latency.summary.median == pytest.approx(24e-6)


def test_a_residual_that_is_no_number_is_a_wrong_solution() -> None:
    text_of = (THREADS / "147-hpl-riscv-nan.txt").read_text()
    (file,) = registry.read(text_of)
    assert file.results[0].verification.bytes_wrong == 64000
    with pytest.raises(UsageError, match="residual"):
        registry.read(text_of.replace("FAILED", "PASSED"))


def test_what_hpcg_writes_as_yaml_and_prints_as_well_is_one_result() -> None:
    (file,) = registry.read((THREADS / "173-hpcg-mkl-8-processes.txt").read_text(encoding="utf-8"))
    (result,) = file.results
    assert result.summary is not None
    assert result.summary.median == pytest.approx(3.28908e9)
    assert file.ranks == 8
    assert result.settings["nx"] == 208


def test_each_gpu_of_babelstream_5_is_a_run() -> None:
    files = registry.read((THREADS / "168-babelstream-5.0-2-b300.txt").read_text(encoding="utf-8"))
    assert [file.gpus for file in files] == [("NVIDIA B300 SXM6 AC",)] * 2
    (triad,) = [one for one in files[0].results if one.parameters["kernel"] == "triad"]
    assert triad.summary is not None
    assert triad.summary.median == pytest.approx(6575355.313e6)


def test_nvbandwidths_copies_inside_a_gpu_are_rows() -> None:
    (file,) = registry.read((THREADS / "172-nvbandwidth-8-h20-local-copy.txt").read_text(encoding="utf-8"))
    assert [result.path for result in file.results] == [f"gpu{number}>gpu{number}" for number in range(8)]


def test_of_a_report_of_iperf3_that_was_shortened_and_of_several_the_ends_are_read() -> None:
    shortened = (THREADS / "169-iperf3-json-elided-with-loss.txt").read_text(encoding="utf-8")
    (file,) = registry.read(shortened)
    (result,) = file.results
    assert result.summary is not None
    assert result.summary.median == pytest.approx(9.83441e8 / 8)
    assert (file.version, result.settings["protocol"]) == ("3.0.7", "TCP")
    assert any("only its end was read" in note for note in file.notes)
    whole = '{"start": {}, "end": {' + shortened.rpartition('"end":  {')[2]
    assert len(registry.read(whole)) == 1
    assert len(registry.read(whole + whole)) == 2
    with pytest.raises(UsageError, match="not a whole report"):
        iperf3.read(shortened[: shortened.rindex("sum_received")])


def test_the_last_lines_of_iperf_2_and_iperf3_are_two_runs() -> None:
    old = "[SUM]  0.0-10.0 sec   112 GBytes  96.2 Gbits/sec\n"
    new = "[SUM]   0.00-10.00  sec  41.0 GBytes  35.2 Gbits/sec    0             sender\n"
    files = iperf3.read(f"iperf -c HOST -P 16\n{old}\niperf3 -c HOST -P 16\n{new}")
    assert [result.samples[0] for file in files for result in file.results] == pytest.approx([12.025e9, 4.4e9])


def test_iperf3_tells_how_many_segments_were_sent_again() -> None:
    text = (
        "[ ID] Interval           Transfer     Bitrate         Retr\n"
        "[  5]   0.00-2.00   sec  4.95 GBytes  21.3 Gbits/sec  600             sender\n"
        "[  5]   0.00-2.00   sec  4.94 GBytes  21.2 Gbits/sec                  receiver\n"
    )
    (file,) = registry.read(text)
    assert "600 segments had to be sent again" in file.notes

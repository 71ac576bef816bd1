"""gdsio, fio, IOR and mdtest."""

from __future__ import annotations

import json

import pytest
from tests.results.readers.recorded import THREADS, of, text, value

from railwright.errors import UsageError
from railwright.results.readers import gdsio, ior, mdtest, registry
from railwright.results.readers.fio import text as fio


@pytest.mark.parametrize(
    ("name", "lines", "first_gib", "last_gib", "last_us"),
    [
        ("quadro-p1000-nvme", 5, 1.834943, 1.463563, 5335.688158),
        ("nvfs-8-threads", 2, 5.655563, 6.803043, 1148.187468),
        ("dgx2-and-mixed-sizes", 2, 6.524658, 6.168589, 60200.233629),
    ],
)
def test_every_line_of_gdsio_is_a_bandwidth_in_gib_and_a_mean_latency(
    name: str, lines: int, first_gib: float, last_gib: float, last_us: float
) -> None:
    (file,) = gdsio.read(text(f"gdsio/{name}.txt"))
    assert len(of(file)) == len(of(file, "latency_s")) == lines
    assert value(of(file)[0]) == pytest.approx(first_gib * 2**30)
    assert value(of(file)[-1]) == pytest.approx(last_gib * 2**30)
    assert value(of(file, "latency_s")[-1]) == pytest.approx(last_us * 1e-6)
    assert any("compatibility mode" in note for note in file.notes)


def test_what_gdsio_varied_is_in_the_parameters() -> None:
    (file,) = gdsio.read(text("gdsio/quadro-p1000-nvme.txt"))
    assert file.results[0].parameters == {
        "size_bytes": 262144, "operation": "read", "transfer": "CPUONLY", "threads": 1,
    }  # fmt: skip
    assert file.results[0].settings["moved_bytes"] == 18165760 * 1024
    assert file.results[0].settings["files_bytes"] == 10 * 2**30
    (mixed,) = gdsio.read(text("gdsio/dgx2-and-mixed-sizes.txt"))
    assert mixed.results[-1].parameters["io_sizes_kib"] == "16384-32768-4096"


def test_a_line_of_gdsio_that_was_wrapped_is_read() -> None:
    wrapped = text("gdsio/nvfs-8-threads.txt").replace(" Throughput", "\nThroughput")
    assert (
        gdsio.read(wrapped)[0].results[0].samples == gdsio.read(text("gdsio/nvfs-8-threads.txt"))[0].results[0].samples
    )


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ("5.655563", "56.55563", "throughput 56.55563 GiB/s is not 54675456 KiB / 9.219697 s"),
        ("ops: 53394", "ops: 5339", "5339 operations of 1024 KiB do not move"),
        ("5.655563", "nan", "'nan'"),
        ("9.219697", "0.000000", "is not 54675456 KiB"),
        ("ops: 53394 total_time", "ops: 53394 total", "a line of gdsio must be complete"),
    ],
)
def test_a_line_of_gdsio_that_contradicts_itself_is_refused(old: str, new: str, reason: str) -> None:
    with pytest.raises(UsageError) as refused:
        gdsio.read(text("gdsio/nvfs-8-threads.txt").replace(old, new))
    assert reason in refused.value.message
    assert refused.value.message.startswith("line 1:")


@pytest.mark.parametrize(
    ("name", "bandwidth", "rate", "median_s", "count"),
    [
        ("3.33-read", 1151 * 2**20, 1151.0, 176e-6, 3465),
        ("3.28-randread-8jobs", 1028 * 2**20, 65800.0, 2769e-6, 7899401),
    ],
)
def test_fio_text_gives_bandwidth_rate_and_latency(
    name: str, bandwidth: float, rate: float, median_s: float, count: int
) -> None:
    (file,) = fio.read(text(f"fio/{name}.txt"))
    assert file.version == name.partition("-")[0]
    assert value(of(file)[0]) == pytest.approx(bandwidth)
    assert value(of(file, "operations_per_s")[0]) == pytest.approx(rate)
    summary = of(file, "latency_s")[0].summary
    assert summary is not None
    assert (summary.median, summary.count) == (pytest.approx(median_s), count)
    assert len(file.results) == 3


def test_fio_text_names_what_was_varied() -> None:
    (file,) = fio.read(text("fio/3.28-randread-8jobs.txt"))
    assert file.results[0].parameters == {
        "size_bytes": 16384, "pattern": "randread", "engine": "libaio", "depth": 32, "operation": "read", "jobs": 8,
    }  # fmt: skip
    assert file.results[0].settings["shown"] == "1028MiB/s (1078MB/s)"


def test_fio_json_has_exact_bytes_for_each_direction() -> None:
    (file,) = fio.read(text("fio/3.33-randrw.json"))
    read, written = of(file)
    assert (read.parameters["operation"], written.parameters["operation"]) == ("read", "write")
    assert value(read) == pytest.approx(335286272 / 3.022)
    assert read.parameters["size_bytes"] == 4096
    assert read.parameters["depth"] == 16
    assert of(file, "latency_s")[1].settings["shown"] == "clat_ns 50.000000 432128"
    assert value(of(file, "latency_s")[1]) == pytest.approx(432128e-9)


def test_reads_that_verify_what_was_written_are_a_check_and_not_a_result() -> None:
    (file,) = fio.read(text("fio/3.33-write-verify.json"))
    assert {result.parameters["operation"] for result in file.results} == {"write"}
    check = file.results[0].verification
    assert check is not None
    assert (check.method, check.bytes_checked, check.bytes_wrong) == ("fio verify=crc32c", 67108864, 0)


def test_a_checksum_error_of_fio_is_wrong_bytes() -> None:
    failed = text("fio/3.33-write-verify.json").replace('"error" : 0', '"error" : 84')
    check = fio.read(failed)[0].results[0].verification
    assert check is not None
    assert check.bytes_wrong == 1


def test_lines_around_fios_json_do_not_matter() -> None:
    around = "fio: this platform does not support process shared mutexes\n" + text("fio/3.33-randrw.json") + "\ndone\n"
    assert len(fio.read(around)[0].results) == 6


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ('"bw_bytes" : 110948468', '"bw_bytes" : 210948468', "bw_bytes 210948468 is not io_bytes 335286272"),
        ('"bw_bytes" : 110948468', '"bw_bytes" : -1', "negative"),
        ('"bw_bytes" : 110948468', '"bw_bytes" : NaN', "not a whole JSON file"),
        ('"fio-3.33"', '"fio-1.59"', "got '1.59'"),
        ('"fio-3.33"', '"fio-2.21"', "bw_bytes"),
    ],
)
def test_fio_json_that_contradicts_itself_is_refused(old: str, new: str, reason: str) -> None:
    whole = text("fio/3.33-randrw.json")
    assert old in whole
    with pytest.raises(UsageError) as refused:
        fio.read(whole.replace(old, new))
    assert reason in refused.value.message


def test_fio_json_that_was_cut_off_or_is_very_deep_is_refused() -> None:
    whole = text("fio/3.33-randrw.json")
    with pytest.raises(UsageError, match="not a whole JSON file"):
        fio.read(whole[: len(whole) // 2])
    deep = '{"fio version": "fio-3.33", "jobs": ' + "[" * 200_000 + "]" * 200_000 + "}"
    with pytest.raises(UsageError, match="not a whole JSON file"):
        fio.read(deep)
    with pytest.raises(UsageError, match="must contain a job that moved bytes"):
        fio.read(json.dumps({"fio version": "fio-3.33", "jobs": []}))


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ("1151MiB/s (1207MB/s)(", "1151GiB/s (1207MB/s)(", "the units were changed"),
        ("BW=1151MiB/s", "BW=9208Mibit/s", "must be in the format of fio 3"),
        ("99.00th=[16712]", "99.00th=[   12]", "latencies must rise"),
    ],
)
def test_fio_text_that_contradicts_itself_is_refused(old: str, new: str, reason: str) -> None:
    whole = text("fio/3.33-read.txt")
    assert old in whole
    with pytest.raises(UsageError) as refused:
        fio.read(whole.replace(old, new))
    assert reason in refused.value.message


def test_the_json_of_fio_2_has_kib_and_microseconds() -> None:
    (file,) = fio.read((THREADS / "179-fio-2.17-json-2-groups.txt").read_text(encoding="utf-8"))
    of_reads = [result for result in file.results if result.parameters["operation"] == "read"]
    told = {result.quantity: result.summary.median for result in of_reads if result.summary is not None}
    assert told["bandwidth_bytes_per_s"] == 129386 * 1024
    assert told["latency_s"] == pytest.approx(96e-6)
    assert of_reads[0].settings["moved_bytes"] == 1294256 * 1024


def test_every_pass_of_ior_is_a_bandwidth_in_mib_and_a_rate_of_operations() -> None:
    (file,) = registry.read(text("ior/4.1-10-hosts.txt"))
    assert (file.tool, file.version, file.ranks, file.hosts) == ("IOR", "4.1.0+dev", 160, 10)
    assert [value(one) for one in of(file)] == [1767.26 * 2**20, 1866.07 * 2**20]
    assert [one.parameters["operation"] for one in of(file)] == ["write", "read"]
    assert {one.parameters["size_bytes"] for one in of(file)} == {2**20}
    (tail,) = ior.read(text("ior/3.3-tail-small-transfers.txt"))
    assert [value(one) for one in of(tail)] == [4202 * 2**20, 5043 * 2**20]
    assert tail.results[0].parameters["size_bytes"] == 4096


def test_ior_before_3_3_has_two_columns_less() -> None:
    old = (
        "IOR-3.0.1: MPI Coordinated Test of Parallel I/O\n\tclients            = 4 (2 per node)\n"
        "\txfersize           = 2 MiB\n\taggregate filesize = 4 GiB\n\n"
        "access    bw(MiB/s)  block(KiB) xfer(KiB)  open(s)    wr/rd(s)   close(s)   total(s)   iter\n"
        "------    ---------  ---------- ---------  --------   --------   --------   --------   ----\n"
        "write     2048.0     1048576    2048.00    0.001      1.99       0.01       2.00       0   \n"
    )
    (file,) = ior.read(old)
    assert (file.ranks, file.hosts, value(of(file)[0])) == (4, None, 2**31)
    for several in (old * 2, old + old.partition("\n\n")[2]):
        assert [len(one.results) for one in ior.read(several)] == [1, 1]


def test_what_no_run_of_ior_and_mdtest_prints_is_refused() -> None:
    for reader, name, old, new, reason in (
        (ior, "ior/4.1-10-hosts.txt", "1767.26", "2767.26", "2767.26 MiB/s is not 42949672960 bytes in 23.18 s"),
        (ior, "ior/4.1-10-hosts.txt", "1866.07 ", "18.66.07", "no row|'18.66.07'"),
        (
            mdtest,
            "mdtest/5-iterations-2-hosts.txt",
            "8035.705",
            "9035.705",
            "the mean must be between .*, got 9035.705",
        ),
    ):
        with pytest.raises(UsageError, match=reason):
            reader.read(text(name).replace(old, new))


def test_mdtest_is_a_rate_of_each_operation() -> None:
    (file,) = registry.read(text("mdtest/5-iterations-2-hosts.txt"))
    assert (file.version, file.ranks, file.hosts) == ("3.3.0", 72, 2)
    rates = {str(one.parameters["operation"]): value(one) for one in file.results}
    assert rates["file creation"] == 8035.705
    assert rates["tree removal"] == 195.706
    assert len(rates) == 9


def test_sums_of_fios_groups_are_read_where_their_jobs_were_left_out() -> None:
    (file,) = registry.read((THREADS / "196-fio-mail-quoted-3-kernels.txt").read_text())
    assert len(file.results) == 6
    assert file.results[0].parameters == {"size_bytes": 4096, "operation": "read"}
    assert value(file.results[0]) == 54.5 * 2**20
    with pytest.raises(UsageError, match=r"54\.5MiB/s is not 77\.1MB/s"):
        fio.read((THREADS / "196-fio-mail-quoted-3-kernels.txt").read_text().replace("57.1MB/s)", "77.1MB/s)"))


def test_the_whole_output_of_fio_2_is_fio_2s_alone() -> None:
    """The sums of its groups are `aggrb=`, and its rates have another form of `bw=`."""
    (file,) = registry.read(
        "fio-2.17\nseq: (groupid=0, jobs=1): err= 0: pid=1: x\n"
        "  read : io=4096.0MB, bw=780190KB/s, iops=195047, runt=  5376msec\n\nRun status group 0 (all jobs):\n"
        "   READ: io=4096.0MB, aggrb=780190KB/s, minb=780190KB/s, maxb=780190KB/s, mint=5376msec, maxt=5376msec\n"
    )
    assert file.version == "2.17"
    assert value(of(file)[0]) == 780190 * 1024


def test_a_job_of_fio_is_read_without_the_line_of_its_version() -> None:
    for name, rate in (("203-fio-avocado-log.txt", 80.3e6), ("204-fio-zfs-details.txt", 53.8e6)):
        (file,) = registry.read((THREADS / name).read_text(encoding="utf-8"))
        assert value(file.results[0]) == pytest.approx(rate, rel=0.01)


def test_the_middle_of_a_run_of_fio_gives_the_mean_that_fio_sampled() -> None:
    (file,) = registry.read(
        "     | 99.99th=[ 8020]\n    bw (  KiB/s): min=9, max=200, per=100.00%, avg=116.50, stdev= 0.00, samples=4\n"
    )
    assert file.tool == "fio"
    assert value(file.results[0]) == 116.5 * 1024
    assert any("the text lacks the rate of the whole run" in note for note in file.notes)

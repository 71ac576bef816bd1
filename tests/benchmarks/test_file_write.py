"""Writes to the benchmark's own file: verified, with their wear planned, and without leftovers however they end."""

from __future__ import annotations

import errno
import itertools
import os
import re
import signal
import subprocess
from pathlib import Path
from types import SimpleNamespace

import pytest
from tests.benchmarks.jobs import job_of
from tests.conftest import Driver
from tests.expected.finders import Finder

from railwright.benchmarks import registry
from railwright.benchmarks.benchmark import AnyJob
from railwright.benchmarks.files import cpu_cost, direct_file, direct_io
from railwright.benchmarks.files import write as file_write
from railwright.errors import CannotJudge, UsageError
from railwright.limits.limit import Limit, NoLimit
from railwright.native.files import Extent, Pass
from railwright.results.records import Result, Verification
from railwright.results.statistics import summarise
from railwright.topology.expand import expand

MIB = 2**20
TINY = ("file-size=4M", "sizes=4K,1M", "passes=2", "large-depth=2")


def asked(*options: str) -> tuple[str, ...]:
    return tuple(word for text in options for word in ("-o", text))


def job(folder: Path | str = ".", **given: str) -> AnyJob:
    options = {"directory": str(folder), "file-size": "1M", "sizes": "4K", **given}
    return job_of(file_write.BENCHMARK, expand("laptop", {}), given=options)


@pytest.mark.parametrize("engine", ["io_uring", "threads"])
def test_writes_are_timed_and_verified_with_their_fsync_and_cpu_time(railwright: Driver, engine: str) -> None:
    done = railwright(
        "run", "file_write", "--force", *asked(*TINY, f"engine={engine}", "io-threads=1,2", "directory=.")
    )
    assert done.status == 3, done.err
    results = railwright.results()
    seen = {(r.quantity, *(r.parameters[key] for key in ("size_bytes", "threads", "operation"))) for r in results}
    rates = {4096: "operations_per_s", MIB: "bandwidth_bytes_per_s"}
    assert seen == {
        (quantity, size, threads, operation)
        for size, threads in itertools.product(rates, (1, 2))
        for quantity, operation in ((rates[size], "write"), ("latency_s", "write"), ("latency_s", "fsync"))
    }
    for one in results:
        assert one.outcome == "measured", one.reason
        assert one.path.startswith("memory0>")
        assert (one.verification.bytes_checked, one.verification.bytes_wrong) == (4 * MIB, 0)
        assert one.summary.minimum > 0
        assert one.summary.minimum <= one.summary.median <= one.summary.p99
        assert {e.claim: e.value for e in one.evidence} == {"engine": engine, "pages": "huge"}
        if one.quantity != "latency_s":
            assert 0 < one.settings["cpu_s_per_gb_minimum"] <= one.settings["cpu_s_per_gb"]
            assert one.settings["median_with_fsync"] < one.summary.median
        elif one.parameters["operation"] == "write":
            assert one.summary.count == 2 * 4 * MIB // one.parameters["size_bytes"]
        else:
            assert one.summary.count == 2
    assert [path for path in railwright.folder.iterdir() if path.name not in ("out", "tmp")] == []


def test_each_launch_writes_another_pattern(railwright: Driver) -> None:
    done = railwright("run", "file_write", "--force", "--launches", "2", *asked(*TINY, "sizes=1M", "fsync=no"))
    assert done.status == 3, done.err
    results = railwright.results()
    assert {one.parameters["operation"] for one in results} == {"write"}, "no fsync was asked for"
    assert len({one.settings["pattern_seed"] for one in results}) == 2
    assert all("median_with_fsync" not in one.settings for one in results)


def test_a_dry_run_prints_the_wear_and_writes_nothing(railwright: Driver) -> None:
    done = railwright("run", "file_write", "--dry-run", *asked("file-size=8M", "sizes=4K:1M:x4", "passes=3"))
    assert done.status == 0
    assert "writes a nameless file of 8 MiB in ., then overwrites it: 128 MiB written to the drive" in done.err
    assert [path.name for path in railwright.folder.iterdir()] == ["tmp"]


def test_the_planned_wear_is_what_the_drive_counts(railwright: Driver, tmp_path: Path) -> None:
    image, folder = tmp_path / "image", tmp_path / "mounted"
    with image.open("wb") as file:
        file.truncate(128 * MIB)
    folder.mkdir()
    found = subprocess.run(["losetup", "--find", "--show", str(image)], capture_output=True, text=True)
    if found.returncode:
        pytest.skip(f"waived: no loop device can be had here: {found.stderr.strip()}")
    device = found.stdout.strip()
    counter = Path("/sys/block", Path(device).name, "stat")
    try:
        subprocess.run(["mkfs.ext4", "-q", "-F", "-E", "lazy_itable_init=0,lazy_journal_init=0", device], check=True)
        subprocess.run(["mount", device, str(folder)], check=True)
        before = int(counter.read_text().split()[6])
        options = asked(f"directory={folder}", "file-size=8M", "sizes=4K,64K,1M", "passes=3")
        assert railwright("run", "file_write", "--force", *options).status == 3
        written = 512 * (int(counter.read_text().split()[6]) - before)
        assert list(folder.glob(".railwright*")) == []
    finally:
        subprocess.run(["umount", str(folder)], check=False, capture_output=True)
        subprocess.run(["losetup", "--detach", device], check=False)
    said = 8 * MIB * (1 + 3 * 3)
    assert said <= written <= said + 4 * MIB, "beside the data there is only the journal"


def test_prove_runs_no_write_benchmark(railwright: Driver) -> None:
    assert file_write.BENCHMARK not in registry.BENCHMARKS
    assert registry.find("file_write") is file_write.BENCHMARK
    assert "file_write" not in railwright("prove", "--dry-run", "-o", "file-size=8M").err


@pytest.mark.parametrize(
    ("options", "why"),
    [
        (("file-size=60T",), "free, the test file needs 60 TiB"),
        (("directory=no/such/folder",), "no/such/folder is not a folder"),
        (("sizes=1M", "file-size=512K"), "a write is larger than the test file of 512 KiB"),
        (("sizes=1000", "file-size=8M"), "direct writes must be multiples of 512 bytes"),
        (("sizes=1M", "file-size=8M", "io-threads=1,9"), "the 8 blocks of 1 MiB in the test file are not enough for 9"),
    ],
)
def test_impossible_writes_are_planned_as_waived_with_the_reason(options: tuple[str, ...], why: str) -> None:
    given = dict(option.split("=") for option in options)
    benchmark = file_write.BENCHMARK
    assert why in benchmark.plan(job_of(benchmark, expand("laptop", {}), given=given)).waived


def test_a_file_system_that_refuses_direct_files_is_a_waiver_and_keeps_none(small_disk) -> None:
    """Ramfs creates the file and then refuses O_DIRECT."""
    folder = small_disk("disk", kind="ramfs")
    rank = SimpleNamespace(job=job(folder), step=lambda _text: None)
    blank = Result(benchmark="file_write", quantity="bandwidth_bytes_per_s", path="memory0>drive?")
    (waived,) = direct_file.measure_test_file(rank, blank, lambda _fd: pytest.fail("there is nothing to measure"))
    assert waived.outcome == "waived"
    assert waived.reason == f"cannot create a test file with O_DIRECT in {folder}: Invalid argument"
    assert list(folder.iterdir()) == []


def test_a_read_only_folder_is_a_waiver(railwright: Driver, small_disk) -> None:
    disk = small_disk("disk", "size=80m", "ro")
    assert railwright("run", "file_write", "--force", *asked(f"directory={disk}", "file-size=4M")).status == 3
    (waived,) = railwright.results()
    assert (waived.outcome, waived.reason) == ("waived", f"{disk} cannot be written to")


@pytest.mark.parametrize("who", ["rank", "parent"])
def test_a_killed_run_leaves_no_file_and_gives_its_space_back(railwright: Driver, small_disk, who: str) -> None:
    disk = small_disk("disk", "size=256m")
    free = os.statvfs(disk).f_bavail
    options = asked(f"directory={disk}", "file-size=64M", "sizes=4K", "passes=1000")
    process = railwright.start("run", "file_write", "--force", *options)
    railwright.wait_until(lambda: os.statvfs(disk).f_bavail < free - 16_000 and railwright.rank(0), "the file")
    victim = railwright.rank(0).pid if who == "rank" else process.pid
    os.kill(victim, signal.SIGKILL)
    done = railwright.finish(process)
    if who == "rank":
        assert done.status == 3
        (failed,) = railwright.results()
        assert re.match(
            rf"rank 0 \(host \S+, pid {victim}\) at step '(writing the test|file_write 4 KiB)", failed.reason
        )
        assert failed.reason.endswith("local: killed by SIGKILL")
    railwright.wait_until(lambda: os.statvfs(disk).f_bavail == free, "all space given back")
    assert list(disk.iterdir()) == []


def test_a_disk_that_fills_up_after_the_plan_is_named(small_disk) -> None:
    disk = small_disk("disk", "size=80m")
    assert file_write.BENCHMARK.plan(job(disk, **{"file-size": "8M"})).waived == ""
    (disk / "hog").write_bytes(bytes(78 * MIB))
    full = pytest.raises(CannotJudge, match=r"writing the test file in .*: No space left on device")
    with full, direct_file.test_file(str(disk), 8 * MIB):
        pass
    assert [path.name for path in disk.iterdir()] == ["hog"]


def test_a_quota_is_named_with_the_kernel_s_message(tmp_path: Path, monkeypatch) -> None:
    """Raise the quota error in the kernel's place, because this kernel may not support quotas."""

    def refuse(*_: object) -> int:
        raise OSError(errno.EDQUOT, os.strerror(errno.EDQUOT))

    monkeypatch.setattr(os, "pwrite", refuse)
    over = pytest.raises(CannotJudge, match=r"writing the test file in .*: Disk quota exceeded")
    with over as caught, direct_file.test_file(str(tmp_path), MIB):
        pass
    assert "another directory" in caught.value.hint
    assert list(tmp_path.iterdir()) == []


def test_the_sweep_takes_only_empty_files_of_ours(tmp_path: Path) -> None:
    stranger = tmp_path / ".railwright-12"
    for name in (".railwright-11", ".railwright-12", ".railwright-notes", "other"):
        (tmp_path / name).touch()
    os.chown(stranger, 65534, 65534)
    (tmp_path / ".railwright-13").write_text("somebody's")
    (tmp_path / ".railwright-14").symlink_to(tmp_path / "other")
    (tmp_path / ".railwright-15").mkdir()
    direct_file.sweep(str(tmp_path))
    left = {path.name for path in tmp_path.iterdir()}
    assert left == {*(f".railwright-{end}" for end in ("12", "13", "14", "15", "notes")), "other"}


def test_the_sweep_takes_a_full_file_only_from_a_process_that_is_gone(tmp_path: Path) -> None:
    gone, alive = tmp_path / f".railwright-test-file-{2**22 + 1}", tmp_path / ".railwright-test-file-1"
    for path in (gone, alive):
        path.write_text("data")
    direct_file.sweep(str(tmp_path))
    assert [path.name for path in tmp_path.iterdir()] == [alive.name]


def test_a_nameless_file_has_a_name_only_as_long_as_it_is_asked_for(tmp_path: Path) -> None:
    with direct_file.test_file(str(tmp_path), MIB) as fd:
        with direct_file.reopen_named(fd, str(tmp_path)) as named:
            assert len(list(tmp_path.iterdir())) == 1
            assert os.fstat(named).st_ino == os.fstat(fd).st_ino
        assert os.fstat(named).st_nlink == 0
        os.close(named)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("depth", "1,0", "file_write depth: must be a whole number from 1 to 4096, got '0'"),
        ("io-threads", "257", "file_write io-threads: must be a whole number from 1 to 256, got '257'"),
        ("io-threads", "two", "must be a whole number"),
        ("depth", ",".join(map(str, range(1, 18))), "at most 16 values are allowed, got 17"),
        ("passes", "1001", "must be a whole number from 1 to 1000"),
        ("order", "backwards", "backwards"),
        ("fsync", "maybe", "maybe"),
    ],
)
def test_invalid_options_are_refused_with_the_value_seen(name: str, value: str, message: str) -> None:
    with pytest.raises(UsageError) as caught:
        file_write.BENCHMARK.parse({name: value})
    assert message in caught.value.message


def test_points_are_every_combination_with_the_depth_of_their_size() -> None:
    given = job(sizes="4K,64K", depth="1,32", order="random,sequential", pages="small,huge", **{
        "large-depth": "4", "io-threads": "1,2"}).options  # fmt: skip
    points = direct_io.list_points(given, given.pages)
    assert len(points) == len(set(points)) == 2 * 2 * 2 + 2 * 2 * 2
    assert {(one.size_bytes, one.depth, one.pages) for one in points} == {
        (4096, 1, "small"), (4096, 32, "small"), (65536, 4, "small"), (65536, 4, "huge")}  # fmt: skip
    assert direct_io.memory_bytes(points) == 4 * MIB + 65536 * 4 * 2


@pytest.mark.parametrize("order", ["random", "sequential"])
@pytest.mark.parametrize("size", [4096, 12288])
def test_an_order_has_every_whole_block_of_every_extent_once(order: str, size: int) -> None:
    extents = (Extent(0, 8192, 40960), Extent(40960, 4 * MIB, 4096), Extent(45056, MIB, 36864))
    offsets, positions = direct_io.order_blocks(extents, size, order)
    whole = [(one.physical + at, one.logical + at) for one in extents for at in range(0, one.length - size + 1, size)]
    assert sorted(zip(offsets, positions, strict=True)) == sorted(whole)
    assert (list(zip(offsets, positions, strict=True)) == whole) == (order == "sequential")


def test_a_pass_over_a_huge_file_is_bounded_and_covers_all_of_it() -> None:
    """64 TiB have 16 billion blocks of 4 KiB, which must be drawn without listing them."""
    offsets, _ = direct_io.order_blocks((Extent(0, 0, 64 * 2**40),), 4096, "random")
    assert len(set(offsets)) == 65_536
    assert min(offsets) < 2**40 < 63 * 2**40 < max(offsets)


def test_cpu_seconds_are_given_by_gb_with_the_kernel_s_own_beside_them() -> None:
    passes = [Pass(1.0, [], 0, cpu_s=seconds) for seconds in (0.5, 1.0, 3.0)]
    settings = cpu_cost.cpu_settings(passes, 2 * 10**9, 0.6)
    assert [settings[f"cpu_s_per_gb{end}"] for end in ("", "_minimum", "_maximum")] == [0.5, 0.25, 1.5]
    assert settings["kernel_threads_cpu_s_per_gb"] == 0.1
    assert "no kernel thread" in cpu_cost.cpu_settings(passes, 10**9, None)["kernel_threads_cpu_s_per_gb"]


def test_kernel_threads_are_recognised_by_their_flag_and_their_ticks_are_added(tmp_path: Path) -> None:
    def put(pid: int, name: str, flags: int, user: int, system: int) -> None:
        (tmp_path / str(pid)).mkdir()
        fields = f"{pid} ({name}) S 2 0 0 0 -1 {flags} 0 0 0 0 {user} {system} 0 0 20 0 1 0 9 0"
        (tmp_path / str(pid) / "stat").write_text(fields)

    assert cpu_cost.kernel_threads_cpu_s(tmp_path) is None
    put(1, "init", 0x400000, 500, 500)
    assert cpu_cost.kernel_threads_cpu_s(tmp_path) is None, "a container sees no kernel thread"
    put(7, "kworker/0:1) R (", 0x04208060, 3, 40)
    put(8, "jbd2/vda-8", 0x00208040, 0, 7)
    (tmp_path / "9").mkdir()
    (tmp_path / "self").mkdir()
    assert cpu_cost.kernel_threads_cpu_s(tmp_path) == 50 / os.sysconf("SC_CLK_TCK")


def test_a_drive_s_link_bounds_its_writes_and_nothing_is_expected_of_them() -> None:
    topology = expand("laptop", {})
    drive = "nvme0n1"
    finder = Finder(topology, ())
    limit, expected = finder.find("file_write", "bandwidth_bytes_per_s", f"memory0>{drive}", {"size_bytes": MIB})
    assert isinstance(limit, Limit)
    assert limit.kind == "derived"
    assert "PCIe" in limit.because
    assert "only an upper limit" in limit.because
    assert expected is None
    for quantity in ("latency_s", "operations_per_s"):
        none, _ = finder.find("file_write", quantity, f"memory0>{drive}", {"size_bytes": 4096})
        assert isinstance(none, NoLimit)
        assert "only read, not written" in none.why


def test_what_the_raw_device_reads_is_no_ceiling_for_writes() -> None:
    topology = expand("laptop", {})
    drive = "nvme0n1"
    parameters = {"size_bytes": MIB, "depth": 4}
    path = f"memory0>{drive}"
    raw = Result(
        benchmark="device_read", quantity="bandwidth_bytes_per_s", path=path, parameters=parameters,
        summary=summarise([1e9]), verification=Verification(method="m", bytes_checked=1, bytes_wrong=0),
    )  # fmt: skip
    finder = Finder(topology, [raw])
    limit, _ = finder.find("file_write", "bandwidth_bytes_per_s", path, parameters)
    assert isinstance(limit, Limit)
    assert limit.value > 1.5e9

"""Ranks on one mount: verified, timed until the first and the last are done, and without leftovers however they end."""

from __future__ import annotations

import os
import platform
import signal
from pathlib import Path
from types import SimpleNamespace

import pytest
from tests.benchmarks.jobs import job_of
from tests.expected.finders import Finder

from railwright.benchmarks.files import shared, shared_folder
from railwright.benchmarks.files.shared_folder import sweep
from railwright.benchmarks.registry import BENCHMARKS, find
from railwright.errors import CannotJudge, UsageError
from railwright.limits.limit import Limit, NoLimit
from railwright.native.library import NativeError
from railwright.native.tree import OPERATIONS, Files, walk
from railwright.topology.expand import expand

SHARED = find("shared_storage")
TINY = {"large-size": "256K", "block": "64K", "small-files": "5", "small-size": "100", "direct": "no", "passes": "2"}
GONE = 2**22 + 1
"""The id of a process that cannot exist: above the largest pid_max."""


class Alone:
    """The communicator of a single rank."""

    def bcast(self, value):
        return value

    def allgather(self, value):
        return [value]

    def Barrier(self):  # noqa: N802 - MPI's name
        pass


@pytest.fixture
def measure(tmp_path, monkeypatch):
    """Return the results of one rank in this process."""

    def run(folder: Path = tmp_path, **given):
        options = TINY | {"directory": str(folder)} | {key.replace("_", "-"): value for key, value in given.items()}
        job = job_of(SHARED, expand("laptop", {}), given=options)
        assert not SHARED.plan(job).waived, SHARED.plan(job).waived
        rank = SimpleNamespace(job=job, step=lambda _text: None, comm=Alone(), index=0, size=1)
        monkeypatch.setenv(shared_folder.LAUNCH_VARIABLE, job.launch.environment[shared_folder.LAUNCH_VARIABLE])
        return list(SHARED.run(rank))

    return run


@pytest.fixture
def folder(tmp_path):
    fd = os.open(tmp_path, os.O_RDONLY | os.O_DIRECTORY)
    yield fd
    os.close(fd)


def test_every_phase_of_both_kinds_has_rates_and_latencies(measure, tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("the user's")
    results = measure()
    seen = {(one.parameters["files"], one.parameters["operation"], one.quantity) for one in results}
    bandwidths = {("large", operation, "bandwidth_bytes_per_s") for operation in ("write", "read")}
    operations = {("large", operation, "operations_per_s") for operation in ("stat", "delete")}
    operations |= {("small", operation, "operations_per_s") for operation in shared.PHASES}
    latencies = {(kind, operation, "latency_s") for kind in shared.KINDS for operation in shared.PHASES}
    assert seen == bandwidths | operations | latencies
    for one in results:
        assert one.outcome == "measured", one.reason
        if one.quantity != "latency_s":
            assert len(one.samples) == 2
            assert one.settings[f"rate_of_{platform.node()}"] == pytest.approx(one.summary.median)
            assert one.settings["rate_to_first_done"] == pytest.approx(one.summary.median), "there is one rank"
        if one.parameters["operation"] == "read":
            size = 256 * 1024 if one.parameters["files"] == "large" else 500
            assert (one.verification.bytes_checked, one.verification.bytes_wrong) == (2 * size, 0)
            assert one.path == "pagecache>memory0"
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]


def test_stat_and_check_compare_sizes_and_bytes(folder: int, tmp_path: Path) -> None:
    for files in (Files(3, 1001, 100), Files(3, 4096, 4096), Files(4, 0, 4096), Files(1, 70_000, 65_536)):
        for operation in OPERATIONS:
            done = walk(folder, operation, files, 7)
            assert len(done.ends_s) == files.operations(operation)
            assert done.ends_s == sorted(done.ends_s)
            assert done.wrong_bytes == 0, (files, operation)
        assert list(tmp_path.iterdir()) == []


def test_one_wrong_byte_a_stale_file_and_another_size_are_seen(folder: int, tmp_path: Path) -> None:
    files = Files(3, 8192, 4096)
    walk(folder, "write", files, 7)
    data = bytearray((tmp_path / "f1").read_bytes())
    data[5000] ^= 1
    (tmp_path / "f1").write_bytes(data)
    assert walk(folder, "check", files, 7).wrong_bytes == 1
    assert walk(folder, "check", files, 8).wrong_bytes > 20_000, "of another pass"
    data[5000] ^= 1
    (tmp_path / "f1").write_bytes((tmp_path / "f2").read_bytes())
    assert walk(folder, "check", files, 7).wrong_bytes > 0, "another file's bytes"
    with (tmp_path / "f2").open("ab") as file:
        file.write(b"more")
    assert walk(folder, "stat", files, 7).wrong_bytes == 4
    with (tmp_path / "f2").open("r+b") as file:
        file.truncate(5000)
    with pytest.raises(NativeError, match="read of file f2: it ends too early"):
        walk(folder, "read", files, 7)


def test_a_sparse_file_is_not_taken_for_the_one_that_was_written(folder: int, tmp_path: Path) -> None:
    files = Files(1, 65_536, 4096)
    walk(folder, "write", files, 7)
    os.truncate(tmp_path / "f0", 0)
    os.truncate(tmp_path / "f0", 65_536)
    assert walk(folder, "stat", files, 7).wrong_bytes == 0
    assert walk(folder, "check", files, 7).wrong_bytes > 60_000


def test_no_file_is_ever_overwritten_nor_a_link_followed(folder: int, tmp_path: Path) -> None:
    (tmp_path / "f1").write_text("the user's")
    with pytest.raises(NativeError, match="write of file f1: File exists"):
        walk(folder, "write", Files(3, 100, 4096), 7)
    assert (tmp_path / "f1").read_text() == "the user's"
    (tmp_path / "f0").unlink()
    (tmp_path / "f0").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(NativeError, match="write of file f0"):
        walk(folder, "write", Files(1, 100, 4096), 7)
    with pytest.raises(NativeError, match="read of file f0: Too many levels of symbolic links"):
        walk(folder, "read", Files(1, 100, 4096), 7)
    assert not (tmp_path / "elsewhere").exists()


def test_wrong_bytes_fail_the_record(measure, monkeypatch) -> None:
    real = shared.walk

    def wrong(folder, operation, files, seed):
        done = real(folder, operation, files, seed)
        return done._replace(wrong_bytes=3) if operation == "check" else done

    monkeypatch.setattr(shared, "walk", wrong)
    reads = [one for one in measure(files="large") if one.parameters["operation"] == "read"]
    assert {one.outcome for one in reads} == {"failed"}
    assert reads[0].reason == "6 wrong bytes on rank 0"


def test_an_error_in_any_phase_names_host_and_file_and_leaves_nothing(measure, monkeypatch, tmp_path: Path) -> None:
    real = shared.walk

    def full(folder, operation, files, seed):
        if operation == "read":
            raise NativeError("read of file f3", 5, "Input/output error")
        return real(folder, operation, files, seed)

    monkeypatch.setattr(shared, "walk", full)
    with pytest.raises(CannotJudge) as caught:
        measure()
    assert caught.value.message == f"{tmp_path} on {platform.node()}: read of file f3: Input/output error"
    assert list(tmp_path.iterdir()) == []


def test_a_file_system_without_direct_files_is_a_waiver(measure, monkeypatch, tmp_path: Path) -> None:
    real = os.open

    def refuse(path, flags, *more, **named):
        if flags & os.O_DIRECT:
            raise OSError(22, "Invalid argument")
        return real(path, flags, *more, **named)

    monkeypatch.setattr(os, "open", refuse)
    (waived,) = measure(direct="yes", large_size="256K", small_size="4K")
    assert (waived.outcome, waived.reason) == ("waived", f"{tmp_path} takes no direct files: Invalid argument")
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_another_rank_does_not_see_is_no_shared_mount(tmp_path: Path) -> None:
    with pytest.raises(CannotJudge, match=r"is not shared: .* does not see the first rank's folder there"):
        shared_folder._make_rank_folder(tmp_path / "no" / "rank1", tmp_path / "no", [])


def test_the_sweep_takes_only_folders_of_ours_whose_process_is_gone(tmp_path: Path) -> None:
    host, token = shared_folder._host_label(), "0" * 16
    left = tmp_path / f".railwright-shared-{host}-{GONE}-{token}"
    others = [
        f".railwright-shared-{host}-1-{token}",
        f".railwright-shared-elsewhere-{GONE}-{token}",
        f".railwright-shared-{host}-{GONE}-xyz",
    ]
    for name in (left.name, *others):
        (tmp_path / name / "rank0").mkdir(parents=True)
        (tmp_path / name / "rank0/f0").touch()
    mine = tmp_path / f".railwright-shared-{host}-{GONE}-{'1' * 16}"
    (mine / "rank0").mkdir(parents=True)
    (mine / "rank0/notes").write_text("somebody's")
    sweep(str(tmp_path))
    assert {path.name for path in tmp_path.iterdir()} == {*others, mine.name}
    assert (mine / "rank0/notes").read_text() == "somebody's"


def test_impossible_options_are_planned_as_waived_with_the_reason(tmp_path: Path) -> None:
    for given, why in (
        ({"directory": "no/such"}, "no/such is not a folder"),
        ({"large-size": "40T", "ranks": "8"}, "free, the test file needs 320 TiB"),
        ({"direct": "yes", "small-size": "100"}, "multiples of 512 bytes, got 100: give direct=no"),
        ({"direct": "yes", "block": "1000", "small-size": "4K"}, "multiples of 512 bytes, got 1000"),
    ):
        plan = SHARED.plan(job_of(SHARED, expand("laptop", {}), given=TINY | {"directory": str(tmp_path)} | given))
        assert why in plan.waived, given
    plan = SHARED.plan(job_of(SHARED, expand("laptop", {}), given=TINY | {"directory": str(tmp_path), "ranks": "4"}))
    assert "for each of 4 ranks: 1 of 256 KiB, 5 of 100 B; 2 times, " in plan.files[0]
    assert SHARED not in BENCHMARKS, "it writes"


def test_a_cluster_file_gives_the_limit_and_names_what_binds(tmp_path: Path) -> None:
    file = tmp_path / "cluster.toml"

    def bounds(text: str, quantity="bandwidth_bytes_per_s"):
        file.write_text(text)
        options = SHARED.parse({"cluster": str(file)})
        return Finder(expand("laptop", {}), ()).find(
            "shared_storage", quantity, "memory0@0>dev0:1", {}, shared._describe_servers(options)
        )

    server = '[storage]\nservers = {}\nhost = "oci-bm-gpu4-8"\n'
    limit, band = bounds('hosts = 3\nhost = "oci-bm-gpu4-8"\n' + server.format(3))
    assert isinstance(limit, Limit)
    assert limit.value == pytest.approx(86.2e9, rel=0.01), "twelve drives"
    assert limit.because.startswith("12 drives of the servers")
    assert band.low == pytest.approx(0.9 * limit.value)
    limit, _ = bounds('hosts = 1\nhost = "hgx-h100 nics=1"\n' + server.format(30))
    assert "of the client" in limit.because.split(",")[0]
    limit, _ = bounds('hosts = 3\nhost = "oci-bm-gpu4-8"\n')
    assert limit.because.startswith("4 drives"), "one host and its own drives"
    assert isinstance(bounds('hosts = 3\nhost = "oci-bm-gpu4-8"\n', "operations_per_s")[0], NoLimit)
    for text, why in (
        ('hosts = 2\nhost = "saved.json"\n', "must name a shape, got 'saved.json'"),
        ("x", "not a cluster file"),
    ):
        with pytest.raises(UsageError, match=why):
            bounds(text)


def test_a_record_with_invalid_servers_has_no_limit() -> None:
    finder = Finder(expand("laptop", {}), ())
    for settings in (
        {},
        {"client_host": 5},
        {"client_host": "hgx-h100", "storage_servers": -1},
        {"client_host": "hgx-h100", "storage_servers": 10**30},
        {"client_host": "hgx-h100", "storage_servers": 2},
        {"client_host": "no-such-shape", "storage_servers": 0},
        {"client_host": "hgx-h100 nics=many", "storage_servers": 0},
    ):
        limit, band = finder.find("shared_storage", "bandwidth_bytes_per_s", "memory0>vda", {}, settings)
        assert (type(limit), band) == (NoLimit, None), settings


@pytest.mark.machine
@pytest.mark.parametrize("who", ["rank", "parent"])
def test_a_run_that_is_ended_leaves_nothing(railwright, small_disk, who: str) -> None:
    disk = small_disk("disk", "size=128m")
    given = [word for key, value in (TINY | {"directory": str(disk)}).items() for word in ("-o", f"{key}={value}")]
    process = railwright.start("run", "shared_storage", "--force", *given, "-o", "passes=1000")
    railwright.wait_until(lambda: list(disk.glob(".railwright-shared-*/rank1/f*")), "files")
    os.kill(
        process.pid if who == "parent" else railwright.rank(0).pid,
        signal.SIGTERM if who == "parent" else signal.SIGKILL,
    )
    railwright.finish(process)
    assert list(disk.iterdir()) == []


@pytest.mark.machine
def test_ranks_share_a_mount(railwright, small_disk) -> None:
    disk = small_disk("disk", "size=128m")
    given = [word for key, value in (TINY | {"directory": str(disk)}).items() for word in ("-o", f"{key}={value}")]
    assert railwright("run", "shared_storage", "--force", *given, "-o", "ranks=2").status == 3
    rates = [one for one in railwright.results() if one.quantity != "latency_s"]
    assert {one.outcome for one in rates} == {"measured"}, rates[0].reason
    for one in rates:
        assert one.ranks == 2
        assert one.settings["first_done_s"] <= one.settings["last_done_s"]
    assert list(disk.iterdir()) == []

"""Samples in HDF5 files: generated or the user's, read by every reader, delivered at a pace, and checked."""
# ruff: noqa: F811 - a fixture of another module is imported, and is an argument

from __future__ import annotations

import contextlib
import os
import re
import signal
import time
from pathlib import Path
from types import SimpleNamespace

import h5py
import numpy as np
import pytest
from tests.benchmarks.jobs import jobs_of
from tests.benchmarks.test_gpu_file import SILENCE_S, SITE, two_gpus  # noqa: F401 - a fixture
from tests.benchmarks.test_shared_storage import Alone
from tests.stand_ins import environment, stand_ins  # noqa: F401 - a fixture

from railwright.benchmarks.files import shared_folder
from railwright.benchmarks.registry import BENCHMARKS, find
from railwright.benchmarks.samples import hdf5_files, readers
from railwright.benchmarks.samples.pipeline import Consumer, deliver
from railwright.errors import CannotJudge, UsageError
from railwright.launch.local import LocalLauncher
from railwright.launch.session import PlannedLaunch, Session
from railwright.topology.expand import expand
from railwright.units import GIB

DEEPCAM = find("deepcam_read")
SMALL = {
    "shape": "16x24x16", "samples": "5", "pace": "500", "passes": "2", "reader": "h5py,direct", "cache": "hot",
    "io-threads": "2", "block": "8K",
}  # fmt: skip
SAMPLE_BYTES = 16 * 24 * 16 * 4


@pytest.fixture
def measure(tmp_path, monkeypatch):
    """Run all launches with one rank in this process, whose CPUs stay unchanged, and return all results."""
    before = os.sched_getaffinity(0)

    def run(**given):
        options = {"directory": str(tmp_path)} | SMALL | {key.replace("_", "-"): value for key, value in given.items()}
        found = []
        for job in jobs_of(DEEPCAM, expand("laptop", {}), tuple(sorted(before)), options):
            plan = DEEPCAM.plan(job)
            if plan.waived:
                raise CannotJudge(plan.waived)
            monkeypatch.setenv(shared_folder.LAUNCH_VARIABLE, job.launch.environment[shared_folder.LAUNCH_VARIABLE])
            rank = SimpleNamespace(job=job, step=lambda _text: None, comm=Alone(), index=0, size=1)
            found += list(DEEPCAM.run(rank))
        return found

    yield run
    os.sched_setaffinity(0, before)


def of(results, **parameters):
    return [one for one in results if parameters.items() <= one.parameters.items()]


def test_both_readers_are_measured_in_bytes_and_samples_alone_and_at_a_pace(measure, tmp_path: Path) -> None:
    results = measure()
    assert {one.outcome for one in results} == {"measured"}, [one.reason for one in results]
    for reader in ("h5py", "direct"):
        read, read_samples, delivered, samples = of(results, reader=reader)
        assert (read.path == "pagecache>memory0") == (reader == "h5py")
        assert [one.parameters["part"] for one in (read, read_samples)] == ["read", "read"]
        assert (delivered.parameters["part"], delivered.parameters["pace"]) == ("delivered", 500.0)
        assert delivered.parameters["prefetch"] == 2
        for rate, counted in ((read, read_samples), (delivered, samples)):
            assert (rate.quantity, counted.quantity) == ("bandwidth_bytes_per_s", "operations_per_s")
            assert counted.parameters["counted"] == "samples"
            for mine, other in zip(rate.samples, counted.samples, strict=True):
                assert mine / other == pytest.approx(SAMPLE_BYTES)
            assert rate.settings["gib_per_s"] * GIB == pytest.approx(rate.settings["samples_per_s"] * SAMPLE_BYTES), (
                "GB/s and GiB/s are named apart"
            )
            assert rate.verification.bytes_wrong == 0
            # All samples once, and what lay in the three slots behind each of two passes.
            assert rate.verification.bytes_checked == (5 + 2 * 3) * SAMPLE_BYTES
        assert max(samples.samples) <= 501, "the consumer has each sample for 2 ms"
        assert {seen.claim for seen in delivered.evidence} >= {"waiting"}
    assert list(tmp_path.iterdir()) == [], "nothing is left"


def test_a_slow_consumer_lets_the_reader_wait_and_a_slow_reader_starves_it() -> None:
    class Reader:
        def __init__(self, seconds: float) -> None:
            self.seconds = seconds

        def read(self, sample, slot):
            time.sleep(self.seconds)

    slow = deliver(Reader(0.05), range(5), 3, lambda *_, was_ready: None)
    assert slow.starved_s > slow.full_s
    quick = deliver(Reader(0), range(5), 3, Consumer(10))
    assert quick.full_s > quick.starved_s, "three samples ahead, it waits for the other two"


def test_an_error_of_the_reader_reaches_the_consumer() -> None:
    class Broken:
        def read(self, sample, slot):
            if sample == 2:
                raise CannotJudge("the third is broken")

    with pytest.raises(CannotJudge, match="the third is broken"):
        deliver(Broken(), range(5), 2, lambda *_, was_ready: None)


@pytest.mark.parametrize("reader", ["h5py", "direct"])
def test_a_wrong_byte_is_counted(measure, monkeypatch, reader: str) -> None:
    kind = readers.LibraryReader if reader == "h5py" else readers.DirectReader
    read = kind.read

    def wrong(self, sample, slot):
        read(self, sample, slot)
        self._views[slot][5000] ^= 1

    monkeypatch.setattr(kind, "read", wrong)
    assert {one.verification.bytes_wrong for one in measure(reader=reader)} == {5 + 2 * 3}


def written(path: Path, values: np.ndarray | None = None, name: str = "climate/data", **more: object) -> np.ndarray:
    data = np.random.default_rng(path.stem.encode()[0]).random((8, 12, 16), np.float32) if values is None else values
    with h5py.File(path, "w") as file:
        file.attrs["before"] = "x" * 100  # so that the data begins within a block
        file.create_dataset(name, data=data, **more)
    return data


@pytest.fixture
def mine(tmp_path) -> Path:
    folder = tmp_path / "mine"
    folder.mkdir()
    for number in range(4):
        written(folder / f"{number}.h5")
    (folder / "notes.txt").write_text("no sample")
    return folder


def test_the_user_s_files_are_only_read_wherever_their_data_begins(measure, mine: Path) -> None:
    before = {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in mine.iterdir()}
    results = measure(files=str(mine), samples="3")
    assert {one.outcome for one in results} == {"measured"}, [one.reason for one in results]
    assert {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in mine.iterdir()} == before
    for one in results:
        assert (one.settings["samples"], one.settings["sample_bytes"]) == (3, 8 * 12 * 16 * 4)
        assert one.verification.bytes_wrong == 0
        assert "CRC-32" in one.verification.method


def test_a_wrong_sample_of_the_user_s_is_detected(measure, monkeypatch, mine: Path) -> None:
    read = readers.DirectReader.read

    def wrong(self, sample, slot):
        read(self, sample, slot)
        self._views[slot][sample.at % 4096] ^= 1

    monkeypatch.setattr(readers.DirectReader, "read", wrong)
    assert {one.verification.bytes_wrong > 0 for one in measure(files=str(mine), reader="direct")} == {True}


def test_compressed_samples_are_read_by_h5py_alone(measure, tmp_path: Path) -> None:
    folder = tmp_path / "packed"
    folder.mkdir()
    for number in range(2):
        written(folder / f"{number}.hdf5", chunks=(4, 12, 16), compression="gzip")
    by_h5py, direct = measure(files=str(folder), reader="h5py"), measure(files=str(folder), reader="direct")
    assert {one.outcome for one in by_h5py} == {"measured"}
    (waived,) = direct
    assert waived.outcome == "waived"
    assert "lies in chunks, which only h5py puts together" in waived.reason


def spoilt(folder: Path, what: str) -> None:
    """Write a file that contradicts its own metadata."""
    path = folder / "0.h5"
    match what:
        case "cut":
            os.truncate(path, path.stat().st_size - 1000)
        case "text":
            path.write_text("no HDF5")
        case "other type":
            written(path, np.zeros((8, 12, 16), np.float64))
        case "group":
            written(path, name="climate/data/deeper")
        case "empty":
            written(path, np.zeros((0, 4), np.float32))
        case "strings":
            with h5py.File(path, "w") as file:
                file.create_dataset("climate/data", data=["a", "bc"], dtype=h5py.string_dtype())
        case "never written":
            with h5py.File(path, "w") as file:
                file.create_dataset("climate/data", shape=(8, 12, 16), dtype="f4")
        case "external":
            with h5py.File(path, "w") as file:
                file.create_dataset("climate/data", shape=(4,), dtype="f4", external=[("/etc/passwd", 0, 16)])
        case "linked":
            with h5py.File(path, "w") as file:
                file["climate/data"] = h5py.ExternalLink("1.h5", "climate/data")
        case "virtual":
            with h5py.File(path, "w") as file:
                layout = h5py.VirtualLayout(shape=(8, 12, 16), dtype="f4")
                layout[:] = h5py.VirtualSource(folder / "1.h5", "climate/data", shape=(8, 12, 16))
                file.create_virtual_dataset("climate/data", layout)


@pytest.mark.parametrize(
    ("what", "why"),
    [
        ("cut", "truncated file|is cut off"),
        ("text", "cannot be read"),
        ("other type", "samples of one kind are needed"),
        ("group", "has no dataset 'climate/data'"),
        ("empty", "has no values of a fixed size"),
        ("strings", "has no values of a fixed size"),
        ("never written", "was never written"),
        ("external", "lies in other files"),
        ("linked", "lies in other files"),
        ("virtual", "lies in other files"),
    ],
)
def test_files_that_are_broken_or_lead_elsewhere_are_named(measure, mine: Path, what: str, why: str) -> None:
    spoilt(mine, what)
    (waived,) = measure(files=str(mine), reader="h5py")
    assert waived.outcome == "waived"
    assert re.search(why, waived.reason), waived.reason
    assert str(mine) in waived.reason


def test_a_folder_without_samples_and_a_missing_folder_are_named(measure, tmp_path: Path) -> None:
    (tmp_path / "none").mkdir()
    (waived,) = measure(files=str(tmp_path / "none"), reader="h5py")
    assert waived.reason == f"{tmp_path / 'none'} has no HDF5 file"
    with pytest.raises(CannotJudge, match="is not a folder"):
        measure(files=str(tmp_path / "gone"))


def test_a_missing_dataset_is_named(measure, mine: Path) -> None:
    (waived,) = measure(files=str(mine), reader="h5py", dataset="temperature")
    assert waived.reason == f"{mine / '0.h5'} has no dataset 'temperature'"


@pytest.mark.parametrize(
    ("option", "value"),
    [("shape", "768x"), ("shape", "0x5"), ("shape", "99999x99999"), ("pace", "0"), ("pace", "nan"), ("reader", "dali")],
)
def test_an_option_that_cannot_be_used_is_refused(option: str, value: str) -> None:
    with pytest.raises(UsageError):
        DEEPCAM.parse({option: value})


def test_it_runs_on_request_only() -> None:
    assert "deepcam_read" not in {benchmark.name for benchmark in BENCHMARKS}


@pytest.fixture
def on_a_gpu(stand_ins, two_gpus, tmp_path):
    """Run all launches on a GPU of a recorded machine, over stand-ins for CUDA and cuFile."""
    site, folder = tmp_path / "site", tmp_path / "files"
    for one in (site, folder):
        one.mkdir()
    (site / "sitecustomize.py").write_text(SITE)
    addresses = [gpu.address for gpu in two_gpus.of_kind("gpu")]

    def run(faults=None, **options):
        given = SMALL | {"directory": str(folder)} | {key.replace("_", "-"): value for key, value in options.items()}
        variables = os.environ | environment(stand_ins, *addresses) | {"PYTHONPATH": str(site)} | (faults or {})
        found = []
        for job in jobs_of(DEEPCAM, two_gpus, tuple(sorted(os.sched_getaffinity(0))), given):
            planned = PlannedLaunch(DEEPCAM, job, DEEPCAM.plan(job))
            assert not planned.plan.waived
            found.extend(Session(planned, LocalLauncher(), variables, SILENCE_S).results())
        assert list(folder.iterdir()) == [], "a file was left behind"
        return found

    return run


@pytest.mark.parametrize("block", ["8K", "20K"])
def test_samples_reach_a_gpu_by_both_ways_and_every_byte_is_checked(on_a_gpu, block: str) -> None:
    """Blocks of 20 KiB leave a partial block of each sample."""
    results = on_a_gpu({"STANDIN_CUFILE_ROUTE": "nvfs"}, reader="bounce,gds", block=block)
    assert {one.outcome for one in results} == {"measured"}, [one.reason for one in results]
    for reader, route in (("bounce", "pinned buffers"), ("gds", "nvidia-fs")):
        found = of(results, reader=reader)
        assert len(found) == 4
        for one in found:
            assert one.path.endswith(">gpu0")
            assert one.evidence[0].value == route
            assert (one.verification.bytes_wrong, one.verification.bytes_checked) == (0, (5 + 2 * 3) * SAMPLE_BYTES)


def test_the_user_s_samples_reach_a_gpu_from_where_they_begin(on_a_gpu, mine: Path) -> None:
    results = on_a_gpu({"STANDIN_CUFILE_ROUTE": "nvfs"}, reader="bounce,gds", files=str(mine), block="4K")
    assert {one.outcome for one in results} == {"measured"}, [one.reason for one in results]
    assert {one.verification.bytes_wrong for one in results} == {0}


def test_wrong_data_on_the_gpu_is_counted_and_a_way_that_cufile_did_not_go_is_failed(on_a_gpu) -> None:
    wrong = on_a_gpu({"STANDIN_CUDA_CORRUPT": "1"}, reader="bounce")
    assert all(one.verification.bytes_wrong > 0 for one in wrong)
    elsewhere = on_a_gpu({"STANDIN_CUFILE_ROUTE": "nvfs", "STANDIN_CUFILE_FALLS_BACK": "1"}, reader="gds")
    assert {one.outcome for one in elsewhere} == {"failed"}
    assert elsewhere[0].reason.startswith("gds was requested, but cuFile counted")
    (waived,) = on_a_gpu(reader="gds")
    assert waived.outcome == "waived"
    assert "the nvidia-fs driver is not loaded" in waived.reason


@pytest.mark.machine
def test_ranks_read_samples_of_their_own(railwright, tmp_path: Path) -> None:
    given = SMALL | {"directory": str(tmp_path / "d"), "ranks": "2", "pace": "100", "reader": "direct"}
    (tmp_path / "d").mkdir()
    words = [word for key, value in given.items() for word in ("-o", f"{key}={value}")]
    done = railwright("run", "deepcam_read", "--force", *words)
    assert done.status in (0, 3), done.err  # a busy host makes the rates meaningless
    found = railwright.results("deepcam_read")
    assert {(one.ranks, one.settings["samples"]) for one in found} == {(2, 10)}
    assert list((tmp_path / "d").iterdir()) == []


@pytest.mark.machine
def test_a_run_that_is_ended_leaves_nothing(railwright, tmp_path: Path) -> None:
    folder = tmp_path / "d"
    folder.mkdir()
    given = SMALL | {"directory": str(folder), "ranks": "2", "pace": "1", "reader": "h5py", "passes": "1000"}
    words = [word for key, value in given.items() for word in ("-o", f"{key}={value}")]
    process = railwright.start("run", "deepcam_read", "--force", *words)
    railwright.wait_until(lambda: list(folder.glob(".railwright-shared-*/rank1/f4")), "files")
    with contextlib.suppress(ProcessLookupError):
        os.kill(railwright.rank(0).pid, signal.SIGKILL)
    railwright.finish(process)
    assert list(folder.iterdir()) == []


def test_views_of_a_buffer_are_its_own_bytes() -> None:
    with hdf5_files.Buffer(4096) as buffer:
        hdf5_files.view(buffer, 100, 8)[:] = 7
        assert buffer.count_wrong(0, 8, start=100) == 8

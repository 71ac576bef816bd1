"""Tables in files: generated, fetched, decoded and checked; truncated and inconsistent files; a mount that never
answers.
"""
# ruff: noqa: F811 - a fixture of another module is imported, and is an argument

from __future__ import annotations

import errno
import importlib.util
import os
from pathlib import Path
from types import SimpleNamespace

import pyarrow as pa
import pytest
from pyarrow import parquet
from tests.benchmarks.jobs import job_of, jobs_of
from tests.stand_ins import environment, stand_ins  # noqa: F401 - a fixture
from tests.topology.machines import archive

from railwright.benchmarks.files import cached, direct_file
from railwright.benchmarks.registry import BENCHMARKS, find
from railwright.benchmarks.tables import arrow_files, making
from railwright.benchmarks.tables.options import COMPRESSIONS, TYPES, TableCase
from railwright.errors import CannotJudge, UsageError
from railwright.installation import find_installation
from railwright.launch.local import LocalLauncher
from railwright.launch.session import PlannedLaunch, Session
from railwright.native import page_cache
from railwright.topology.expand import expand
from railwright.topology.sources.load import load

PARQUET_READ = find("parquet_read")
SMALL = {"size": "256K", "row-group": "1000", "passes": "2", "cache": "hot", "threads": "1", "io-threads": "2"}


@pytest.fixture
def measure(tmp_path):
    """Run all launches in this process, whose CPUs stay unchanged, and return all results."""
    before = os.sched_getaffinity(0)

    def run(**given):
        options = {"directory": str(tmp_path)} | SMALL | {key.replace("_", "-"): value for key, value in given.items()}
        found = []
        for job in jobs_of(PARQUET_READ, expand("laptop", {}), tuple(sorted(before)), options):
            plan = PARQUET_READ.plan(job)
            assert not plan.waived, plan.waived
            found += list(PARQUET_READ.run(SimpleNamespace(job=job, step=lambda _text: None)))
        return found

    yield run
    os.sched_setaffinity(0, before)


def written(path: Path, form: str = "parquet", compression: str = "none", rows: int = 3000, **more: int) -> pa.Table:
    table = making.make(rows, TYPES, len(TYPES), **{"cardinality": 0, "run_length": 1} | more)
    case = TableCase(reader="pyarrow", format=form, compression=compression, row_group=1000)
    making.write(table, str(path), case)
    return table


def test_every_type_comes_back_from_both_formats_in_every_compression(tmp_path: Path) -> None:
    for form in ("parquet", "orc"):
        for compression in COMPRESSIONS:
            for shape in ({}, {"cardinality": 7, "run_length": 32}):
                path = tmp_path / form
                table = written(path, form, compression, **shape)
                what = arrow_files.layout(str(path), "it", ())
                assert (what.format, what.rows) == (form, 3000)
                assert arrow_files.compare_tables(arrow_files.read_independently(str(path), "it", what), table)[1] == 0
                assert what.encoded_bytes <= path.stat().st_size
                expected = table.num_rows * making.row_bytes(TYPES, len(TYPES))
                assert table.nbytes == pytest.approx(expected, rel=0.01)


def test_cardinality_and_run_length_are_what_was_asked_for() -> None:
    table = making.make(1000, ("int64", "string"), 2, cardinality=10, run_length=4)
    for column in table.columns:
        values = column.to_pylist()
        assert 1 < len(set(values)) <= 10
        assert all(len(set(values[at : at + 4])) == 1 for at in range(0, 1000, 4))
    assert len(set(making.make(1000, ("int64",), 1, cardinality=0, run_length=1)["c0"].to_pylist())) == 1000


def test_fetching_decoding_and_both_are_separate_results_in_both_kinds_of_bytes(measure, tmp_path: Path) -> None:
    for form in ("parquet", "orc"):
        results = measure(format=form, compression="zstd", cardinality="100")
        assert {one.outcome for one in results} == {"measured"}
        by_part = {(one.parameters["part"], one.parameters["bytes"]): one for one in results}
        assert set(by_part) == {
            ("fetch", "encoded"), ("both", "encoded"), ("both", "in memory"), ("decode", "in memory"),
        }  # fmt: skip
        both = by_part["both", "in memory"]
        ratio = both.settings["in_memory_bytes"] / both.settings["encoded_bytes"]
        assert ratio > 2, "a hundred values compress well"
        for mine, encoded in zip(both.samples, by_part["both", "encoded"].samples, strict=True):
            assert mine / encoded == pytest.approx(ratio)
        slower = "fetching" if both.settings["fetch_s"] > both.settings["decode_s"] else "decoding"
        assert both.settings["binds"] == slower
        assert both.path == "pagecache>memory0"
        assert by_part["decode", "in memory"].path == "memory0>memory0"
        for one in results:
            assert one.verification.bytes_checked > 200_000
            assert one.verification.bytes_wrong == 0
            assert len(one.samples) == 2
            assert one.parameters["format"] == form
        assert both.evidence[0].value == "hot"
    assert list(tmp_path.iterdir()) == [], "nothing is left"


def test_a_wrong_value_is_counted(tmp_path: Path) -> None:
    table = written(tmp_path / "one", rows=100)
    other = table.set_column(0, "c0", making.make(100, ("int32",), 2, cardinality=3, run_length=1)["c1"])
    assert arrow_files.compare_tables(other, table) == (table.nbytes, table["c0"].nbytes)
    assert arrow_files.compare_tables(table.slice(1), table)[1] == table.nbytes
    assert arrow_files.compare_tables(table.select(["c1"]), table)[1] == table.nbytes


def test_a_file_of_the_user_s_is_only_read_and_only_the_columns_that_were_asked_for(measure, tmp_path: Path) -> None:
    mine = tmp_path / "mine.parquet"
    table = written(mine)
    before = (mine.read_bytes(), mine.stat().st_mtime_ns)
    results = measure(file=str(mine), read="c1,c8")
    assert (mine.read_bytes(), mine.stat().st_mtime_ns) == before
    assert list(tmp_path.iterdir()) == [mine]
    for one in results:
        assert one.settings["columns"] == 2
        assert one.settings["encoded_bytes"] < len(before[0]) / 2
        own = table.select(["c1", "c8"]).nbytes
        assert own <= one.verification.bytes_checked < 1.1 * own, "pyarrow adds a bit for each value"
        assert "compression" not in one.parameters
    with pytest.raises(CannotJudge, match="has no column 'c99'"):
        measure(file=str(mine), read="c99")


def test_files_that_are_cut_off_broken_or_of_another_kind_are_named(measure, tmp_path: Path) -> None:
    whole = tmp_path / "whole"
    written(whole)
    data = whole.read_bytes()
    middle = bytearray(data)
    middle[2000:2100] = bytes(100)
    cases = {
        "cut": (data[:-100], "cannot be read"),
        "head": (data[:6000], "cannot be read"),
        "tail": (data[6000:], "is neither a Parquet nor an ORC file"),
        "text": (b"a,b\n1,2\n", "is neither a Parquet nor an ORC file"),
        "orc": (b"ORC" + bytes(500), "cannot be read"),
        "middle": (bytes(middle), "cannot be read"),
    }
    for name, (content, why) in cases.items():
        bad = tmp_path / name
        bad.write_bytes(content)
        with pytest.raises(CannotJudge) as caught:
            measure(file=str(bad))
        assert str(bad) in caught.value.message, name
        assert why in caught.value.message, name


def chunk(start: int, length: int, memory: int = 8) -> SimpleNamespace:
    return SimpleNamespace(
        dictionary_page_offset=None,
        data_page_offset=start,
        total_compressed_size=length,
        total_uncompressed_size=memory,
    )


@pytest.mark.parametrize(
    ("rows", "group_rows", "at", "why"),
    [
        (5, 4, (4, 10), "has an inconsistent number of rows: 5 in all, 4 in its row groups"),
        (-1, -1, (4, 10), "has an inconsistent number of rows"),
        (5, 5, (4, 10**12), "is inconsistent or truncated: a column has 1000000000000 bytes at 4 of"),
        (5, 5, (2, 10), "is inconsistent or truncated"),
        (5, 5, (4, -3), "is inconsistent or truncated"),
    ],
)
def test_a_file_with_false_metadata_is_refused_before_it_is_read(
    tmp_path: Path, monkeypatch, rows: int, group_rows: int, at: tuple[int, int], why: str
) -> None:
    path = tmp_path / "it"
    parquet.write_table(pa.table({"c0": [1, 2, 3, 4, 5]}), path)
    true = parquet.read_metadata(path)
    group = SimpleNamespace(num_rows=group_rows, column=lambda _index: chunk(*at))
    said = SimpleNamespace(
        schema=true.schema, num_columns=1, num_row_groups=1, num_rows=rows, row_group=lambda _number: group
    )
    monkeypatch.setattr(parquet, "read_metadata", lambda _path: said)
    with pytest.raises(CannotJudge) as caught:
        arrow_files.layout(str(path), "it", ())
    assert why in caught.value.message


def test_a_table_that_says_it_is_larger_than_memory_is_never_decoded() -> None:
    what = arrow_files.Layout("parquet", 10**12, ("c0",), ((4, 100),), least_bytes=8 * 10**12)
    with pytest.raises(CannotJudge, match=r"needs at least .* in memory according to its metadata; 1 GiB is free"):
        arrow_files.check_room("it", what, 2**30)
    arrow_files.check_room("it", what, None)


def test_neighbours_are_fetched_together_and_large_ranges_in_pieces() -> None:
    what = arrow_files.Layout("parquet", 1, (), ((4, 70 * 2**20),), 0)
    assert [length for _, length in what.pieces] == [32 * 2**20, 32 * 2**20, 6 * 2**20]
    assert list(arrow_files._merge_ranges([(4, 10), (14, 6), (8000, 5), (90000, 1)])) == [(4, 8001), (90000, 1)]
    assert list(arrow_files._merge_ranges([])) == []


def test_the_page_cache_of_a_file_is_seen_and_let_go(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(bytes(1 << 20))
    with path.open("rb") as file:
        assert page_cache.resident_bytes(file.fileno()) == 1 << 20
        page_cache.drop(file.fileno())
        assert page_cache.resident_bytes(file.fileno()) in (0, 1 << 20), "tmpfs keeps all, others nothing"
    assert page_cache.resident_bytes(os.open(os.devnull, os.O_RDONLY)) == 0


def test_a_file_that_cannot_be_made_cold_waives_the_cold_reads_alone(measure, monkeypatch) -> None:
    """Imitates tmpfs, since not every test's folder is on it."""
    monkeypatch.setattr(page_cache, "drop", lambda _fd: None)
    results = measure(cache="cold,hot")
    waived = [one for one in results if one.outcome == "waived"]
    assert [one.parameters["cache"] for one in waived] == ["cold"]
    assert "the test file cannot be made cold: " in waived[0].reason
    assert {one.parameters.get("cache") for one in results if one.outcome == "measured"} == {"hot", None}


def test_cold_reads_come_from_the_drive(measure, monkeypatch) -> None:
    monkeypatch.setattr(page_cache, "resident_bytes", lambda _fd: 0)
    results = measure(cache="cold")
    (path,) = {one.path for one in results if one.parameters["part"] != "decode"}
    assert path.partition(">")[0] == direct_file.find_device(expand("laptop", {}), str(Path.cwd()))
    assert path.partition(">")[2] == "memory0"
    assert {one.evidence[0].value for one in results if one.evidence} == {"cold"}


def test_a_file_that_shrinks_while_it_is_fetched_is_named(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(bytes(1000))
    with path.open("r+b") as file:
        cached_file = cached.CachedFile(file.fileno(), "it")
        file.truncate(600)
        ends = pytest.raises(CannotJudge, match="it ends at byte 600, but had 1000 bytes")
        with cached.Fetcher(cached_file, ((0, 500), (500, 500)), 2) as fetcher, ends:
            fetcher.seconds()


def test_a_full_disk_is_named_with_the_kernel_s_words(measure, monkeypatch, tmp_path: Path) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "Error writing bytes to file. Detail: [errno 28] No space left on device")

    monkeypatch.setattr(making.parquet, "write_table", refuse)
    with pytest.raises(CannotJudge, match=r"writing the test file: .*No space left on device"):
        measure()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"file": "no/such.parquet"}, "no/such.parquet is not a file, or is empty"),
        ({"directory": "no/such/folder"}, "no/such/folder is not a folder"),
        ({"size": "60T"}, "free, the test file needs 60 TiB"),
        ({"reader": "cudf"}, "cudf is not installed: "),
    ],
)
def test_files_that_cannot_be_read_or_made_are_planned_as_waived(given: dict[str, str], why: str) -> None:
    assert why in PARQUET_READ.plan(job_of(PARQUET_READ, expand("laptop", {}), given=given)).waived


def test_without_pyarrow_the_extra_is_named(monkeypatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda _name: None)
    plan = PARQUET_READ.plan(job_of(PARQUET_READ, expand("laptop", {})))
    assert plan.waived == f"pyarrow is not installed: {find_installation().add_extra('tables')}"


def test_invalid_options_are_refused() -> None:
    for name, value, message in (
        ("threads", "0", "must be a whole number from 1 to 1024, got '0'"),
        ("cardinality", "few", "must be a whole number"),
        ("types", "int65", "int65"),
        ("read", "c0,,c1", "invalid name of a column: ''"),
        ("compression", "zip", "zip"),
    ):
        with pytest.raises(UsageError) as caught:
            PARQUET_READ.parse({name: value})
        assert message in caught.value.message
    options = PARQUET_READ.parse({"threads": "cores,2", "cardinality": "all,10", "read": "c1, c0"})
    assert (options.threads, options.cardinality, options.read) == ((0, 2), (0, 10), ("c1", "c0"))
    assert PARQUET_READ not in BENCHMARKS, "it is on request"


CUDF = '''
"""A stand-in for cuDF: pyarrow reads, and the environment is the one that cuDF would get."""
import io, os
import pyarrow as pa
from pyarrow import orc, parquet
__version__ = "0 (stand-in)"
class Sum(int):
    def sum(self): return int(self)
class Frame:
    def __init__(self, table): self.table = table
    def to_arrow(self, preserve_index): return self.table
    def memory_usage(self, index, deep): return Sum(self.table.nbytes)
def source(given):
    gds = os.environ["KVIKIO_COMPAT_MODE"] == "OFF" and os.environ["LIBCUDF_CUFILE_POLICY"] == "GDS"
    # by a mapping, as by GPUDirect Storage, no byte is read by a system call
    return pa.memory_map(given) if gds and isinstance(given, str) else given
def read_parquet(given, columns):
    return Frame(parquet.ParquetFile(source(given)).read(columns))
def read_orc(given): return Frame(orc.ORCFile(source(given)).read())
'''


@pytest.mark.machine
def test_cudf_reads_with_gpudirect_storage_and_without(stand_ins, tmp_path: Path, monkeypatch) -> None:
    machine = load(str(archive("2xh200-firecracker-vm")))
    (tmp_path / "site").mkdir()
    (tmp_path / "site/cudf.py").write_text(CUDF)
    monkeypatch.syspath_prepend(tmp_path / "site")
    addresses = [gpu.address for gpu in machine.of_kind("gpu")]
    variables = os.environ | environment(stand_ins, *addresses) | {"PYTHONPATH": str(tmp_path / "site")}
    given = SMALL | {"directory": str(tmp_path), "reader": "cudf,cudf gds"}
    routes = {}
    for job in jobs_of(PARQUET_READ, machine, tuple(sorted(os.sched_getaffinity(0))), given):
        planned = PlannedLaunch(PARQUET_READ, job, PARQUET_READ.plan(job))
        assert not planned.plan.waived
        results = list(Session(planned, LocalLauncher(), variables, 120.0).results())
        assert {one.outcome for one in results} == {"measured"}, [one.reason for one in results]
        assert {one.path for one in results} == {"pagecache>gpu0", "memory0>gpu0"}
        assert results[0].settings["software"] == "cudf 0 (stand-in)"
        routes[job.case.reader] = {e.value for one in results for e in one.evidence if e.claim == "route"}
    assert routes == {"cudf": {"host memory"}, "cudf gds": {"not by system calls"}}

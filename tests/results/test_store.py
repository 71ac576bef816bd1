"""Results on disk: whole records or none, the previous run is kept, and every record type is read back unchanged."""

from __future__ import annotations

import json
import re

import msgspec
import pytest

from railwright.errors import UsageError
from railwright.results.records import Context, End, Evidence, Noise, Result, Run, Verification
from railwright.results.statistics import summarise
from railwright.results.store import StoreFull, Writer, load
from railwright.topology.expand import expand

RUN = Run(
    railwright="9.9",
    started_at="2026-01-02T03:04:05+00:00",
    command=("railwright", "prove", "--é"),
    context=Context(
        host="h\u2028ost",
        kernel="k",
        environment={"UCX_TLS": "tcp"},
        noise=Noise(quantum_s=1e-6, lost_fraction=0.1, worst_s=1e-3, quanta=10),
    ),
    topology=expand("hgx-h100", {}),
)
FULL = Result(
    benchmark="mpi_latency",
    quantity="latency_s",
    path="memory0>memory0",
    outcome="measured",
    method="a method",
    parameters={"size_bytes": 8, "transport": "shm", "flag": True, "share": 0.5},
    settings={"iterations": 10_000},
    launch=2,
    ranks=2,
    hosts=3,
    samples=(1e-6, 1.0000001e-6, 3e-300),
    summary=summarise([1e-6, 1.0000001e-6, 3e-300]),
    verification=Verification(method="m", bytes_checked=2**63, bytes_wrong=1),
    evidence=(Evidence(claim="transport", value="shm", seen="a\nline"),),
)
WAIVED = Result(benchmark="kv_transfer", quantity="latency_s", path="a>b", outcome="waived", reason="no NIXL")
END = End(finished_at="later", interrupted="interrupted by Ctrl-C", counters_moved={"net.lo.tx_bytes": 2**40})


def written(folder, *records, run=RUN):
    writer = Writer(folder, run)
    for record in records:
        writer.append(record)
    writer.close()
    return folder / "results.jsonl"


def test_every_record_comes_back_as_it_was(tmp_path):
    path = written(tmp_path, FULL, WAIVED, END)
    for where in (path, tmp_path):
        file = load(where)
        assert file.run == RUN
        assert file.results == (FULL, WAIVED)
        assert file.end == END


def test_a_file_is_one_json_object_a_line_with_its_version(tmp_path):
    lines = written(tmp_path, FULL, END).read_bytes().splitlines()
    assert [json.loads(line)["record"] for line in lines] == ["run", "result", "end"]
    assert json.loads(lines[0])["schema_version"] == 4


def test_records_are_on_disk_as_soon_as_they_are_appended(tmp_path):
    writer = Writer(tmp_path, RUN)
    assert load(tmp_path).results == ()
    writer.append(FULL)
    assert load(tmp_path).results == (FULL,)
    assert load(tmp_path).end is None
    writer.close()


def test_the_previous_results_are_kept_and_only_they(tmp_path):
    for version in ("1", "2", "3"):
        written(tmp_path, WAIVED, run=msgspec.structs.replace(RUN, railwright=version))
    assert load(tmp_path).run.railwright == "3"
    assert load(tmp_path / "results.previous.jsonl").run.railwright == "2"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["results.jsonl", "results.previous.jsonl"]


def test_a_record_that_does_not_fit_leaves_no_part_of_itself(tmp_path, small_disk):
    disk = small_disk("disk", "size=64k")
    writer = Writer(disk, RUN)
    large = msgspec.structs.replace(FULL, samples=(1.25,) * 20_000)
    writer.append(WAIVED)
    before = (disk / "results.jsonl").read_bytes()
    with pytest.raises(StoreFull, match="No space left on device") as caught:
        writer.append(large)
    assert "all results so far are kept" in caught.value.hint
    assert (disk / "results.jsonl").read_bytes() == before
    writer.append(END)  # a small record still fits, at the place of the large one
    writer.close()
    assert load(disk).results == (WAIVED,)
    assert load(disk).end == END


def test_a_run_that_does_not_fit_costs_the_previous_results_nothing(tmp_path, small_disk):
    disk = small_disk("disk", "size=128k")
    before = written(disk, WAIVED).read_bytes()
    large = msgspec.structs.replace(RUN, command=("x" * 200_000,))
    for _ in range(2):
        with pytest.raises(UsageError, match=r"cannot write results to .*: No space left on device"):
            Writer(disk, large)
    assert [path.name for path in disk.iterdir()] == ["results.jsonl"]
    assert (disk / "results.jsonl").read_bytes() == before


@pytest.mark.parametrize("cut", [1, 2, 40, 200])
def test_a_last_line_that_was_cut_off_is_left_out(tmp_path, cut):
    path = written(tmp_path, WAIVED, FULL)
    whole = path.read_bytes()
    path.write_bytes(whole[:-cut])
    file = load(path)
    assert file.results == ((WAIVED, FULL) if cut == 1 else (WAIVED,))
    assert file.end is None


def test_an_empty_folder_is_no_results(tmp_path):
    with pytest.raises(UsageError, match=r"cannot read .*No such file"):
        load(tmp_path)


def test_a_summary_that_no_samples_have_is_refused_with_its_line(tmp_path):
    wrong = msgspec.structs.replace(FULL, summary=msgspec.structs.replace(FULL.summary, median=1e308))
    path = written(tmp_path, WAIVED, wrong)
    with pytest.raises(
        UsageError, match=r"line 3 is not a possible measurement: the median of its summary, 1e\+308, is above"
    ):
        load(path)


def changed(result=FULL, **changes):
    return msgspec.structs.replace(result, **changes)


def of_summary(**changes):
    return changed(summary=msgspec.structs.replace(FULL.summary, **changes))


IMPOSSIBLE = {
    "ranks is -1": changed(ranks=-1),
    "hosts is 0": changed(hosts=0),
    "launch is -2": changed(launch=-2),
    "parameter size_bytes is -8": changed(parameters={"size_bytes": -8}),
    "setting iterations is -5": changed(settings={"iterations": -5}),
    "its data check counts -7 bytes": changed(verification=Verification(method="m", bytes_checked=-7, bytes_wrong=0)),
    "its data check reports 9 wrong bytes of 8": changed(
        verification=Verification(method="m", bytes_checked=8, bytes_wrong=9)
    ),
    "ranks must be at most 10000000, got 1000000000000000": changed(ranks=10**15),
    "every sample must be a finite number of at most 1e+30": changed(samples=(1e-6, 1e-6, 1e308)),
    "parameter size_bytes is above 1e+30": changed(parameters={"size_bytes": 1e308}),
    "a value must be at least zero, got -1": changed(samples=(-1.0, 1e-6, 1e-6)),
    "a value must be at least zero, got -3e-300": of_summary(minimum=-3e-300),
    "its summary counts 4 samples, but it has 3": of_summary(count=4),
    "the median of its summary is 9e-07, but its samples give 1e-06": of_summary(median=9e-7),
    "it has 3 samples and no summary": changed(summary=None),
    "it has a summary but no samples": changed(samples=()),
    "it is a waived result with a summary": changed(outcome="waived"),
    "samples from 3e-300 to 1 are outside": changed(
        samples=(3e-300, 1.0),
        settings={"samples_kept": "1 of 2"},
        summary=msgspec.structs.replace(FULL.summary, count=9),
    ),
    "counter nic0 is -1": End(finished_at="now", counters_moved={"nic0": -1}),
}


@pytest.mark.parametrize(("why", "record"), IMPOSSIBLE.items(), ids=IMPOSSIBLE)
def test_a_record_that_no_measurement_leaves_is_refused_with_its_line(tmp_path, why, record):
    path = written(tmp_path, WAIVED, record)
    with pytest.raises(UsageError, match="line 3 is not a possible measurement: " + re.escape(why)):
        load(path)


def test_a_run_on_a_machine_that_cannot_be_is_refused(tmp_path):
    first = RUN.topology.devices[0]
    twice = msgspec.structs.replace(RUN.topology, devices=(first, *RUN.topology.devices))
    path = written(tmp_path, WAIVED, run=msgspec.structs.replace(RUN, topology=twice))
    with pytest.raises(UsageError, match="two devices are called host0"):
        load(path)
    busy = msgspec.structs.replace(RUN.context, busy_fraction=1.5)
    path = written(tmp_path, WAIVED, run=msgspec.structs.replace(RUN, context=busy))
    with pytest.raises(UsageError, match=r"line 1 is not a possible measurement: busy_fraction is 1\.5, above 1"):
        load(path)


def test_a_part_of_the_samples_and_a_difference_below_zero_are_possible(tmp_path):
    some = changed(samples=(1e-6,), settings={"samples_kept": "1 of 3"})
    below = (-1e-6, 1e-6, 2e-6)
    exposed = changed(samples=below, summary=summarise(below), parameters={"part": "exposed"})
    assert load(written(tmp_path, some, exposed)).results == (some, exposed)


def test_a_file_without_its_first_line_says_so(tmp_path):
    path = written(tmp_path, WAIVED, END)
    path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[1:]))
    with pytest.raises(UsageError, match="must begin with a `run` record"):
        load(path)


CONTRADICTIONS = {
    "must hold one run, got two": (FULL, RUN, END),
    "got the same samples of mpi_latency memory0>memory0 of launch 2 twice": (FULL, WAIVED, FULL, END),
    "got a `end` in line 4 after it": (FULL, END, msgspec.structs.replace(END, interrupted="")),
    "got a `result` in line 4 after it": (FULL, END, WAIVED),
}


@pytest.mark.parametrize(("why", "records"), CONTRADICTIONS.items(), ids=CONTRADICTIONS)
def test_records_that_contradict_each_other_are_refused(tmp_path, why, records):
    with pytest.raises(UsageError, match=re.escape(why)):
        load(written(tmp_path, *records))


def test_the_mark_of_lost_records_may_follow_an_end(tmp_path):
    whole = msgspec.structs.replace(END, interrupted="")
    assert load(written(tmp_path, FULL, whole, END)).end == END


@pytest.mark.parametrize("line", [b'{"record":"result","benchmark":"\xff"}', b"[" * 100_000, b'{"record":' * 50_000])
def test_a_line_that_is_no_record_is_refused_with_its_number(tmp_path, line):
    path = written(tmp_path, FULL)
    path.write_bytes(path.read_bytes() + line + b"\n")
    with pytest.raises(UsageError, match="line 3 is not a valid record"):
        load(path)

"""A recording is an Arrow stream that other programs read, and is complete up to the point where it was cut."""

from __future__ import annotations

import contextlib
from pathlib import Path

import nanoarrow as na
import pytest

from railwright.errors import UsageError
from railwright.native.sampler import Row
from railwright.sampling.recording import Recording, new_about, read_recording
from railwright.sampling.sources import Source

SOURCES = [
    Source(name="net.eth0.rx", kind="network", unit="bytes", scale=1, path="/proc/net/dev", key="eth0:"),
    Source(name="cpu.user", kind="processor", unit="s", scale=0.01, path="/proc/stat", key="cpu"),
]


def recorded(file: Path, batches: int) -> Recording:
    recording = Recording(new_about(SOURCES, {"power": "denied"}, "this machine", 0.01, ["a", "b"]), file)
    with recording:
        for batch in range(batches):
            first = 100 * batch
            recording.add([Row(0.01 * at, [1000 * at, at if at % 2 else None]) for at in range(first, first + 100)])
    return recording


def test_what_is_read_back_is_what_was_recorded(tmp_path: Path) -> None:
    recording = recorded(tmp_path / "a.arrows", 3)
    found = read_recording(tmp_path / "a.arrows")
    assert found.about == recording.about
    assert found.times_s == recording.times_s
    assert [str(one) for one in found.moved] == [str(one) for one in recording.moved]
    assert found.moved[0][5] == 1000
    assert found.moved[1][5] == pytest.approx(0.02)
    assert found.cut == ""


def test_others_read_it_as_an_arrow_stream(tmp_path: Path) -> None:
    recorded(tmp_path / "a.arrows", 2)
    with (tmp_path / "a.arrows").open("rb") as stream:
        rows = na.ArrayStream.from_readable(stream).read_all().to_pylist()
    assert len(rows) == 200
    assert rows[5] == {"at_s": 0.05, "net.eth0.rx": 1000, "cpu.user": pytest.approx(0.02)}
    assert rows[6]["cpu.user"] is None


def test_an_interrupted_recording_is_whole_up_to_its_last_batch(tmp_path: Path) -> None:
    recorded(tmp_path / "three.arrows", 3)
    recorded(tmp_path / "four.arrows", 4)
    whole = (tmp_path / "four.arrows").read_bytes()
    three = (tmp_path / "three.arrows").stat().st_size - 8  # without the mark of the end
    cut = tmp_path / "cut.arrows"
    for kept, rows, is_cut in ((len(whole) - 8, 400, False), (len(whole) - 9, 300, True), (three + 100, 300, True)):
        cut.write_bytes(whole[:kept])
        found = read_recording(cut)
        assert len(found.times_s) == rows
        assert ("middle of a batch" in found.cut) == is_cut


def test_an_hour_of_eight_gpus_and_nics_at_100_hz_is_below_100_mb(tmp_path: Path) -> None:
    """56 columns: both directions of eight NICs, RDMA ports and NVLinks, and eight for CPUs and drives."""
    sources = [Source(name=f"s{number}", kind="network", unit="bytes", scale=1, path="/x") for number in range(56)]
    with Recording(new_about(sources, {}, "", 0.01, []), tmp_path / "a.arrows") as recording:
        recording.add([])
        before = (tmp_path / "a.arrows").stat().st_size
        recording.add([Row(0.01 * at, [10**8 * at] * 56) for at in range(100)])
        second = (tmp_path / "a.arrows").stat().st_size - before
    assert (before + 3600 * second) / 1e6 < 100


def test_what_is_no_recording_is_refused_with_its_cause(tmp_path: Path) -> None:
    file = tmp_path / "a.arrows"
    for content in (b"", b"hello", bytes(4096), b"\xff" * 4096):
        file.write_bytes(content)
        with pytest.raises(UsageError, match="is not a recording of railwright watch"):
            read_recording(file)
    recorded(file, 1)
    content = bytearray(file.read_bytes())
    for at in range(0, len(content), 37):  # garbage is an error or a recording, never a crash
        changed = bytearray(content)
        changed[at] ^= 0xFF
        file.write_bytes(changed)
        with contextlib.suppress(UsageError):
            read_recording(file)


def test_another_stream_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "a.arrows"
    with na.ipc.StreamWriter.from_path(file) as writer:
        writer.write_array(na.c_array_from_buffers(na.struct({"a": na.int32()}), 2, [None],
                                                   children=[na.c_array([1, 2], na.int32())]))  # fmt: skip
    with pytest.raises(UsageError, match="is not a recording"):
        read_recording(file)


def test_a_counter_that_was_reset_counts_from_there() -> None:
    recording = Recording(new_about(SOURCES[:1], {}, "", 0.01, []), None)
    recording.add([Row(0.0, [10]), Row(1.0, [15]), Row(2.0, [3]), Row(3.0, [7])])
    assert str(list(recording.moved[0])) == "[nan, 5.0, nan, 4.0]"


def test_gauges_are_what_they_tell_and_what_is_read_seldom_takes_little_room(tmp_path: Path) -> None:
    file = tmp_path / "a.arrows"
    gauge = Source(name="gpu0.power", kind="gpu", unit="W", scale=1e-3, path="nvml", field=2, gauge=True)
    seldom = [
        Source(name=f"gpu0.{name}", kind="gpu", unit="Hz", scale=1e6, path="nvml", field=3, gauge=True, seldom=True)
        for name in ("clock", "other")
    ]
    about = new_about([SOURCES[0], gauge, *seldom], {}, "", 0.01, [])
    with Recording(about, file) as recording:
        rows = [[at, 70_000 + at, *((1980, None) if at % 100 == 0 else (None, None))] for at in range(300)]
        recording.add([Row(0.01 * at, row) for at, row in enumerate(rows)])
    found = read_recording(file)
    assert [str(one) for one in found.moved] == [str(one) for one in recording.moved]
    assert found.moved[1][7] == pytest.approx(70.007)
    assert [at for at, value in enumerate(found.moved[2]) if value == value] == [0, 100, 200]
    assert found.moved[2][100] == pytest.approx(1.98e9)
    with file.open("rb") as stream:
        others = na.ArrayStream.from_readable(stream).read_all().to_pylist()
    assert (len(others[0]["seldom"]), others[1]["seldom"]) == (2, [])

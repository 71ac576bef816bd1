"""A job on this machine is watched from outside, from its start to the page."""

from __future__ import annotations

import ctypes
import fcntl
import json
import os
import pty
import select
import subprocess
import sys
import termios
from pathlib import Path

import pytest
from tests.conftest import wait_until
from tests.schemas import fits

from railwright.diagnosis.iterations.simulate import parse_job, simulate_job
from railwright.native.sampler import Row, Sampler
from railwright.sampling.recording import Recording, new_about, read_recording
from railwright.sampling.sources import Source
from railwright.watch.cost import measure_cost

pytestmark = pytest.mark.machine


def a_recording(file: Path) -> None:
    """Build the recording that a sampler would write for a simulated job."""
    truth = simulate_job(
        parse_job(["period=0.5", "noise=0", "seconds=20", "compute=0.6", "communication=0.4", "exposed=0.3", "seed=3"])
    )
    sources = [
        Source(name="cpu.user", kind="processor", unit="s", scale=1e-6, path="/proc/stat"),
        Source(name="net.<b>eth0.tx", kind="network", unit="bytes", scale=1, path="/proc/net/dev"),
    ]
    totals, before = [0.0, 0.0], 0.0
    with Recording(new_about(sources, {"power": "denied"}, "this <machine>", 0.01, []), file) as recording:
        rows = [Row(0.0, [0, 0])]
        for at, compute, traffic in zip(
            truth.curves[0].ends_s, truth.curves[0].values, truth.curves[1].values, strict=True
        ):
            totals[0] += compute * (at - before) * 1e6
            totals[1] += traffic * (at - before)
            before = at
            rows.append(Row(at, [int(totals[0]), int(totals[1])]))
        recording.add(rows)


def test_the_sampler_reads_numbers_out_of_files_that_change(tmp_path: Path) -> None:
    file, other = tmp_path / "counter", tmp_path / "stat"
    file.write_text("head 1 2\n  net0: 5 18446744073709551616 x 7\n")
    other.write_text("12 (a) b) ) S 1 99\n")
    sampler = Sampler()
    try:
        first, second = sampler.file(str(file)), sampler.file(str(other))
        for key, field in (("net0:", 0), ("net0:", 1), ("net0:", 2), ("net0:", 3), ("net0:", 4), ("none:", 0), ("", 1)):
            sampler.value(first, key, field)
        sampler.value(second, ")", 2)
        with pytest.raises(OSError, match="No such file"):
            sampler.file(str(tmp_path / "none"))
        sampler.every(second, 2)
        assert (sampler.cost_s(first) or 0) > 0
        sampler.start(0.002, 0.5)
        rows = []
        wait_until(lambda: rows.extend(sampler.fetch()) or len(rows) > 20, "twenty rows")
    finally:
        sampler.end()
    assert {tuple(row.values[:7]) for row in rows} == {(5, None, None, 7, None, None, 1)}
    assert {row.values[7] for row in rows} == {99, None}
    times = [row.at_s for row in rows]
    assert times == sorted(times)


def test_a_number_that_counts_once_is_not_read_again_before_it_is_written() -> None:
    numbers = (ctypes.c_uint64 * 2)(1500, 1500)
    sampler = Sampler()
    try:
        for field, once in enumerate((True, False)):
            sampler.value(sampler.memory(ctypes.addressof(numbers), once=once), "", field)
        sampler.start(0.002, 0.5)
        rows: list[Row] = []
        wait_until(lambda: rows.extend(sampler.fetch()) or len(rows) > 5, "five rows")
        numbers[0] = numbers[1] = 1400
        wait_until(lambda: rows.extend(sampler.fetch()) or sum(row.values[1] == 1400 for row in rows) > 5, "five more")
    finally:
        sampler.end()
    assert [row.values[0] for row in rows if row.values[0] is not None] == [1500, 1400]


def test_a_command_is_watched_and_its_recording_read_again(railwright, tmp_path: Path) -> None:
    file, page = tmp_path / "a.arrows", tmp_path / "a.html"
    code = "import time; print('at work'); time.sleep(1.5)"
    done = railwright("watch", "--json", "--record", str(file), "-O", str(page), "--", sys.executable, "-c", code)
    assert "at work" in done.err
    found = json.loads(done.out)
    assert done.status == (0 if found["ticks"] >= 15 else 3), done.err
    fits(found, "watch")
    assert found["command_status"] == 0
    assert {"cpu.user", "cpu.system", "net.lo.rx"} <= {one["name"] for one in found["sources"]}
    again = read_recording(file)
    assert len(again.times_s) == found["ticks"]
    assert "Activity above traffic" in page.read_text()


def test_a_command_that_fails_is_said(railwright) -> None:
    done = railwright("watch", "--", sys.executable, "-c", "raise SystemExit(7)")
    assert done.status == 3
    assert "ended with exit status 7" in done.out
    assert "cannot start" in railwright("watch", "--", "/nonexistent/program").err


def test_a_recording_tells_its_iterations_as_text_record_and_page(answer, tmp_path: Path) -> None:
    file, page = tmp_path / "a.arrows", tmp_path / "a.html"
    a_recording(file)
    done = answer("watch", "--from", str(file), "--json", "-O", str(page))
    assert done.status == 0, done.err
    found = json.loads(done.out)
    fits(found, "watch")
    assert [one["stands_for"] for one in found["sources"]] == ["compute", "traffic"]
    one = found["estimates"][0]
    assert one["period_s"] == pytest.approx(0.5, rel=0.01)
    assert [one["compute"], one["communication"], one["exposed"]] == pytest.approx([0.6, 0.4, 0.3], abs=0.03)
    text = page.read_text()
    assert "<b>eth0" not in text
    assert "this &lt;machine&gt;" in text
    assert "1.43 times as fast" in answer("watch", "--from", str(file)).out


@pytest.mark.parametrize(("words", "says"), [
    (["--json"], "watch requires --seconds, --pid or a command"),
    (["--pid", "1", "--simulate", "seed=1"], "exclude each other"),
    (["--seconds", "1", "--record", "/nonexistent/a"], "cannot write /nonexistent/a"),
    (["--from", "/nonexistent/a"], "No such file"),
    (["--seconds", "1", "-O", "a.txt"], "--output must name an HTML page"),
])  # fmt: skip
def test_what_cannot_be_watched_is_refused(answer, words: list[str], says: str) -> None:
    done = answer("watch", *words)
    assert done.status == 2
    assert says in done.err


def test_the_cost_of_a_monitor_is_told_with_its_interval(answer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measure_cost, "__defaults__", (0.05,))
    for words in (["--cost"], ["--cost-of", f"{sys.executable} -c 'pass'"]):
        done = answer("watch", *words, "--pairs", "2", "--json", "--force")
        found = json.loads(done.out)
        fits(found, "watch")
        assert len(found["pairs"]) == 2
        assert found["slowed_by_low"] <= found["slowed_by"] <= found["slowed_by_high"]
        below, above = found["slowed_by_high"] < 0.005, found["slowed_by_low"] > 0.005
        assert done.status == (0 if below else 1 if above else 3)
    assert "cannot start" in answer("watch", "--cost-of", "/nonexistent/monitor", "--pairs", "2", "--force").err
    assert "--cost-of must be a command, got an empty one" in answer("watch", "--cost-of", " ").err
    assert "exclude each other" in answer("watch", "--cost", "--pid", "1").err


def test_on_a_terminal_keys_zoom_and_end_and_the_terminal_is_as_before(tmp_path: Path) -> None:
    """The terminal has 24 rows, and all output goes to it."""
    ours, theirs = pty.openpty()
    before = termios.tcgetattr(theirs)
    shown = bytearray()

    def read() -> bytearray:
        if select.select([ours], [], [], 0.1)[0]:
            shown.extend(os.read(ours, 1 << 16))
        return shown

    def until(words: bytes, press: bytes) -> None:
        wait_until(lambda: words in read(), words.decode())
        shown.clear()
        os.write(ours, press)

    argv = [Path(sys.executable).with_name("railwright"), "watch", "--seconds", "100"]
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "100", "LINES": "24"}
    with subprocess.Popen(
        argv, stdin=theirs, stdout=theirs, stderr=theirs, cwd=tmp_path, env=environment, preexec_fn=_own_terminal
    ) as process:
        until(b"+ - zoom", b"-")
        until(b"f follow", b"\x1b[D")
        until(b"held", b"q")
        until(b"iterations", b"")
        wait_until(lambda: read() is None or process.poll() is not None, "its end")  # it could not end if nobody read
    assert process.returncode in (0, 3)
    assert termios.tcgetattr(theirs) == before
    os.close(ours)
    os.close(theirs)


def _own_terminal() -> None:
    os.setsid()
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)

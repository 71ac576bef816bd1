"""The terminal report: complete, readable at 80 and 140 columns, plain where it must be, and safe."""

from __future__ import annotations

import io
from collections import Counter

import msgspec
import pytest
from msgspec.structs import replace
from rich.cells import cell_len
from rich.console import Console

from railwright.benchmarks.registry import DECLARATIONS
from railwright.diagnosis.peers.gpu_health import format_samples
from railwright.diagnosis.verdicts.judged import Diagnosis, Verdict
from railwright.errors import EXIT_UNJUDGED, UsageError
from railwright.limits.limit import NoLimit
from railwright.report.formats.records import json_lines
from railwright.report.pages.page import standard_output
from railwright.report.pages.run import render_html
from railwright.report.text import wording
from railwright.report.text.run import render
from railwright.report.view import build_view
from railwright.results.records import End
from railwright.topology.expand import expand
from railwright.units import format_duration

from . import sample
from .records_again import read_json_lines


def rendered(
    width: int = 80,
    *,
    diagnosis: Diagnosis | None = None,
    end: End | None = None,
    color: bool = False,
    verbose: bool = False,
) -> str:
    console = Console(
        file=io.StringIO(), width=width, force_terminal=color, color_system="truecolor" if color else None
    )
    view = build_view(sample.run(), diagnosis or sample.diagnosis(), end or sample.end())
    render(view, console, verbose=verbose)
    file = console.file
    assert isinstance(file, io.StringIO)
    return file.getvalue()


@pytest.mark.parametrize("width", [60, 80, 100, 140, 200])
def test_no_line_is_wider_than_the_console(width: int) -> None:
    assert max(cell_len(line) for line in rendered(width).splitlines()) <= width


@pytest.mark.parametrize("width", [80, 140])
def test_every_path_has_its_limit_reason_and_verdict(width: int) -> None:
    text = rendered(width, verbose=True)
    row = next(line for line in text.splitlines() if "threads 1" in line)
    for word in ("15.5 GB/s", "4.0 %", "19.2 GB/s", "0.81", "ok"):
        assert word in row
    assert "DDR5-4800, 1 channel" in text
    assert "limit (derived): " in text
    for state in ("slow", "suspicious", "failed", "unknown", "not run"):
        assert state in text


def test_the_reason_is_next_to_its_row_or_below_it_on_a_narrow_console() -> None:
    def first_row(width: int) -> str:
        return next(line for line in rendered(width, verbose=True).splitlines() if "threads 1" in line)

    assert "DDR5-4800" not in rendered(80), "without --verbose a row is one line"
    assert "DDR5-4800" not in first_row(80)
    assert "DDR5-4800" in first_row(140)


def test_the_band_is_next_to_the_measured_value() -> None:
    text = " ".join(rendered(140).split())
    assert "expected 180 ns to 360 ns" in text
    assert "expected from 9.60 GB/s" in text


def test_equal_gpus_are_described_once() -> None:
    host = expand("hgx-h100", {})
    assert wording.gpu_words(host) == "8 x NVIDIA H100 SXM5 80GB"
    known = [replace(device, facts={"nvidia_driver": "580.1", "cuda": "13.0"}) if device.kind == "host" else device
             for device in host.devices]  # fmt: skip
    assert wording.gpu_words(replace(host, devices=tuple(known))).endswith(", driver 580.1, CUDA 13.0")
    assert wording.gpu_words(expand("laptop", {})) == ""


def test_a_report_in_a_file_is_wide_and_follows_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    assert standard_output().width == 140
    monkeypatch.setenv("COLUMNS", "97")
    assert standard_output().width == 97


def test_causes_reasons_and_counters_are_shown() -> None:
    text = " ".join(rendered(verbose=True).split())
    assert "loopback_mtu (likely)" in text
    assert "ip link set lo mtu 65536" in text
    assert "MTU 1500 (/sys/class/net/lo/mtu)" in text
    assert "there is no GPU on this machine" in text
    assert "TcpRetransSegs +12" in text
    assert "1 fact of this machine" in text


def test_the_last_sentence_counts_the_verdicts_and_explains_the_exit_status() -> None:
    text = " ".join(rendered().split())
    assert text.endswith(
        "11 paths: 1 slow, 1 suspicious, 1 failed, 2 unknown, 6 ok; besides, 1 not run;"
        " 71 of 101 points could not be judged. Exit status 1: something is slow or misconfigured."
    )


def test_output_is_coloured_only_on_a_terminal() -> None:
    assert "\x1b" not in rendered()
    assert "\x1b[" in rendered(color=True)


def test_names_from_the_machine_are_neither_markup_nor_control_codes() -> None:
    text = rendered(140)
    assert "[red]x[/red]" in text
    assert "disk\\x1b[31m\\u202ered\\n" in text
    assert not any(char in text for char in "\x1b\u202e\r")


def test_characters_that_the_console_cannot_encode_are_escaped() -> None:
    buffer = io.BytesIO()
    console = Console(file=io.TextIOWrapper(buffer, encoding="ascii"), width=80, color_system=None)
    context = msgspec.structs.replace(sample.run().context, cpu="Prozessor für Züge")
    run = msgspec.structs.replace(sample.run(), context=context)
    render(build_view(run, sample.diagnosis(), sample.end()), console)
    console.file.flush()
    assert b"f\\xfcr Z\\xfcge" in buffer.getvalue()


def test_a_run_without_an_end_is_reported_as_cut_off() -> None:
    console = Console(file=io.StringIO(), width=80, color_system=None)
    render(build_view(sample.run(), sample.diagnosis(), None), console)
    assert "The run was cut off" in console.file.getvalue()  # type: ignore[attr-defined]
    assert "ended early: Ctrl-C" in rendered(end=End(finished_at="now", interrupted="Ctrl-C"))


def test_a_run_without_paths_says_so() -> None:
    nothing = Diagnosis(points=(), paths=(), findings=(), exit_status=EXIT_UNJUDGED)
    assert "No path was measured. Exit status 3" in rendered(diagnosis=nothing)


@pytest.mark.parametrize("width", [80, 140])
def test_the_json_records_decode_to_exactly_the_same_text(width: int) -> None:
    lines = list(json_lines(build_view(sample.run(), sample.diagnosis(), sample.end())))
    assert all("\n" not in line for line in lines)
    run, diagnosis, end = read_json_lines(lines)
    console = Console(file=io.StringIO(), width=width, color_system=None)
    render(build_view(run, diagnosis, end), console)
    assert console.file.getvalue() == rendered(width)  # type: ignore[attr-defined]


def test_every_json_record_names_its_kind() -> None:
    lines = json_lines(build_view(sample.run(), sample.diagnosis(), sample.end()))
    names = [msgspec.json.decode(line)["record"] for line in lines]
    assert list(dict.fromkeys(names)) == ["run", "judged", "path", "finding", "end", "exit"]


def test_lines_that_are_not_a_report_are_refused() -> None:
    lines = list(json_lines(build_view(sample.run(), sample.diagnosis(), sample.end())))
    with pytest.raises(UsageError, match="line 1 is not a record"):
        read_json_lines(["{}"])
    with pytest.raises(UsageError, match="got 1 and 0"):
        read_json_lines(lines[:-1])


def collective(ranks: int, path: str = "gpu0>gpu7") -> Diagnosis:
    head = replace(sample.diagnosis().points[0], benchmark="nccl_all_reduce", path=path, ranks=ranks)
    judged = replace(sample.diagnosis().paths[0], benchmark=head.benchmark, path=path, path_kind="NVL", headline=head)
    return Diagnosis(points=(head,), paths=(judged,), findings=(), exit_status=EXIT_UNJUDGED)


@pytest.mark.parametrize(("ranks", "words"), [(2, ""), (7, "7 ranks"), (8, "8 ranks")])
def test_a_path_with_more_than_two_ranks_shows_their_number(ranks: int, words: str) -> None:
    title = next(line for line in rendered(diagnosis=collective(ranks)).splitlines() if "nccl_all_reduce" in line)
    assert title.split("  ") == [part for part in ("nccl_all_reduce", "gpu0>gpu7", "NVL", words) if part]
    page = render_html(build_view(sample.run(), collective(ranks), sample.end(), ()))
    shown = page[page.index('<span class="whole">gpu0&gt;gpu7') :].partition("</summary>")[0]
    assert ("ranks" in shown) == bool(words)
    assert words in shown


def test_all_numbers_of_ranks_are_named() -> None:
    assert wording.ranks_words([8, 4, 8]) == "4 / 8 ranks"
    assert wording.ranks_words([1, 2]) == wording.ranks_words([]) == ""


def test_the_header_shows_the_state_of_watched_gpus() -> None:
    watched = replace(
        sample.results()[0], settings={"gpu_samples": 3, "gpu_clock_min_hz": 1.98e9, "gpu_throttle": "none"}
    )
    console = Console(file=io.StringIO(), width=200, color_system=None)
    render(build_view(sample.run(), sample.diagnosis(), sample.end(), [watched]), console)
    text = console.file.getvalue()  # type: ignore[attr-defined]
    header = text.partition("\nPaths\n")[0]
    assert f"watched  {format_samples([watched])}" in header
    assert "1980 MHz" in header
    assert "watched" not in rendered(200).partition("\nPaths\n")[0]


def test_the_answer_comes_first_and_names_its_baselines() -> None:
    slow, *_ = rendered(140).splitlines()
    assert slow == "1 of 11 paths is slow: mpi_latency cpu0>cpu0; 4 could not be judged (71 of 101 points)."
    fine = tuple(path for path in sample.diagnosis().paths if path.verdict.state == "ok")
    other = replace(fine[0], benchmark="a_reference", verdict=Verdict(state="reference", why="nothing above it"))
    judged = Diagnosis(points=(), paths=(*fine, other), findings=(), exit_status=0)
    answer, basis, *_ = rendered(200, diagnosis=judged).splitlines()
    assert answer == "All 6 paths that can be judged are as fast as expected."
    kinds = Counter(path.headline.limit.kind for path in fine)
    assert basis.startswith(
        f"{kinds['derived']} verdicts rest on the rates of the hardware, {kinds['measured_ceiling']} on simpler"
        " measurements of this machine (a reference)."
    )


def test_no_line_in_a_pipe_ends_with_the_blanks_of_its_column(capsys: pytest.CaptureFixture) -> None:
    render(build_view(sample.run(), sample.diagnosis(), sample.end()), standard_output())
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) > 20
    assert [line for line in lines if line != line.rstrip()] == []


def test_baselines_are_one_table_below_the_verdicts_and_each_reason_is_printed_once() -> None:
    path = sample.diagnosis().paths[0]
    bare = replace(path.headline, limit=NoLimit(quantity=path.quantity, why="a reason of theirs"))
    verdict = Verdict(state="reference", why="nothing above it")
    baselines = tuple(
        replace(path, benchmark=name, parameters={"threads": n}, headline=bare, verdict=verdict)
        for name in ("first", "second")
        for n in (1, 2)
    )
    ok = next(path for path in sample.diagnosis().paths if path.verdict.state == "ok")
    text = rendered(100, diagnosis=Diagnosis(points=(), paths=(*baselines, ok), findings=(), exit_status=0))
    verdicts, _, table = text.partition("\nBaselines, which the other paths are compared with\n")
    assert ok.benchmark in verdicts
    assert "a reason of theirs" not in verdicts
    lines = table.split("\n\n")[0].splitlines()
    assert [line.split()[0] for line in lines] == ["benchmark", "first", "threads", "second", "threads", "first,"]
    assert lines[-1].strip() == "first, second: no limit: a reason of theirs"


def test_a_latency_is_shown_by_its_band_and_a_wide_spread_in_words() -> None:
    path = next(
        path for path in sample.diagnosis().paths if path.quantity == "latency_s" and path.verdict.state == "ok"
    )
    assert path.headline is not None
    assert path.headline.expected is not None
    launches = tuple(replace(launch, median=n * launch.median) for n, launch in enumerate(path.headline.launches, 1))
    head = replace(path.headline, launches=launches, launch_spread=2.0)
    view = build_view(
        sample.run(), Diagnosis(points=(), paths=(replace(path, headline=head),), findings=(), exit_status=0), None
    )
    (row,) = view.rows
    assert row.limit == f"\u2264 {format_duration(path.headline.expected.high)}"
    assert row.share == "-"
    assert row.meter is not None
    assert row.meter.reached == pytest.approx(head.value / head.expected.high * row.meter.limit, abs=0.01)
    assert "differ by a factor of" in row.wide
    assert row.wide in " ".join(rendered(140, diagnosis=view.diagnosis).split())


def test_paths_without_a_verdict_are_grouped_by_reason_with_the_next_step() -> None:
    path = sample.diagnosis().paths[0]
    verdict = Verdict(state="unknown", why="no sockets", needs="railwright run tcp_stream mpi_latency")
    paths = tuple(replace(path, parameters={"threads": number}, verdict=verdict) for number in range(9))
    text = rendered(140, diagnosis=Diagnosis(points=(), paths=paths, findings=(), exit_status=EXIT_UNJUDGED))
    assert text.count("unknown: no sockets") == text.count("to judge it: railwright run tcp_stream") == 1
    assert "and 6 more (--verbose lists them)" in text


def test_paths_not_run_have_a_line_for_each_reason() -> None:
    point = next(candidate for candidate in sample.diagnosis().points if candidate.verdict.state == "waived")
    points = tuple(replace(point, benchmark=name) for name in ("gpu_copy", "gpu_latency"))
    text = rendered(140, diagnosis=Diagnosis(points=points, paths=(), findings=(), exit_status=EXIT_UNJUDGED))
    assert text.count(point.verdict.why) == 1
    assert f"not run: gpu_copy, gpu_latency: {point.verdict.why}" in text


def test_the_answer_covers_the_required_paths() -> None:
    judged = replace(sample.diagnosis(), required=("mpi_latency",), unmet=(("mpi_latency cpu0>cpu0", "slow"),))
    assert rendered(140, diagnosis=judged).startswith("Not all required paths are ok: mpi_latency cpu0>cpu0 is slow.")
    met = replace(sample.diagnosis(), required=("memory_copy",), exit_status=0)
    text = rendered(140, diagnosis=met)
    assert text.startswith("All required paths are ok: memory_copy.")
    assert " ".join(text.split()).endswith("Exit status 0: all required paths are ok.")


@pytest.mark.parametrize("width", [60, 80, 140])
def test_bars_of_training_steps_are_not_wrapped(width: int) -> None:
    held = {"model": "resnet50", "dtype": "fp32", "buckets": "25M", "overlap": "yes"}
    steps = [
        replace(sample.results()[0], benchmark="train_step", quantity="latency_s", samples=(seconds,), ranks=8,
                parameters={**held, "part": part})
        for part, seconds in (("iteration", 0.02), ("compute", 0.015), ("exposed", 0.005), ("communication", 0.01))
    ]  # fmt: skip
    console = Console(file=io.StringIO(), width=width, color_system=None)
    render(build_view(sample.run(), sample.diagnosis(), sample.end(), steps), console, DECLARATIONS)
    lines = console.file.getvalue().splitlines()  # type: ignore[attr-defined]
    (bar,) = [line for line in lines if line.count("█") > 1]
    assert bar.startswith("  fp32 25M")
    assert cell_len(bar) <= width
    rows = [line.rstrip() for line in lines if line.strip().startswith(("compute  ", "exposed  ", "communication  "))]
    assert len(rows) == 3
    assert all(row.endswith((" ms", " s")) for row in rows[:2]), "no row is cut in two"


def test_slow_paths_of_one_cause_are_limited_to_three_without_verbose() -> None:
    slow = next(path for path in sample.diagnosis().paths if path.verdict.state == "slow")
    diagnosis = replace(sample.diagnosis(), paths=tuple(replace(slow, path=f"gpu{n}>memory0") for n in range(20, 40)))
    for verbose, named in ((False, 3), (True, 20)):
        text = rendered(diagnosis=diagnosis, verbose=verbose)
        part = text[text.index("\nSlow\n") : text.index("\nPaths\n")]
        assert sum(f"gpu{n}>memory0, " in part for n in range(20, 40)) == named
        assert ("and 17 more (--verbose lists them)" in part) is not verbose
    page = render_html(build_view(sample.run(), diagnosis, sample.end(), ()))
    assert f"and 15 more of {slow.benchmark}" in page
    assert all(f"gpu{n}&gt;memory0" in page for n in range(20, 40))


@pytest.mark.parametrize("width", [50, 60, 70, 80, 120])
def test_no_word_of_a_table_is_cut(width: int) -> None:
    text = rendered(width)
    words = set(text.split())
    assert {"varied", "measured", "limit", "verdict", "suspicious"} <= words
    assert all(cell_len(line) <= width for line in text.splitlines())
    assert ("spread" in words) == (width >= 70)

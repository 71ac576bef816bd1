"""`railwright compare`: its text, its records and its exit status."""

from __future__ import annotations

import io
from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner
from rich.cells import cell_len
from rich.console import Console

from railwright.errors import EXIT_OK, EXIT_SLOW, EXIT_UNJUDGED, UsageError
from railwright.report.formats.records import comparison_lines
from railwright.report.text.comparison import render_comparison
from railwright.results.compare import Comparison, compare
from railwright.results.records import Result, ResultFile
from railwright.results.statistics import summarise
from railwright.verbs import compare as verb

from . import sample
from .records_again import read_comparison_lines

CURVES = sample.CURVES[4:6]


def scaled(results: tuple[Result, ...], factor: float, **changed: object) -> tuple[Result, ...]:
    """Multiply the values of the results by `factor`."""
    made = []
    for result in results:
        if result.summary is not None:
            samples = tuple(value * factor for value in result.samples)
            result = msgspec.structs.replace(result, samples=samples, summary=summarise(samples), **changed)
        made.append(result)
    return tuple(made)


def make_file(results: tuple[Result, ...]) -> ResultFile:
    return ResultFile(run=sample.run(), results=results, end=sample.end())


def pair(factor: float, *, spread: float = 0.004, **changed: object) -> tuple[ResultFile, ResultFile]:
    first = sample.results(CURVES, seed=1, spread=spread)
    second = scaled(sample.results(CURVES, seed=2, spread=spread), factor, **changed)
    return make_file(first), make_file(second)


def rendered(comparison: Comparison, width: int = 80) -> str:
    console = Console(file=io.StringIO(), width=width, color_system=None)
    render_comparison(comparison, console)
    file = console.file
    assert isinstance(file, io.StringIO)
    return file.getvalue()


def test_every_point_has_both_medians_the_ratio_its_interval_and_a_statement() -> None:
    comparison = compare(*pair(0.8))
    text = rendered(comparison)
    row = next(line for line in text.splitlines() if line.strip().startswith("2 MiB"))
    words = row.split()
    assert words[:2] == ["2", "MiB"]
    assert words[-1] == "slower"
    assert "GB/s" in words
    assert f"{next(item.ratio for item in comparison.points if item.parameters['size_bytes'] == 2**21):.2f}" in words
    assert "90 % confidence interval" in text
    assert " ".join(text.split()).endswith("Exit status 1: something is slower beyond noise.")


@pytest.mark.parametrize("width", [80, 140])
def test_no_line_is_wider_than_the_console_or_has_control_codes(width: int) -> None:
    other = msgspec.structs.replace(sample.run().context, kernel=sample.CONTROL_NAME, host=sample.MARKUP_NAME * 20)
    first, second = pair(0.8, ranks=4)
    second = msgspec.structs.replace(second, run=msgspec.structs.replace(second.run, context=other))
    text = rendered(compare(first, second), width)
    assert max(cell_len(line) for line in text.splitlines()) <= width
    assert "\x1b" not in text
    assert "\u202e" not in text
    assert "[red]x[/red]" in text


def test_an_unfair_comparison_is_announced_first() -> None:
    text = rendered(compare(*pair(0.8, ranks=512)))
    assert "Not a fair comparison" in text
    assert "ranks: 2 in A, 512 in B" in text
    assert text.index("Not a fair comparison") < text.index("Points")
    assert " slower" not in text.split("Points")[1].rsplit("points:")[0]


def test_points_of_one_run_are_listed_with_the_reason() -> None:
    first, second = pair(1.0)
    fewer = tuple(item for item in second.results if item.parameters.get("transport") != "tcp")
    text = " ".join(rendered(compare(first, make_file(fewer))).split())
    assert "Only in A" in text
    assert "transport tcp bandwidth 8 B to 2 MiB (10 sizes)" in text


def test_the_json_records_decode_to_exactly_the_same_text() -> None:
    comparison = compare(*pair(0.8, ranks=4))
    again = read_comparison_lines(list(comparison_lines(comparison)))
    assert again == comparison
    assert rendered(again) == rendered(comparison)
    with pytest.raises(UsageError, match="not exactly one complete comparison"):
        read_comparison_lines(list(comparison_lines(comparison))[:-1])


def write(folder: Path, file: ResultFile) -> Path:
    folder.mkdir()
    records = (file.run, *file.results, file.end)
    (folder / "results.jsonl").write_bytes(b"".join(msgspec.json.encode(record) + b"\n" for record in records))
    return folder


@pytest.mark.parametrize(
    ("factor", "spread", "status"), [(0.8, 0.004, EXIT_SLOW), (1.3, 0.004, EXIT_OK), (1.0, 0.2, EXIT_UNJUDGED)]
)
def test_the_command_ends_with_the_status_of_the_comparison(
    tmp_path: Path, factor: float, spread: float, status: int
) -> None:
    first, second = pair(factor, spread=spread)
    arguments = [str(write(tmp_path / "a", first)), str(write(tmp_path / "b", second) / "results.jsonl")]
    plain = CliRunner().invoke(verb.compare, arguments, standalone_mode=False)
    assert plain.return_value == status, plain.output
    records = CliRunner().invoke(verb.compare, [*arguments, "--json"], standalone_mode=False)
    assert records.return_value == status
    assert read_comparison_lines(records.output.splitlines()).exit_status == status


def test_the_command_refuses_unknown_parameters_and_files(tmp_path: Path) -> None:
    here = str(write(tmp_path / "a", pair(1.0)[0]))
    with pytest.raises(UsageError, match="no parameter in these runs named 'transprot'"):
        CliRunner().invoke(verb.compare, [here, here, "--across", "transprot"], catch_exceptions=False)
    with pytest.raises(UsageError, match="cannot read"):
        CliRunner().invoke(verb.compare, [here, str(tmp_path / "nowhere")], catch_exceptions=False)


@pytest.mark.parametrize("width", [54, 60, 64, 78, 120])
def test_a_statement_is_never_cut(width: int) -> None:
    text = rendered(compare(*pair(0.8)), width)
    rows = [line for line in text.splitlines() if line.strip().startswith("2 MiB")]
    assert rows
    assert all(row.split()[-1] == "slower" for row in rows)
    assert ("spread" in text) == (width >= 78)
    assert max(cell_len(line) for line in text.splitlines()) <= width

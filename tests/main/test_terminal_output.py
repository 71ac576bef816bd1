"""Text on a terminal: wrapped at its width, with verdicts in colour. In a pipe and with NO_COLOR it is plain."""

from __future__ import annotations

import re
import sys

import msgspec
import pytest

from railwright import terminal
from railwright.main import run_command
from railwright.options import output
from railwright.report.formats.json_line import json_line

SENTENCE = "remedy  " + "set the governor of every CPU to performance, and compare latencies before and after " * 2
COLOUR = re.compile(r"\x1b\[[0-9;]*m")
VERBS = [
    ["audit", "--from", "hgx-h100"],
    ["topo", "--from", "hgx-h100"],
    ["run"],
    ["shapes", "hgx"],
    ["limits", "--host", "hgx-h100", "--path", "gpu0:gpu1"],
    ["limits", "--host", "hgx-h100", "--count", "2", "--collective", "all_reduce"],
    ["whatif", "--host", "hgx-h100", "--host", "hgx-h200", "--count", "2"],
    ["explain", "testdata/explain/2xh200/all_reduce-1-channels.txt", "--host", "hgx-h200"],
    ["simulate", "fat-tree", "hosts=64", "gpus=8", "--faults", "rate=0.02 seed=7"],
]


def pretend_terminal(monkeypatch):
    """Make standard output a terminal, whose colours click does not strip."""
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setattr("click.utils.should_strip_ansi", lambda _stream=None, _color=None: False)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)


@pytest.mark.parametrize("width", [60, 80, 110])
def test_a_line_is_wrapped_below_its_label_without_cutting_words(monkeypatch, width):
    monkeypatch.setenv("COLUMNS", str(width))
    first, *others = terminal.fit(SENTENCE).splitlines()
    assert len(first) <= width
    assert others
    assert all(line.startswith(" " * 8) and line[8] != " " and len(line) <= width for line in others)
    assert " ".join([first, *others]).split() == SENTENCE.split()
    word = "/sys/devices/" + "x" * 200
    assert word in terminal.fit(f"  seen  {word}")


def test_a_pipe_gets_whole_lines(monkeypatch):
    monkeypatch.delenv("COLUMNS", raising=False)
    assert terminal.fit(SENTENCE) == SENTENCE


@pytest.mark.parametrize(
    ("line", "word"),
    [
        ("verdict   slow: 28.1 GB/s is below 296 GB/s", "slow"),
        ("  ok          interface  up", "ok"),
        ("all_reduce 1 GiB   28.1 GB/s  slow", "slow"),
        ("Not accepted: of 5 lines 1 not met", "Not accepted"),
        ("  ? mpi_latency: not judged", "not judged"),
    ],
)
def test_a_verdict_is_coloured_on_a_terminal_and_the_text_stays(monkeypatch, capsys, line, word):
    pretend_terminal(monkeypatch)
    output.print_text(line)
    painted = capsys.readouterr().out
    assert COLOUR.sub("", painted) == f"{line}\n"
    assert re.search(rf"\x1b\[[0-9;]+m(\x1b\[[0-9;]+m)*{word}\x1b\[0m", painted)
    monkeypatch.setenv("NO_COLOR", "1")
    output.print_text(line)
    assert capsys.readouterr().out == f"{line}\n"


def test_words_that_are_no_verdict_stay_plain(monkeypatch, capsys):
    pretend_terminal(monkeypatch)
    for line in ("slow_links: none", "a slower link than planned", "look  okay"):
        output.print_text(line)
        assert capsys.readouterr().out == f"{line}\n"


@pytest.mark.parametrize("words", VERBS, ids=lambda words: words[0])
def test_no_verb_exceeds_the_width_or_colours_a_pipe(capsys, monkeypatch, words):
    monkeypatch.setenv("COLUMNS", "80")
    assert run_command(words) != 2
    text = capsys.readouterr().out
    assert "\x1b" not in text
    too_long = [line for line in text.splitlines() if len(line) > 80 and " " in line.strip()]
    assert not too_long
    assert text == "".join(f"{line.rstrip()}\n" for line in text.splitlines())


def test_json_is_safe_on_a_terminal_and_remains_the_same_json():
    record = {"host\u202e": "a\x9b31m\x7f\u2028\u200b\U000e0041é日本"}
    printed = json_line({**record, "tag": "\U0001f600"})
    assert all(terminal.escape(char) == char for char in printed)
    assert "é日本" in printed
    assert msgspec.json.decode(printed) == {**record, "tag": "\U0001f600"}
    text = '{\n  "a": "\x85"\n}\n'
    assert terminal.escape_json(text) == '{\n  "a": "\\u0085"\n}\n'

"""Every recorded output is read alike behind any launcher, log collector, terminal or markdown, and never wrongly cut.

Each change takes its turn through the outputs; RAILWRIGHT_TEST_LONG tries every change on every output.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from railwright.errors import RailwrightError
from railwright.results.given_file import decode_text
from railwright.results.readers import registry
from railwright.results.readers.foreign_file import ForeignFile
from railwright.results.readers.pasted.documents import extract_text

EXTERNAL = Path(__file__).parents[3] / "testdata/external"
OTHER = {"subnet", "reports", "ibnetdiscover", "unseen", "nccl-log"}
"""Folders without tables of tools."""
MAILS = {"021", "104", "195", "240"}
"""Mails and pages, whose own encoding a change would break."""
SPECIAL = {
    "100m-cable": "a clock of its own among the numbered lines",
    "203-fio-avocado-log": "two kinds of its logger's lines, which an indentation hides",
    "231-ior-user-data-rows-and-maxima-cut": "no word of IOR that would tell a prefix",
    "244-ucx_perftest-old-latency-rows-cut": "a row of one line among others, told by its tabs",
}
"""Outputs that some changes make ambiguous."""
OUTPUTS = sorted(
    path
    for path in EXTERNAL.glob("*/*")
    if path.suffix in (".txt", ".json")
    and path.parent.name not in OTHER
    and path.stem[:3] not in MAILS
    and path.stem not in SPECIAL
)
_NUMBER = re.compile(r"\d[\d.e+]*")
Change = Callable[[str], str]
Values = list[tuple[object, ...]]


def before(form: str, after: str = "") -> Change:
    """Return a function that writes a prefix, with a time that goes on, before each line."""

    def change(text: str) -> str:
        clock = ({"s": n % 60, "m": n // 60 % 60, "u": n * 7919 % 10**6} for n in range(text.count("\n") + 1))
        return "\n".join(form.format(**now) + line + after for line, now in zip(text.split("\n"), clock, strict=True))

    return change


def around(head: str, tail: str) -> Change:
    return lambda text: head + text.rstrip("\n") + tail


def join_by_tabs(text: str) -> str:
    return re.sub(r"(?<=\S) {2,}(?=\S)", "\t", text)


STAMP = "2026-11-27T10:{m:02}:{s:02}.{u:06}789Z "
CHANGES: dict[str, Change] = {
    "mpirun": before("[1,0]<stdout>:"),
    "prterun": before("[prterun-node1-1234@1,0]<stdout>: "),
    "srun": before(" 0: "),
    "kubectl": before(STAMP),
    "kubectl --prefix": before("[pod/launcher-x7k2p/main] " + STAMP),
    "a container's runtime": before(STAMP + "stdout F "),
    "journald": before("Nov 27 10:{m:02}:{s:02} node1 bash[4242]: "),
    "the kernel's clock": before("[  123.{u:06}] "),
    "docker compose": before("bench-1  | "),
    "colored docker compose": before("\x1b[36mbench-1  | \x1b[0m"),
    "ts": before("Nov 27 10:{m:02}:{s:02} "),
    "a clock": before("10:{m:02}:{s:02} "),
    "a logger": before("2026-11-27 10:{m:02}:{s:02},{s:03} - INFO - "),
    "pdsh": before("node-17: "),
    "torchrun": before("[default0]:"),
    "Ray": before("(main pid=1234, ip=10.0.0.1) "),
    "colors": before("\x1b[1;32m", "\x1b[0m\x1b[K"),
    "fence": around("We see this:\n\n```shell\n", "\n```\n\nAny idea?\n"),
    "details": around("<details>\n<summary>output</summary>\n\n```\n", "\n```\n\n</details>\n"),
    "quote": before("> "),
    "two quotes": before("> > "),
    "a quoted fence": lambda text: before("> ")(f"```\n{text}\n```"),
    "tabs between columns": join_by_tabs,
    "a tab before": before("\t"),
    "indented": before("    "),
    "spaces behind": before("", "   "),
    "Windows": lambda text: text.replace("\n", "\r\n"),
    "a command": around("user@node1:~/bench$ ./run.sh 2>&1 | tee log\n", "\nuser@node1:~/bench$ \n"),
    "words": around("Hi all,\n\nwe have 2 nodes:\n\n", "\n\nIs that normal? The link has 400 Gb/s.\n"),
    "a page": lambda text: f"<pre>{text.replace('&', '&amp;').replace('<', '&lt;').replace('>', '&gt;')}</pre>\n",
}


def read_output(path: Path) -> str:
    return decode_text(path.read_bytes(), path.name)


def read(text: str) -> tuple[ForeignFile, ...]:
    return registry.read(extract_text(text))


def values(files: tuple[ForeignFile, ...]) -> Values:
    return [
        (file.tool, file.test, file.ranks, one.quantity, one.path, *map(str, one.parameters.items()), *one.samples)
        for file in files
        for one in file.results
    ]


@pytest.mark.parametrize("turn", range(0, len(CHANGES), 1 if os.environ.get("RAILWRIGHT_TEST_LONG") else 15))
def test_every_output_has_the_same_values_in_any_form(turn: int) -> None:
    unlike = []
    for place, path in enumerate(OUTPUTS):
        name, change = list(CHANGES.items())[(place + turn) % len(CHANGES)]
        text = read_output(path)
        try:
            bare = values(read(text))
        except RailwrightError:
            continue
        try:
            found = values(read(change(text)))
        except RailwrightError as error:
            unlike.append(f"{path.name}, {name}: {error.message}")
            continue
        if found != bare:
            unlike.append(f"{path.name}, {name}: {len(found)} values of {len(bare)}")
    assert unlike == []


@pytest.mark.parametrize("share", [0.25, 0.5, 0.75] if os.environ.get("RAILWRIGHT_TEST_LONG") else [0.6])
def test_the_lines_of_an_output_that_is_cut_give_no_other_values(share: float) -> None:
    """Intervals and running sums may be read where the end is cut off, with the words that the text has."""
    unlike = []
    for path in OUTPUTS:
        text = read_output(path)
        words = set(_NUMBER.findall(extract_text(text)))
        lines = text.split("\n")
        cut = round(share * len(lines))
        for part in ("\n".join(lines[:cut]) + "\n", "\n".join(lines[cut:])):
            try:
                whole, found = values(read(text)), read(part)
            except RailwrightError:
                continue
            known = Counter((row[3], row[-1]) for row in whole)
            for one in (one for file in found for one in file.results):
                shown = _NUMBER.findall(str(one.settings.get("shown", "")))
                if not known[one.quantity, one.samples[-1]] and not set(shown) <= words:
                    unlike.append(f"{path.name}: {shown}")
    sums = [name for name in unlike if "-streams-cut" in name]  # of the streams that are left
    assert unlike == sums


def test_two_outputs_in_one_paste_are_both_read() -> None:
    first = (EXTERNAL / "nccl_tests/2.19.6-all_gather-2xh200.txt").read_text()
    unlike = []
    for folder in sorted({path.parent for path in OUTPUTS} - {EXTERNAL / "threads"}):
        for path in sorted(folder.glob("*.txt"))[-1:]:
            text = read_output(path)
            found = Counter(values(read(f"{first}\n\n{text}")))
            if found != Counter(values(read(first))) + Counter(values(read(text))):
                unlike.append(path.name)
    assert unlike == []


@pytest.mark.parametrize(
    ("rows", "left"),
    [
        ("# OSU MPI Bandwidth Test v7.4\n# Size  Bandwidth (MB/s)\n1  2.15\n2  4.31\n4  8.60\n8  17", 3),
        ("# OSU MPI Bandwidth Test v7.4\n# Size  Bandwidth (MB/s)\n1  2.15\n2  4.31\n4  8.60\n8  17.20", 4),
    ],
)
def test_a_number_that_the_end_of_the_paste_cuts_is_no_value(rows: str, left: int) -> None:
    (file,) = read(rows)
    assert len(file.results) == left


def test_a_report_in_json_is_read_among_other_lines_and_twice() -> None:
    text = (EXTERNAL / "nccl_tests/2.19.6-all_reduce-2xh200.json").read_text()
    bare = values(read(text))
    for form in ("$ all_reduce_perf -J /dev/stdout\n{}\n$ ", "```json\n{}\n```\nWhy?\n"):
        assert values(read(form.replace("{}", text))) == bare
    assert values(read(f"{text}\n{text}")) == [*bare, *bare]
    report = msgspec.json.format(text.encode(), indent=2).decode()
    assert values(read(before("[1,0]<stdout>:")(report))) == bare

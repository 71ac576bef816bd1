"""A tool's output is read alike after changes to its lines by a web page, a log, an editor or a person."""

from __future__ import annotations

import html
import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from railwright.errors import UsageError
from railwright.results.readers import registry
from railwright.results.readers.pasted.documents import extract_text
from railwright.results.readers.pasted.hand_marks import remove_marks

EXTERNAL = Path(__file__).parents[3] / "testdata/external"
TEXTS = {
    tool: (EXTERNAL / name).read_text(encoding="utf-8")
    for tool, name in {
        "nccl-tests": "nccl_tests/2.18.3-all_gather-2xgb10-healthy.txt",
        "osu": "osu/6.2-reduce-full-slow.txt",
        "perftest": "perftest/ib_write_bw-gbit-4qp.txt",
        "ucx_perftest": "threads/209-ucx_perftest-thread-progress.txt",
        "nixlbench": "nixlbench/ucx-vram-h200-slow.txt",
        "nvbandwidth": "threads/036-nvbandwidth-8xa100.txt",
        "bandwidthTest": "threads/150-bandwidthTest-2-k80.txt",
        "p2p": "threads/156-p2pBandwidthLatencyTest-6x4090.txt",
        "gdsio": "gdsio/nvfs-8-threads.txt",
        "fio": "fio/3.28-randread-8jobs.txt",
        "elbencho": "elbencho/1.8-read-4k-latency.txt",
        "ior": "ior/4.1-10-hosts.txt",
        "mdtest": "mdtest/5-iterations-2-hosts.txt",
        "imb": "imb/2021-pingpong-100g-roce.txt",
        "iperf3": "iperf3/100m-cable.txt",
        "stream": "threads/199-stream-5.10-grace-144-threads.txt",
        "hpl": "hpl/2.3-4ranks.txt",
        "hpcg": "hpcg/3.1-8-ranks.txt",
    }.items()
}

Form = Callable[[str], str]


def each(change: Callable[[int, str], str]) -> Form:
    return lambda whole: "\n".join(change(number, line) for number, line in enumerate(whole.split("\n")))


def last_row(change: Form) -> Form:
    """Return a function that changes the last line that begins with two numbers."""

    def changed(whole: str) -> str:
        lines = whole.split("\n")
        rows = [number for number, line in enumerate(lines) if re.match(r"\s*\d+\s+[\d.]+", line)]
        if rows:
            lines[rows[-1]] = change(lines[rows[-1]].rstrip())
        return "\n".join(lines)

    return changed


FORMS: dict[str, Form] = {
    "spaces joined": each(lambda _, line: re.sub(r"[ \t]+", " ", line)),
    "signs of titles gone": each(lambda _, line: re.sub(r"^#+ *", "", line)),
    "spaces that do not break": lambda whole: whole.replace(" ", "\u00a0"),
    "lines apart": lambda whole: whole.replace("\n", "\n\n"),
    "DOS": lambda whole: whole.replace("\n", "\r\n"),
    "bold": last_row(lambda row: re.sub(r"(\S+)$", r"**\1**", row)),
    "arrow": last_row(lambda row: f"{row}    <--- this is low"),
    "comment": last_row(lambda row: f"{row}  # expected 380"),
    "marked before": last_row(lambda row: f"-> {row.strip()}"),
    "among words": lambda whole: f"Is this normal for 2 nodes?\n\n```\n{whole.strip()}\n```\nThanks, I expected 90%.\n",
    "cat -n": lambda whole: each(lambda number, line: f"{number + 1:6d}\t{line}")(f"$ ./run\n\n\n{whole}"),
    "grep -n": each(lambda number, line: f"{number + 1}:{line}"),
    "escaped for a page": html.escape,
    "a page": lambda whole: f"<div><pre>\n{html.escape(whole)}</pre></div><p>Any ideas?</p><br/>",
    "escaped for markdown": lambda whole: re.sub(r"([#_*\[\]<>|])", r"\\\1", whole),
    "level": each(lambda _, line: f"INFO: {line}"),
    "bar": each(lambda _, line: f"| {line}"),
    "python's log": each(lambda n, line: f"2025-11-26 10:00:{n % 60:02d},{n % 1000:03d} - bench.run - INFO - {line}"),
    "clock": each(lambda n, line: f"[10:00:{n % 60:02d}] {line}"),
    "actions": each(lambda n, line: f"2025-11-26T10:00:{n % 60:02d}.1234567Z {line}"),
    "syslog": each(lambda n, line: f"Nov 26 10:00:{n % 60:02d} node-a12 slurmstepd[4242]: {line}"),
    "ansible": lambda whole: (
        'ok: [node1] => {\n    "out.stdout_lines": [\n'
        + ",\n".join(f"        {json.dumps(line)}" for line in whole.strip().split("\n"))
        + "\n    ]\n}\n"
    ),
    "a string of JSON": lambda whole: json.dumps({"rc": 0, "stdout": whole, "stderr": ""}),
}


def seen(whole: str) -> list[tuple[str, list[float]]]:
    return [
        (file.test, [value for one in file.results for value in one.samples])
        for file in registry.read(extract_text(whole))
    ]


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
@pytest.mark.parametrize("tool", TEXTS)
def test_the_values_are_those_of_the_tool(tool: str, form: Form) -> None:
    assert seen(form(TEXTS[tool])) == seen(TEXTS[tool])


def test_a_row_that_was_cut_off_may_have_words_behind_it() -> None:
    (whole,) = registry.read(TEXTS["nccl-tests"])
    rows = TEXTS["nccl-tests"].split("\n")
    last = next(number for number in reversed(range(len(rows))) if rows[number].strip()[:1].isdigit())
    cut = "\n".join([*rows[:last], rows[last][:60], "```", "What can I do?"])
    (found,) = registry.read(cut)
    assert len(found.results) == len(whole.results) - 2
    assert any("that row is left out" in note for note in found.notes)


@pytest.mark.parametrize(
    ("rows", "test", "last"),
    [
        ("# Size       Bandwidth (MB/s)\n1           0.59\n4194304  12345.67\n", "osu_bw", 12345.67e6),
        ("$ mpirun -np 2 ./osu_bibw\n# Size   Bandwidth (MB/s)\n1   0.59\n", "osu_bibw", 0.59e6),
        ("# Size          Latency (us)\n0           1.59\n1           1.61\n", "osu_latency", 1.61e-6),
        ("# Size       Avg Latency(us)\n1           4.59\n", "osu collective", 4.59e-6),
        (" 65536      20000            98.01              98.01               0.186932\n", "ib_bw", 186932.0),
        ("65536      5000             11708.05            11706.33            0.187301\n", "ib_bw", 187301.0),
        ("WR11C2R4       29184   192     2     2              61.85             2.6795e+02\n", "hpl", 267.95e9),
        (
            "Copy:    18514.5   0.242368   0.231979   0.317779\nTriad:  23314.0   0.2918   0.2761   0.3512\n",
            "",
            23314e6,
        ),
        ("   read: IOPS=797, BW=12.5GiB/s (13.4GB/s)(15.8GiB/1264msec)\n", "fio", 797.0),
        ("Final:  1000      0.240  1675.942  1671.351    46615.58   46743.62     597     598\n", "", None),
        (f"File creation : {3 * '38193.443 '} 0.000\nFile stat : {3 * '177316.790 '} 0.000\n", "mdtest", 177316.79),
    ],
    ids=lambda value: value if isinstance(value, str) and len(value) < 20 else "",
)
def test_rows_without_what_stands_above_them_are_read(rows: str, test: str, last: float | None) -> None:
    (file,) = registry.read(rows)
    assert file.test == (test or file.test)
    assert last in (None, pytest.approx(file.results[-1].samples[0]))


def test_five_numbers_that_no_rate_of_messages_holds_together_are_no_row() -> None:
    with pytest.raises(UsageError, match="no known tool"):
        registry.read(" 65536      20000            98.01              98.01               0.286932\n")


@pytest.mark.parametrize(
    "line",
    [
        "memcpy CE CPU(row) <- GPU(column) bandwidth (GB/s)",
        "Device=0 CAN Access Peer Device=1",
        "  write: IOPS=3068, BW=11.0MiB/s (12.6MB/s)(4096MiB/341704msec)",
        "WR11C2R4       29184   192     2     2              61.85             2.6795e+02",
        "||Ax-b||_oo/(eps*(||A||_oo*||x||_oo+||b||_oo)*N)=   2.37e-03 ...... PASSED",
    ],
)
def test_what_tools_print_themselves_is_no_mark_of_a_hand(line: str) -> None:
    assert remove_marks(line) == line

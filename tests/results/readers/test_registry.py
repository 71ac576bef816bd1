"""Which reader a text is for, and that nothing large or hostile takes long."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from tests.results.readers.recorded import EXTERNAL, text

from railwright.errors import UsageError
from railwright.results.readers import fio, gdsio, hpl, nccl_tests, nixlbench, osu, perftest, registry
from railwright.results.readers.foreign_file import Reader
from railwright.results.readers.log_lines import MAX_CHARACTERS, MAX_LINES

READER_OF: dict[str, Reader] = {
    "nccl_tests": nccl_tests, "osu": osu, "perftest": perftest, "nixlbench": nixlbench, "gdsio": gdsio, "fio": fio,
    "hpl": hpl,
}  # fmt: skip
RECORDED = sorted(path for folder in READER_OF for path in (EXTERNAL / folder).iterdir() if path.suffix != ".md")


@pytest.mark.parametrize("path", RECORDED, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_every_recorded_output_is_recognised_by_its_reader_alone(path: Path) -> None:
    content = path.read_text(encoding="utf-8")
    assert registry.recognise(content) == (READER_OF[path.parent.name],)
    for file in registry.read(content):
        assert file.results
        for result in file.results:
            assert result.outcome == "measured"
            assert result.settings["shown"]
            assert isinstance(result.settings["line"], int)
            assert result.method


@pytest.mark.parametrize("path", RECORDED, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_no_recorded_output_names_a_person_a_place_or_an_address(path: Path) -> None:
    content = path.read_text(encoding="utf-8")
    for private in ("/home/", "/tmp/", "/work/", "root@", "ip-1", ".com"):
        assert private not in content


def test_every_recorded_output_is_named_in_the_readme() -> None:
    readme = (EXTERNAL / "README.md").read_text(encoding="utf-8")
    assert [path.name for path in RECORDED if path.name not in readme] == []


def test_an_unknown_text_is_refused_with_what_was_looked_for() -> None:
    with pytest.raises(UsageError) as refused:
        registry.recognise("iperf3 3.12\n[ ID] Interval Transfer Bitrate\n")
    for reader in READER_OF.values():
        assert reader.NAME.partition(" (")[0] in refused.value.message


def test_the_outputs_of_several_tools_are_read_each_by_its_own_reader() -> None:
    names = ("hpl/2.3-4ranks.txt", "osu/7.5-bibw-cuda-validated.txt", "perftest/ib_write_bw-gbit-4qp.txt",
             "nccl_tests/2.19.6-all_gather-2xh200.txt")  # fmt: skip
    texts = [text(name) for name in names]
    for order in (texts, texts[::-1]):
        alone = [one for whole in order for one in registry.read(whole)]
        found = registry.read("and this:\n".join(order))
        assert [(one.tool, one.test, one.ranks) for one in found] == [(one.tool, one.test, one.ranks) for one in alone]
        assert [[value.samples for value in one.results] for one in found] == [
            [value.samples for value in one.results] for one in alone
        ]


def test_what_cannot_be_read_beside_another_tools_table_is_told() -> None:
    (found,) = registry.read(text("hpl/2.3-4ranks.txt") + "# OSU MPI Bandwidth Test v5.3\n1 2\n")
    assert found.tool == "HPL"
    assert "OSU Micro-Benchmarks is in the text too: no row of an OSU table was found" in found.notes


def test_ten_megabytes_of_garbage_are_refused() -> None:
    """Linear is below 1 s; what is quadratic does not end before the suite's own limit of a test."""
    garbage = random.Random(1).randbytes(5_000_000).hex()
    with pytest.raises(UsageError):
        registry.read(garbage)


ANCHORS = {
    "nccl_tests": "algbw busbw\n", "osu": "# OSU MPI Bandwidth Test v7.4\n", "perftest": "#bytes BW average[\n",
    "nixlbench": "Block Size (B) Batch Size B/W (\n", "gdsio": "XferType: IoType: Throughput:\n",
    "fio": "fio-3.33 IOPS= BW=\n", "hpl": "T/V Gflops\n",
}  # fmt: skip
GARBAGE = {
    "spaces": " " * 1_000_000,
    "digits": "1 " * 500_000,
    "short lines": "8 2 float\n" * 100_000,
    "long lines": ("# Rank  0 " + "9" * 5000 + "\n") * 200,
    "headers": ("# size count type time algbw busbw\n# Size  MB/s\n") * 20_000,
    "options": ("(--a" + "(--b=" * 800 + "\n") * 250,
    "brackets": "[1,0]<std" * 110_000,
}


@pytest.mark.parametrize("tool", ANCHORS)
def test_a_megabyte_of_garbage_with_a_tools_words_is_refused(tool: str) -> None:
    """What is quadratic takes 10^12 steps and does not end before the suite's own limit of a test."""
    for kind, garbage in GARBAGE.items():
        try:
            READER_OF[tool].read(ANCHORS[tool] + garbage)
        except UsageError:
            continue
        pytest.fail(f"{kind} was read")


def test_a_text_that_is_too_large_is_refused_before_it_is_read() -> None:
    with pytest.raises(UsageError, match="characters, more than"):
        registry.recognise("a" * (MAX_CHARACTERS + 1))
    with pytest.raises(UsageError, match="lines, more than"):
        osu.read("# OSU MPI Bandwidth Test v7.4\n" + "x\n" * (MAX_LINES + 1))

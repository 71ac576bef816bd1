"""docs/measured and node/docs/measured: each subject has a page with its records, and cited figures are on the page."""

from __future__ import annotations

import re
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parents[1]
MEASURED = ROOT / "docs" / "measured"
NODE = ROOT / "node" / "docs" / "measured" / "node-network"
SUBJECTS = (*sorted(path for path in MEASURED.iterdir() if path.is_dir()), NODE)
CITING = tuple(
    page
    for folder in (".", "docs", "docs/benchmarks", "node", "node/docs")
    for page in sorted((ROOT / folder).glob("*.md"))
    if page.name != "CHANGELOG.md"
)
MOST_LINES = 160
MOST_BYTES = 8_000_000
MOST_BYTES_OF_A_PICTURE = 60_000
SAYS = ("What it says", "What it does not say", "Repeat it")

NUMBER = r"(?<![\w.,])-?\d[\d,]*(?:\.\d+)?(?![\w.]*\.\d)"
UNIT = r"(?:[GMk]B/s|[GM]b/s|k?op/s|[GMk]B|[num]?s|%|times|restarts?)(?![\w/])"
RANGE = re.compile(rf"(?P<many>{NUMBER}(?:(?:,| to| and|, at most) {NUMBER})*) ?(?P<unit>{UNIT})")
RATIO = re.compile(rf"(?P<low>{NUMBER}) to (?P<high>{NUMBER})")
LINK = re.compile(r"\]\((?P<target>[^)\s]*measured/[\w-]+)/README\.md(?:#[\w-]*)?\)")
SENTENCE = re.compile(r"(?<=[.:]) (?=[A-Z`\[])")


class Passage(NamedTuple):
    """A sentence or a row of a table that links to pages of docs/measured; or the table below such a sentence."""

    place: str
    text: str
    pages: tuple[Path, ...]
    is_table: bool = False


def bare(number: str) -> str:
    return number.replace(",", "")


def figures(text: str) -> set[tuple[str, str]]:
    """Return every number with its unit, as written. Both numbers of `1.28 to 1.30 us` have the unit."""
    found = {
        (bare(number), match["unit"]) for match in RANGE.finditer(text) for number in re.findall(NUMBER, match["many"])
    }
    for match in RATIO.finditer(text):
        found |= {(bare(number), "") for number in (match["low"], match["high"]) if "." in number}
    return found


def numbers(text: str) -> set[str]:
    return {bare(number) for number in re.findall(NUMBER, text)}


def cells(row: str) -> str:
    """Return the cells of a row except the first, its name."""
    return " | ".join(cell for cell in row.strip().strip("|").split("|")[1:] if not re.fullmatch(r"[\s:-]*", cell))


def passages(page: Path) -> list[Passage]:
    found = []
    lines = page.read_text(encoding="utf-8").splitlines()
    for number, line in enumerate(lines, 1):
        parts = [line] if line.startswith("|") else SENTENCE.split(line)
        for part in parts:
            targets = [match["target"] for match in LINK.finditer(part)]
            pages = tuple(dict.fromkeys((page.parent / target / "README.md").resolve() for target in targets))
            if not pages:
                continue
            place = f"{page.name}:{number}"
            found.append(Passage(place, LINK.sub("]", part), pages))
            if part.endswith(":") and lines[number + 1 : number + 2] and lines[number + 1].startswith("|"):
                rows = []
                for row in lines[number + 3 :]:
                    if not row.startswith("|"):
                        break
                    rows.append(cells(row))
                found.append(Passage(f"{place}, table", "\n".join(rows), pages, is_table=True))
    return found


def missing(passage: Passage) -> list[str]:
    """Return the figures of a passage that are on none of its pages."""
    pages = "\n".join(page.read_text(encoding="utf-8") for page in passage.pages)
    if passage.is_table:
        return sorted(numbers(re.sub("`[^`]*`", "", passage.text)) - numbers(pages))
    have, have_bare = figures(pages), numbers(pages)
    wanted = figures(passage.text)
    with_unit = {number for number, unit in wanted if unit}
    return sorted(
        f"{number} {unit}".strip()
        for number, unit in wanted
        if ((number, unit) not in have if unit else number not in have_bare and number not in with_unit)
    )


CITED = [passage for page in CITING for passage in passages(page)]


def test_the_subjects_are_those_of_the_map():
    assert [path.name for path in SUBJECTS] == [
        "1xh100",
        "2xh200",
        "4xh100",
        "4xh200",
        "8xh200",
        "host-paths",
        "install",
        "lab",
        "linpack",
        "node-network",
    ]
    text = (ROOT / "docs" / "README.md").read_text(encoding="utf-8")
    assert all(f"(measured/{path.name}/README.md)" in text for path in SUBJECTS if path != NODE)
    assert f"({NODE.relative_to(ROOT / 'node')}/README.md)" in (ROOT / "node" / "README.md").read_text(encoding="utf-8")
    assert len(text.splitlines()) < 60


@pytest.mark.parametrize("subject", SUBJECTS, ids=lambda path: path.name)
def test_a_subject_is_a_page_a_picture_and_its_records(subject):
    names = {path.name for path in subject.iterdir()}
    (picture,) = (name for name in names if name.endswith(".svg"))
    assert names == {"README.md", "records.tar.xz", picture}
    page = (subject / "README.md").read_text(encoding="utf-8")
    assert len(page.splitlines()) <= MOST_LINES
    assert f"]({picture})" in page
    assert (subject / picture).stat().st_size < MOST_BYTES_OF_A_PICTURE
    headings = re.findall(r"^## (.+)$", page, re.MULTILINE)
    assert [heading for heading in headings if heading in SAYS] == list(SAYS)


@pytest.mark.parametrize("subject", SUBJECTS, ids=lambda path: path.name)
def test_what_repeats_a_page_is_there(subject):
    _, _, repeat = (subject / "README.md").read_text(encoding="utf-8").partition("## Repeat it")
    commands = [line.split() for line in repeat.splitlines() if line.startswith("    ")]
    assert commands
    targets = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    for program, *arguments in commands:
        if program == "make":
            assert arguments[0] in targets
        elif program == "railwright":
            assert arguments[0] == "run"
        else:
            assert (ROOT / program).is_file(), program


@pytest.mark.parametrize("subject", SUBJECTS, ids=lambda path: path.name)
def test_the_records_open_and_hold_no_report_page(subject):
    with tarfile.open(subject / "records.tar.xz") as archive:
        members = archive.getmembers()
    assert members
    assert all(one.isfile() and not one.name.startswith(("/", ".")) and ".." not in one.name for one in members)
    assert not [one.name for one in members if one.name.endswith(".html") or one.name.endswith("metrics.txt")]


def test_the_records_of_every_prove_are_kept():
    with tarfile.open(MEASURED / "2xh200" / "records.tar.xz") as archive:
        kept = [name for name in archive.getnames() if "/prove-0/" in name]
    assert [name.split("/")[0] for name in kept] == ["fifth"]
    with tarfile.open(ROOT / "testdata" / "measured" / "proofs-2xh200.tar.xz") as archive:
        assert [name.split("/")[0] for name in archive.getnames() if name.endswith(".jsonl")] == ["second", "third"]


def test_the_docs_are_small():
    assert sum(path.stat().st_size for path in (ROOT / "docs").rglob("*") if path.is_file()) < MOST_BYTES


def test_figures_are_cited():
    cited = {page.parent.name for passage in CITED for page in passage.pages}
    assert cited == {path.name for path in SUBJECTS}
    assert sum(len(figures(passage.text)) for passage in CITED) >= 40


@pytest.mark.parametrize("passage", CITED, ids=[passage.place for passage in CITED])
def test_each_figure_that_is_cited_stands_on_its_page(passage):
    assert missing(passage) == [], passage.text


@pytest.mark.parametrize("page", CITING, ids=lambda path: path.name)
def test_what_was_measured_on_a_machine_is_linked(page):
    told = re.compile(r"\b(?:[Mm]easured|[Ss]een) (?:here|on)\b")
    lines = [line for line in page.read_text(encoding="utf-8").splitlines() if told.search(line) and figures(line)]
    assert [line for line in lines if not LINK.search(line)] == []


@pytest.mark.parametrize(
    ("text", "absent"),
    [
        ("It takes 4.1 times that and 873 ns ([measured](PAGE)).", []),
        ("It takes 4.2 times that and 873 ns ([measured](PAGE)).", ["4.2 times"]),
        ("It takes 873 us ([measured](PAGE)).", ["873 us"]),
        ("Between 3.8 to 4.9 of it, 10 GB/s elsewhere ([measured](PAGE)).", ["10 GB/s", "4.9"]),
        ("From 70 to 73 ns ([measured](PAGE)). Open MPI 5.0.11 has no figure, nor has 12 ms there.", ["70 ns"]),
        ("| name | 317 ns | [measured](PAGE), 318 ns |", ["318 ns"]),
        ("Seen [there](PAGE), ns:\n\n| what | is |\n|---|---|\n| 99 | 317 |\n| 98 | 31.7 (73) |", ["31.7"]),
    ],
)
def test_a_figure_that_is_not_on_the_page_is_found(tmp_path, text, absent):
    (tmp_path / "measured" / "floor").mkdir(parents=True)
    (tmp_path / "measured" / "floor" / "README.md").write_text(
        "| line | 73 ns | 1.0 |\n| Open MPI | 317 ns | 4.1 times (3.8 to 4.8) |\n| MPICH | 873 ns | 11.8 times |\n"
    )
    page = tmp_path / "page.md"
    page.write_text(text.replace("PAGE", "measured/floor/README.md#anchor"))
    assert [one for passage in passages(page) for one in missing(passage)] == absent


@pytest.mark.machine
def test_packing_keeps_what_is_there_and_leaves_out_what_is_made_again(tmp_path):
    def packed(folder, *options):
        argv = [sys.executable, str(ROOT / "scripts/measured/pack-records"), str(folder), "subject", *options]
        done = subprocess.run([*argv, "--measured", str(tmp_path)], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        archive = tmp_path / "subject" / "records.tar.xz"
        with tarfile.open(archive) as tar:
            return tar.getnames(), archive.read_bytes()

    run = tmp_path / "first" / "raw" / "copies"
    run.mkdir(parents=True)
    for path in (run / "results.jsonl", run / "report.html", run.with_suffix(".txt"), run.parent / "notes.txt"):
        path.write_text(path.name)
    names, once = packed(tmp_path / "first")
    assert names == ["first/raw/notes.txt", "first/raw/copies/results.jsonl"]
    assert packed(tmp_path / "first")[1] == once
    (tmp_path / "second").mkdir()
    (tmp_path / "second" / "notes.txt").write_text("later")
    assert packed(tmp_path / "second")[0] == ["first/raw/notes.txt", "second/notes.txt", names[1]]
    assert packed(tmp_path / "second", "--without", "first")[0] == ["second/notes.txt"]

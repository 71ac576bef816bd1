"""README.md and the pages of docs/: commands run, output is as printed, and links have targets. Commands that measure
are only parsed.
"""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
import tarfile
from functools import cache
from pathlib import Path
from typing import NamedTuple

import click
import msgspec
import pytest
from click.testing import CliRunner
from tests.schemas import fits

from railwright.benchmarks.registry import EVERY
from railwright.errors import RailwrightError
from railwright.main import cli
from railwright.topology.sources.cluster_file import load_cluster

ROOT = Path(__file__).parents[1]
PAGES = ("README.md", *sorted(
    path.relative_to(ROOT).as_posix() for path in (ROOT / "docs").rglob("*.md") if "measured" not in path.parts
))  # fmt: skip
LINKING = sorted(
    path.relative_to(ROOT).as_posix()
    for folder in (".", "docs/**", "testdata/*", "testdata/external/*", "node/**")
    for path in ROOT.glob(f"{folder}/*.md")
)
CLUSTERS = sorted((ROOT / "examples/clusters").glob("*.toml"))
OFFLINE = ("limits", "explain", "whatif", "topo", "shapes")
READS_A_FILE = ("judge", "simulate", "storage", "audit")
"""Verbs that measure nothing if the page shows their output, and so has the file that they read."""
ANSWERS = (0, 1, 3)
UNPACKED = re.compile(r"^ {4}tar -xJf (docs/measured/\w+/records\.tar\.xz) (\S+)$", re.MULTILINE)


class Command(NamedTuple):
    """A command line of a page, and the output below it."""

    page: str
    line: int
    text: str
    output: tuple[tuple[int, str], ...]

    @property
    def arguments(self) -> list[str]:
        return shlex.split(self.text, comments=True)[1:]

    @property
    def is_offline(self) -> bool:
        verb = self.arguments[0]
        return verb in OFFLINE or (verb in READS_A_FILE and bool(self.output))


def commands_of(page: str) -> list[Command]:
    """Return the commands of a page: `$ railwright ...` in fenced blocks with their output, and indented ones."""
    found: list[Command] = []
    fenced = open_command = False
    for number, line in enumerate((ROOT / page).read_text(encoding="utf-8").splitlines(), 1):
        if line.startswith("```"):
            fenced, open_command = not fenced, False
        elif fenced and line.startswith("$ railwright "):
            found.append(Command(page, number, line[2:], ()))
            open_command = True
        elif fenced and open_command and line.strip():
            found[-1] = found[-1]._replace(output=(*found[-1].output, (number, line)))
        elif not fenced and line.startswith("    railwright "):
            found.append(Command(page, number, line.strip(), ()))
    return found


COMMANDS = [command for page in PAGES for command in commands_of(page)]


def name_of(command: Command) -> str:
    return f"{command.page}:{command.line}"


@cache
def answer(text: str) -> tuple[int, str]:
    """Run a command that measures nothing. Returns its exit status and standard output."""
    arguments = shlex.split(text, comments=True)[1:]
    done = CliRunner().invoke(cli, arguments, standalone_mode=False)
    if isinstance(done.exception, RailwrightError):
        return done.exception.exit_status, f"{done.exception.message} ({done.exception.hint})"
    if done.exception is not None:
        raise done.exception
    return done.return_value if isinstance(done.return_value, int) else 0, done.stdout


@pytest.fixture(scope="module")
def workplace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the repository's files, the records that the pages unpack, and room for what commands write."""
    folder = tmp_path_factory.mktemp("workplace")
    for name in ("docs", "examples", "node", "scripts", "testdata"):
        (folder / name).symlink_to(ROOT / name)
    for page in PAGES:
        for archive, member in UNPACKED.findall((ROOT / page).read_text(encoding="utf-8")):
            with tarfile.open(ROOT / archive) as records:
                records.extract(member, folder, filter="data")
    return folder


@pytest.fixture(autouse=True)
def in_the_workplace(monkeypatch, workplace):
    monkeypatch.chdir(workplace)


def test_the_commands_of_the_pages_are_found():
    assert len(COMMANDS) >= 120


@pytest.mark.parametrize("command", COMMANDS, ids=name_of)
def test_every_command_of_the_docs_can_be_given(command):
    verb, *rest = command.arguments
    with click.Context(cli) as context:
        found = cli.get_command(context, verb)
        assert found is not None
        while isinstance(found, click.Group) and rest:
            verb, found, rest = found.resolve_command(context, rest)
        found.make_context(verb, rest, parent=context)  # raises where the options are not those


@pytest.mark.parametrize("command", [one for one in COMMANDS if one.is_offline], ids=name_of)
def test_every_command_of_the_docs_that_measures_nothing_gives_an_answer(command):
    status, said = answer(command.text)
    assert status in ANSWERS, said


@pytest.mark.parametrize("command", [one for one in COMMANDS if one.is_offline and one.output], ids=name_of)
def test_the_output_in_the_docs_is_what_is_printed(command):
    """The page may leave out lines, wrap them elsewhere and narrow columns, and must not differ otherwise."""
    printed = " ".join(answer(command.text)[1].split())
    place = 0
    for number, line in command.output:
        words = " ".join(line.split())
        found = printed.find(words, place)
        assert found >= 0, f"{command.page}:{number} is not printed by: {command.text}\n{words}"
        place = found + len(words)


def test_every_benchmark_has_its_section():
    pages = "\n".join(path.read_text(encoding="utf-8") for path in (ROOT / "docs/benchmarks").glob("*.md"))
    opened = re.findall(r"^##? (.+\n\n.+)$", pages, re.MULTILINE)
    named = {word for section in opened for word in re.findall(r"\w+", section)}
    assert [one.name for one in EVERY if one.name not in named] == []


@pytest.mark.parametrize("file", CLUSTERS, ids=lambda file: file.name)
def test_the_example_clusters_load_and_are_what_the_schema_says(file):
    found = load_cluster(file)
    assert found.ranks > 500
    assert found.fabric.tiers[-1].hosts >= found.hosts
    fits(msgspec.toml.decode(file.read_text(encoding="utf-8")), "cluster")


def test_the_cluster_files_in_the_docs_are_the_examples():
    page = (ROOT / "docs/cluster-file.md").read_text(encoding="utf-8")
    shown = re.findall(r"^```toml\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    assert sorted(shown) == sorted(file.read_text(encoding="utf-8") for file in CLUSTERS)
    assert len(shown) == 2


def anchors_of(page: Path) -> set[str]:
    """Return the anchors of a page's headings, by GitHub's rules."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", LINKING)
def test_every_link_of_a_page_leads_to_a_file_and_a_heading(page):
    here = ROOT / page
    for target in re.findall(r"\]\(([^)\s]+)\)", here.read_text(encoding="utf-8")):
        if "://" in target:
            continue
        name, _, anchor = target.partition("#")
        file = here.parent / name if name else here
        assert file.exists(), f"{page}: {target}"
        assert not anchor or anchor in anchors_of(file), f"{page}: {target}"


@pytest.mark.machine
def test_the_pictures_of_the_tour_are_those_of_its_script(tmp_path):
    subprocess.run([sys.executable, "scripts/draw-tour", str(tmp_path)], cwd=ROOT, check=True)
    drawn = {path.name: path.read_text() for path in tmp_path.iterdir()}
    assert drawn == {path.name: path.read_text() for path in Path("docs/tour").iterdir()}
    page = Path("docs/tour.md").read_text()
    assert all(f"](tour/{name})" in page for name in drawn)

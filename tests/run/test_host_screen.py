"""Hosts that measure themselves: their records arrive complete, and a failing host affects no other."""

from __future__ import annotations

import os
import re
import shlex
import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec
import pytest
from tests.conftest import processes_with, wait_until
from tests.schemas import fits

from railwright.errors import CannotJudge
from railwright.launch.hosts import Hosts
from railwright.main import run_command
from railwright.options.arguments import Arguments
from railwright.results.store import load
from railwright.run.host_screen import HostScreen
from railwright.run.screened import RESULTS
from railwright.verbs.prove import prove
from railwright.verbs.prove.hosts import prove_hosts

pytestmark = pytest.mark.machine

QUICK = ("run", "memory_copy", "--alone", "--force", "-o", "sizes=1M", "-o", "pages=small")


@dataclass
class Shells:
    """Hosts that are shells on this machine. `broken` gives the commands that some run instead."""

    mark: str
    broken: dict[str, str]
    shares_cpus: bool = False

    name = "shells"

    def check(self) -> None:
        """Fail as ssh does for a host that cannot be reached."""
        if "gone" in self.broken:
            raise CannotJudge("gone: no route")

    def agent(self, scratch: Path) -> list[str]:
        lines = "".join(f"{host}) {line} ;; " for host, line in self.broken.items())
        program = scratch / "agent"
        program.write_text(
            f"export RAILWRIGHT_TEST_MARK={self.mark} RAILWRIGHT_NOISE=off\nhost=$1\nshift\n"
            f'case $host in {lines} *) eval "$*" ;; esac\n'
        )
        return ["/bin/sh", str(program)]


@pytest.fixture
def mark() -> Iterator[str]:
    own = f"screen{os.getpid()}"
    yield own
    for process in processes_with(own):
        os.kill(process.pid, signal.SIGKILL)


def screen(tmp_path: Path, mark: str, hosts: Sequence[str], broken: dict[str, str], words: Sequence[str] = QUICK):
    reach = Shells(mark, broken)
    return HostScreen(Hosts(tuple(hosts), 1, reach), words, tmp_path / "out", 60.0, 600.0)


def test_each_host_is_measured_and_each_that_fails_is_named(tmp_path, mark):
    broken = {"gone": "echo 'ssh: no route to host' >&2; exit 255", "old": "echo welcome; exit 0",
              "liar": "echo railwright-frame:0:results.jsonl:=:AAAA"}  # fmt: skip
    asked = screen(tmp_path, mark, ("well", *broken), broken)
    stale = asked.host_folder("gone") / RESULTS
    stale.parent.mkdir(parents=True)
    stale.write_text("what it sent once")
    found = asked.run(asked.hosts.reach.agent)
    assert found == {"well": "", "gone": "ssh: no route to host", "old": "it sent no records",
                     "liar": "its records are damaged"}  # fmt: skip
    file = load(asked.host_folder("well") / RESULTS)
    assert {one.benchmark for one in file.results} == {"memory_copy"}
    assert file.end is not None
    assert not stale.exists()
    assert not processes_with(mark)


def test_one_page_and_each_hosts_own_report_are_written(tmp_path, mark, capsys):
    own = shlex.join([sys.executable, "-P", "-m", "railwright.run.screened", *QUICK])
    hosts = Hosts(("a", "b", "gone"), 1, Shells(mark, {"a": own, "b": own, "gone": "echo no route >&2; exit 255"}))
    words = ("--parts", "screen", "--directory", "/tmp", "--launches", "1", "--force", "-O", str(tmp_path / "out"))
    asked = prove.make_context("prove", [*words, "--dry-run"]).params
    assert prove_hosts(hosts, Arguments(**asked)) == 0
    assert not (tmp_path / "out").exists()
    assert "plan: 3 hosts, by shells\n  screen: each host measures itself, all at once" in capsys.readouterr().err
    assert prove_hosts(hosts, Arguments(**asked | {"dry_run": False, "as_json": True})) in (1, 3)
    records = [msgspec.json.decode(line) for line in capsys.readouterr().out.splitlines()]
    for record in records:
        fits(record, "hosts")
    of_hosts = [record for record in records if record["record"] == "host"]
    assert next((one["name"], one["trouble"]) for one in of_hosts) == ("gone", "no route")
    assert {len(one["cells"]) for one in of_hosts[1:]} == {len(records) - 3}
    assert run_command(["judge", str(tmp_path / "out"), "--json"]) in (1, 3)
    again = [msgspec.json.decode(line) for line in capsys.readouterr().out.splitlines()]
    assert again == records
    page = (tmp_path / "out/report.html").read_text()
    links = re.findall(r'href="(hosts/[ab]/report\.html)"', page)
    assert sorted(set(links)) == ["hosts/a/report.html", "hosts/b/report.html"]
    assert all("memory_copy" in (tmp_path / "out" / link).read_text() for link in links)


def test_a_wrong_word_is_told_as_the_host_tells_it(tmp_path, mark):
    asked = screen(tmp_path, mark, ("a", "b"), {"b": "exit 3"}, ("run", "no_such"))
    found = asked.run(asked.hosts.reach.agent)
    assert found["a"].startswith("there is no benchmark named 'no_such'")
    assert found["b"] == "it sent no records (exit status 3)"


def test_a_host_that_says_nothing_is_given_up(tmp_path, mark):
    asked = screen(tmp_path, mark, ("deaf",), {"deaf": "echo railwright-step:here; sleep 600"})
    asked.silence_s = 0.5
    assert asked.run(asked.hosts.reach.agent)["deaf"].startswith("silent for ")
    assert not processes_with(mark)


def test_nothing_runs_on_when_the_command_ends(tmp_path, mark):
    """A broken pipe ends a host's measurement, as when ssh's connection is gone."""
    asked = screen(tmp_path, mark, ("a", "b"), {}, (*QUICK, "--launches", "1000"))
    thread = threading.Thread(target=asked.run, args=(asked.hosts.reach.agent,))
    thread.start()
    ranks = lambda: [one for one in processes_with(mark) if one.rank is not None]  # noqa: E731
    wait_until(lambda: len(ranks()) == 2, "a rank on each host")
    asked._ended = True
    thread.join(60)
    assert not thread.is_alive()
    wait_until(lambda: not processes_with(mark), "the end of all that was started")


def test_what_a_host_measured_before_it_died_is_kept(tmp_path, mark):
    words = ("run", "memory_copy", "core_latency", "--alone", "--force", "-o", "sizes=1M", "-o", "pages=small",
             "--launches", "1000")  # fmt: skip
    hosts = Hosts(("dies", "gone"), 1, Shells(mark, {"gone": "exit 255"}))
    asked = HostScreen(hosts, words, tmp_path / "out", 60.0, 600.0)
    troubles: dict[str, str] = {}
    thread = threading.Thread(target=lambda: troubles.update(asked.run(asked.hosts.reach.agent)))
    thread.start()
    file = asked.host_folder("dies") / RESULTS
    wait_until(lambda: file.exists() and b'"result"' in file.read_bytes(), "a result of the host")
    sent = [one for one in processes_with(mark) if "railwright.run.screened" in one.argv]
    for process in sent:
        os.kill(process.pid, signal.SIGKILL)
    thread.join(60)
    assert not thread.is_alive()
    assert troubles["dies"].startswith("its records are truncated")
    kept = load(file)
    assert any(one.outcome == "measured" for one in kept.results)
    assert kept.end is None
    wait_until(lambda: not processes_with(mark), "the end of all that was started")

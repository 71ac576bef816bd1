"""Several hosts are watched at once, emulated by shells; a host that fails affects no other."""

from __future__ import annotations

import json
import os
import signal
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.conftest import processes_with, wait_until
from tests.schemas import fits
from tests.watch.test_watch import a_recording

from railwright.launch.hosts import Hosts
from railwright.sampling.recording import read_recording
from railwright.verbs.watch.hosts import watch_hosts
from railwright.watch.follow import Watch
from railwright.watch.follow_hosts import follow_hosts

pytestmark = pytest.mark.machine


@dataclass
class Shells:
    """A reach to hosts that are shells of this machine; `broken` replaces the command on some of them."""

    mark: str
    broken: dict[str, str]
    shares_files: bool = False
    name = "shells"

    def agent(self, scratch: Path) -> list[str]:
        lines = "".join(f"{host}) {line} ;; " for host, line in self.broken.items())
        program = scratch / "agent"
        program.write_text(
            f"export RAILWRIGHT_TEST_MARK={self.mark} PATH={Path('.venv/bin').absolute()}:$PATH\nhost=$1\nshift\n"
            f'case $host in {lines} *) eval "$*" ;; esac\n'
        )
        return ["/bin/sh", str(program)]


@pytest.fixture
def mark() -> Iterator[str]:
    own = f"watched{os.getpid()}"
    yield own
    left = processes_with(own)
    for process in left:
        os.kill(process.pid, signal.SIGKILL)
    assert not left, "something was left running"


def test_hosts_are_watched_together_and_each_that_fails_is_named(mark: str, tmp_path: Path, capfd) -> None:
    broken = {"gone": "echo 'ssh: no route to host' >&2; exit 255",
              "old": "case \"$*\" in *clock*) eval \"$*\" ;; *) echo 'no such option' >&2; exit 2 ;; esac"}  # fmt: skip
    hosts = Hosts(("one", "two", *broken), 1, Shells(mark, broken))
    folder, page = tmp_path / "kept", tmp_path / "a.html"
    assert watch_hosts(hosts, Watch(seconds=2.5), str(folder), str(page), as_json=True) == 3
    found = json.loads(capfd.readouterr().out)
    fits(found, "watch")
    by_name = {one["host"]: one for one in found["hosts"]}
    assert {name: by_name[name]["trouble"] for name in ("one", "two", "gone", "old")} == {
        "one": "", "two": "", "gone": "ssh: no route to host", "old": "no such option",
    }  # fmt: skip
    for name in ("one", "two"):
        assert by_name[name]["watched"]["scope"] == "this machine"
        half_s = by_name[name]["clock_half_width_s"]
        assert abs(by_name[name]["clock_offset_s"]) <= half_s, "it is our own clock"
        assert read_recording(folder / f"{name}.arrows").about.host == name
    assert "one and two share CPUs, so computing cannot be told apart" in found["why_not"], (
        "two names of one machine are no two hosts"
    )
    assert "Activity above traffic of each host" in page.read_text()


def test_a_host_whose_clock_falls_silent_is_given_up(mark: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("railwright.watch.follow_hosts._FIRST_S", 2.0)
    hosts = Hosts(("liar",), 1, Shells(mark, {"liar": "echo 12.5 no; cat >/dev/null"}))
    (liar,), _ = follow_hosts(hosts, Watch(seconds=1.0), None, lambda _: None)
    assert "silent for" in liar.trouble
    assert liar.recorded() is None


def test_a_host_that_dies_meanwhile_keeps_what_it_sent(mark: str) -> None:
    def kill_one(afar) -> None:
        if (told := afar[0].recorded()) is not None and len(told.times_s) > 3 and not afar[0].trouble:
            for process in processes_with(mark):
                if process.environment.get("OF_HOST") == "one":
                    os.kill(process.pid, signal.SIGKILL)

    broken = {"one": 'export OF_HOST=one; eval "$*"'}
    (one, two), _ = follow_hosts(Hosts(("one", "two"), 1, Shells(mark, broken)), Watch(seconds=4.0), None, kill_one)
    assert "illed" in one.trouble
    assert not two.trouble
    first, other = one.recorded(), two.recorded()
    assert first is not None
    assert other is not None
    assert 3 < len(first.times_s) < len(other.times_s)


def test_a_command_of_ours_ends_the_watching_and_ctrl_c_does(mark: str, tmp_path: Path) -> None:
    hosts = Hosts(("one", "two"), 1, Shells(mark, {}))
    seen = tmp_path / "seen"

    def show(now) -> None:
        if all(one.recorded() is not None for one in now):
            seen.touch()

    command = ("sh", "-c", f"while ! test -e {seen}; do sleep 0.1; done; exit 5")
    afar, status = follow_hosts(hosts, Watch(command=command), None, show)
    assert status == 5
    assert all(one.recorded() is not None and not one.trouble for one in afar)

    def interrupt(now) -> None:
        if all(one.recorded() is not None for one in now):
            signal.raise_signal(signal.SIGINT)

    assert threading.current_thread() is threading.main_thread()
    afar, _ = follow_hosts(hosts, Watch(seconds=600.0), None, interrupt)
    assert all(one.recorded() is not None and not one.trouble for one in afar)
    wait_until(lambda: not processes_with(mark), "all programs to end")


def test_a_host_that_is_slow_to_start_is_watched_as_long_as_the_others(mark: str, tmp_path: Path) -> None:
    slow_sources = tmp_path / "sitecustomize.py"  # what a busy machine does: it opens the counters for seconds
    slow_sources.write_text("import time\nfrom railwright.watch import follow\nquick = follow.find_sources\n"
                            "follow.find_sources = lambda whose: time.sleep(1.5) or quick(whose)\n")  # fmt: skip
    hosts = Hosts(("one", "two"), 1, Shells(mark, {"two": f'PYTHONPATH={tmp_path} eval "$*"'}))
    for command in ((), ("sleep", "60")):
        afar, _ = follow_hosts(hosts, Watch(seconds=1.0, command=command), None, lambda _: None)
        for one in afar:
            recorded = one.recorded()
            assert recorded is not None
            assert not one.trouble
            assert len(recorded.times_s) > 3, one.host


def test_recordings_of_several_hosts_are_looked_at_again(answer, tmp_path: Path) -> None:
    for name in ("a", "b"):
        a_recording(tmp_path / f"{name}.arrows")
    done = answer("watch", "--from", str(tmp_path / "a.arrows"), str(tmp_path / "b.arrows"), "--json")
    assert done.status == 0, done.err
    found = json.loads(done.out)
    fits(found, "watch")
    assert [one["host"] for one in found["hosts"]] == ["a", "b"]
    assert all(one["compared"]["longer_s"] == pytest.approx(0, abs=1e-6) for one in found["hosts"])
    assert "time of day" in found["why_not"]
    assert "is a second recording" in answer("watch", "--from", *[str(tmp_path / "a.arrows")] * 2).err

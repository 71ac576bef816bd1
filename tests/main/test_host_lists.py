"""Lists of hosts: Slurm's notation, files of hosts, and hosts that cannot be reached."""

from __future__ import annotations

from pathlib import Path

import click
import pytest
from click.testing import CliRunner
from tests.conftest import InProcess

from railwright.errors import UnreachableHosts, UsageError
from railwright.main import VERBS, load_command
from railwright.options.hosts import hosts_option
from railwright.results.host_list import fold_sentences


@click.command()
@hosts_option("Hosts.")
def listed(hosts: str | None) -> None:
    click.echo(hosts)


def hosts(*words: str) -> str:
    return CliRunner().invoke(listed, words, catch_exceptions=False).output.strip()


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("node[01-03]", "node01,node02,node03"),
        ("node[8-10,1],login", "node8,node9,node10,node1,login"),
        ("r[1-2]n[01-02]-ib", "r1n01-ib,r1n02-ib,r2n01-ib,r2n02-ib"),
        ("node[1-2], login", "node1,node2,login"),
        ("netns:pod[0-1]", "netns:pod0,netns:pod1"),
        ("host0,fd00::1", "host0,fd00::1"),
        ("a,,b", "a,,b"),  # refused where the names are checked
    ],
)
def test_a_list_of_hosts_is_expanded(text: str, names: str) -> None:
    assert hosts("--hosts", text) == names


@pytest.mark.parametrize("text", ["n[3-1]", "n[", "n[1-2", "n]1", "n[]", "n[a-b]", "n[1-2],,m", "n[1-99999]x[1-99999]"])
def test_a_broken_list_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="--hosts must be a list of hosts, got") as caught:
        hosts("--hosts", text)
    assert "node[01-64" in caught.value.hint


def test_a_file_has_a_host_or_a_list_a_line_and_slots_count_once(tmp_path: Path) -> None:
    file = tmp_path / "hosts"
    file.write_text("# ours\nnode1 slots=8\n\n  node[2-3] max_slots=4 # rack 2\nnode1 slots=8\n")
    assert hosts("--hosts-file", str(file)) == "node1,node2,node3"
    with pytest.raises(UsageError, match="exclude each other"):
        hosts("--hosts-file", str(file), "--hosts", "a,b")
    file.write_text("node1\nnode[2-\n")
    with pytest.raises(UsageError, match="hosts, line 2: must be a list of hosts"):
        hosts("--hosts-file", str(file))
    file.write_text("# none\n")
    with pytest.raises(UsageError, match="names no host"):
        hosts("--hosts-file", str(file))


def test_every_verb_with_hosts_takes_a_file_of_them() -> None:
    commands = [command for verb in VERBS if (command := load_command(verb)) is not None]
    for command in commands:
        names = {name for parameter in command.params for name in parameter.opts}
        assert ("--hosts" in names) == ("--hosts-file" in names), command.name


def test_unreachable_hosts_are_one_cause_a_line(answer: InProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        unresolved = {f"node{n:02}": f"node{n:02}: cannot resolve hostname node{n:02}: unknown" for n in range(3, 67)}
        raise UnreachableHosts({"node1": "node1: no answer", "node2": "node2: refused"} | unresolved, hint="try: ssh")

    monkeypatch.setattr("railwright.workflows.hosts.resolve_hosts", refuse)
    done = answer("locate", "--hosts", "node[1-2]")
    folded = "  node[03-66]: cannot resolve hostname HOST: unknown"
    said = ["railwright: 66 hosts cannot be used", "  node1: no answer", "  node2: refused", folded, "hint: try: ssh"]
    assert (done.status, done.err.splitlines()) == (3, said)
    assert UnreachableHosts({"n1": "n1: down", "n2": "n2: down"}, of="job 7").message == "job 7: n1: down; n2: down"


def test_sentences_that_differ_in_their_host_alone_are_joined() -> None:
    said = {"n1": "n1 cannot be reached from n10: no route", "n2": "n2 cannot be reached from n10: no route"}
    assert fold_sentences(said) == ["n[1-2] cannot be reached from n10: no route"]
    assert fold_sentences({"a": "a: down at a-1", "b": "b: down at a-1"}) == ["a,b: down at a-1"]
    assert fold_sentences({"a": "a: no HOST"}) == ["a: no HOST"]

"""`railwright audit` of several machines: one screen, and a status that fails closed."""

import msgspec
import pytest
from tests.checks.machines import tuned, with_facts

from railwright.main import run_command
from railwright.topology.sources.saved import encode_topology
from railwright.topology.sources.sent import decode_lines, encode_lines


def write(folder, **machines):
    for name, machine in machines.items():
        (folder / f"{name}.json").write_bytes(encode_topology(machine))
    return [str(folder / f"{name}.json") for name in machines]


def audited(capsys, *words):
    status = run_command(["audit", *words])
    said = capsys.readouterr()
    return status, said.out, said.err


def alike(count):
    return {f"host{number}": tuned() for number in range(count)}


def test_hosts_that_are_alike_and_have_no_fault(tmp_path, capsys):
    status, text, _ = audited(capsys, "--from", *write(tmp_path, **alike(3)))
    assert (status, text) == (
        0,
        "audit of 3 hosts: 0 faults found, 0 differences, 0 hosts unlike most\n",
    )


def test_one_that_is_not_alike_is_named(tmp_path, capsys):
    odd = with_facts(with_facts(tuned(), "nic", 3, driver="mlx4"), "host", kernel="5.15.0")
    status, text, _ = audited(capsys, "--from", *write(tmp_path, **alike(3), odd=odd))
    assert status == 1
    assert "  odd: host kernel 5.15.0, 3 hosts have 6.8.0-41-generic\n" in text
    assert "not reported by some hosts:\n  host0-2: nic driver\n" in text


def test_what_cannot_be_read_is_named_and_the_others_are_audited(tmp_path, capsys):
    files = write(tmp_path, **alike(2), broken=tuned())
    (tmp_path / "broken.json").write_text("{}")
    status, text, _ = audited(capsys, "--from", *files, str(tmp_path / "gone.json"))
    assert status == 3
    assert text.startswith("audit of 2 hosts: 0 faults found, 0 differences, 0 hosts unlike most, 2 could not")
    assert "  broken: " in text
    assert "  gone: there is no file or directory" in text


def test_it_is_one_screen_however_many_differ(tmp_path, capsys):
    machines = {}
    for number in range(15):  # few enough that no worker processes are started
        own = with_facts(tuned(), "host", kernel=f"6.{number}.0", memlock_bytes=2**20 + number)
        machines[f"host{number}"] = with_facts(own, "gpu", 1, ecc=number % 2 > 0)
    status, text, _ = audited(capsys, "--from", *write(tmp_path, **machines))
    assert status == 1
    lines = text.splitlines()
    assert len(lines) <= 45
    assert max(map(len, lines)) <= 155


def test_hostile_words_are_escaped(tmp_path, capsys):
    odd = with_facts(tuned(), "host", kernel="\x1b[2J" + "x" * 10_000)
    _, text, _ = audited(capsys, "--from", *write(tmp_path, **alike(3), odd=odd))
    assert "\x1b" not in text
    assert max(map(len, text.splitlines())) <= 155


def test_records_tell_all(tmp_path, capsys):
    odd = with_facts(tuned(), "host", memlock_bytes=2**20)
    _, text, _ = audited(capsys, "--json", "--from", *write(tmp_path, **alike(3), odd=odd))
    records = [msgspec.json.decode(line) for line in text.splitlines()]
    assert [one["record"] for one in records] == ["fleet", "fleet_fault", "difference"]
    assert records[1]["hosts"] == ["odd"]
    assert records[2]["odd"] == [{"value": str(2**20), "hosts": ["odd"]}]


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("somewhere",), "'somewhere' requires --from"),
        (("--from", "a", "--hosts", "b,c"), "--hosts and --from exclude each other"),
        (("--from", "./a", "./a"), "./a is given twice"),
        (("--ssh-config", "a"), "--ssh-config requires --hosts"),
    ],
)
def test_what_makes_no_sense_is_refused(capsys, words, says):
    status, _, error = audited(capsys, *words)
    assert status == 2
    assert says in error


def test_a_topology_that_was_sent_is_the_same():
    machine = tuned()
    lines = ["Welcome to host0", *encode_lines(machine), "bye"]
    assert max(map(len, lines)) < 4096
    assert decode_lines(lines).devices == machine.devices
    assert decode_lines(lines).links == machine.links


@pytest.mark.parametrize(
    ("lines", "says"),
    [
        ([], "it sent no topology"),
        (["hello"], "it sent no topology"),
        (["railwright-topology:eJw="], "its answer was cut off"),
        (["railwright-topology:eJw=", "railwright-topology:."], "its answer is not whole"),
        (["railwright-topology:!!!", "railwright-topology:."], "its answer is damaged"),
    ],
)
def test_what_no_host_sends_is_refused(lines, says):
    with pytest.raises(Exception, match=says):
        decode_lines(lines)

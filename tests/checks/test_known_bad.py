"""Compares a user's list of bad firmware and software with machines."""

from pathlib import Path

import pytest
from tests.checks.machines import tuned, with_facts

from railwright.checks.known_bad import KnownBad, check_known_bad, decode_known_bad
from railwright.errors import UsageError
from railwright.main import run_command
from railwright.topology.expand import expand
from railwright.topology.sources.saved import encode_topology

EXAMPLE = Path(__file__).parents[2] / "examples/known-bad.toml"
COMMON = {"says": "it is slow", "source": "a ticket", "remedy": "update it"}


def entry(**changed):
    told = {"name": "one", "of": "nic", "fact": "firmware", "fixed_in": "20.30.1004", **COMMON, **changed}
    return KnownBad(**told)


def machine(firmware="20.28.2006", number=2):
    return with_facts(with_facts(tuned(), "nic", firmware="20.30.1004"), "nic", number, firmware=firmware)


@pytest.mark.parametrize(
    ("one", "firmware", "state"),
    [
        (entry(), "20.28.2006", "found"),
        (entry(), "20.9.9999", "found"),
        (entry(), "20.30.1004", "fine"),
        (entry(), "20.30.1004 (MT_0000000223)", "fine"),
        (entry(), "28.39.1002", "fine"),
        (entry(), "unknown", "could not look"),
        (entry(), None, "could not look"),
        (entry(line="20."), "16.1.1", "fine"),
        (entry(line="28."), "20.28.2006", "does not apply"),
        (entry(fixed_in="", values=("20.28.2006",)), "20.28.2006", "found"),
        (entry(fixed_in="", values=("20.28.2006",)), "20.28.2007", "fine"),
        (entry(of="switch"), "20.28.2006", "could not look"),
        (entry(model="ConnectX-9"), "20.28.2006", "does not apply"),
        (entry(of="drive", fact="firmware"), "20.28.2006", "could not look"),
    ],
)
def test_what_is_said_of_an_entry(one, firmware, state):
    told = check_known_bad(one, machine(firmware))
    assert told.state == state
    assert told.because or told.state in ("found", "fine")
    if state == "found":
        (finding,) = told.findings
        assert finding.where == ("nic2",)
        assert (finding.costs, finding.remedy) == ("it is slow (a ticket)", "update it")


def test_a_description_has_no_firmware():
    assert check_known_bad(entry(), expand("hgx-h100", {})).state == "does not apply"


def test_the_example_is_read_and_tells_what_no_host_knows():
    entries = decode_known_bad(EXAMPLE.read_bytes(), "the example")
    states = {one.name: check_known_bad(one, tuned()).state for one in entries}
    assert states == {
        "cursed-routes-hca": "does not apply",
        "cursed-routes-switch": "could not look",
        "hpl-21-4-mkl": "could not look",
        "hpcx-2-9-0": "could not look",
    }


HEAD = '[[bad]]\nname = "a"\nof = "nic"\nfact = "firmware"\nsays = "s"\nsource = "s"\nremedy = "r"\n'


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("bad = 1", "must be a list of known faults"),
        ("\x00", "must be a list of known faults"),
        (HEAD, "must have either fixed_in or values"),
        (HEAD + 'fixed_in = "new"\n', "fixed_in must be a version, got 'new'"),
        (HEAD + 'fixed_in = "1"\nvalues = ["1"]\n', "must have either fixed_in or values"),
        (HEAD.replace('"a"', '"A b"') + 'fixed_in = "1"\n', "got 'A b'"),
        ((HEAD + 'fixed_in = "1"\n') * 2, "two entries named a"),
        (HEAD + 'fixd_in = "1"\n', "must be a list of known faults"),
    ],
)
def test_a_list_that_makes_no_sense_is_refused(text, says):
    with pytest.raises(UsageError, match=says):
        decode_known_bad(text.encode(), "list.toml")


def test_audit_takes_a_list_for_one_machine_and_for_many(tmp_path, capsys):
    (tmp_path / "list.toml").write_text(HEAD + 'fixed_in = "20.30.1004"\n')
    for name, firmware in (("host0", "20.28.2006"), ("host1", "20.30.1004"), ("host2", "20.30.1004")):
        (tmp_path / f"{name}.json").write_bytes(encode_topology(machine(firmware)))
    files = [str(tmp_path / f"host{number}.json") for number in range(3)]
    assert run_command(["audit", "--from", files[0], "--known-bad", str(tmp_path / "list.toml")]) == 1
    assert "firmware 20.28.2006 of nic2 is known to be bad, fixed in 20.30.1004" in capsys.readouterr().out
    assert run_command(["audit", "--from", files[1], "--known-bad", str(tmp_path / "list.toml")]) == 0
    capsys.readouterr()
    assert run_command(["audit", "--known-bad", str(tmp_path / "list.toml"), "--from", *files]) == 1
    assert "known_bad/a (seen) on host0: firmware 20.28.2006 of nic2" in capsys.readouterr().out

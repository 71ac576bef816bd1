"""railwrightd's output is not trusted: malformed, excessive and missing output is reported, and makes no check ok."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from railwright.net import railwrightd
from railwright.net.railwrightd import Railwrightd
from railwright.net.view import Unseen

pytestmark = pytest.mark.machine

ATTACHED = {
    "key": {"network": "n", "container_id": "c", "interface": "net1"},
    "pod": {"namespace": "a", "name": "b", "uid": ""},
    "parts": ["PART_FLOWS"], "rail": "rail0", "tenant": "ns:a", "host_interface": "v0", "mac": "02:00:00:00:00:05",
    "addresses": ["10.1.0.5"], "device_id": "", "flows_wanted": 1, "flows_installed": 1, "advertised": True,
}  # fmt: skip


def daemon(folder: Path, prints: str, then: str = "exit 0") -> Railwrightd:
    """A stand-in for the daemon that prints its own file, so that nothing has to be quoted."""
    said, program = folder / "said", folder / "railwrightd"
    said.write_text(prints)
    program.write_text(f"#!/bin/sh\ncat {said}\n{then}\n")
    program.chmod(0o755)
    return Railwrightd(str(program))


def test_an_older_daemon_that_says_less_is_understood(tmp_path: Path) -> None:
    (one,) = daemon(tmp_path, json.dumps({"attached": [ATTACHED], "of_tomorrow": 1})).attached()
    assert (str(one.pod), one.netns, one.gateway_mac, one.dropped, one.counted) == ("a/b", "", "", {}, True)


@pytest.mark.parametrize(
    "prints",
    [
        "",
        "\x1b[2Jhello",
        "[]",
        json.dumps({"attached": [{**ATTACHED, "addresses": ["10.1.0.5; reboot"]}]}),
        json.dumps({"attached": [{**ATTACHED, "flows_wanted": "many"}]}),
        json.dumps({"attached": [{**ATTACHED, "dropped": {"spoofed": "lots"}}]}),
        "[" * 100_000,
    ],
)
def test_nonsense_is_not_looked(tmp_path: Path, prints: str) -> None:
    found = daemon(tmp_path, prints).attached()
    assert isinstance(found, Unseen)
    assert found.why.startswith("cannot parse the output of railwrightd list: ")
    assert len(found.why) < 1000


def test_an_answer_without_end_is_not_looked(tmp_path: Path) -> None:
    found = daemon(tmp_path, json.dumps({"attached": [{**ATTACHED, "mac": "0" * 2**25}]})).attached()
    assert isinstance(found, Unseen)
    assert found.why.endswith("railwrightd printed more than 16 MiB")


def test_a_daemon_that_is_silent_is_asked_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(railwrightd, "_ASK_S", 0.3)
    asked = tmp_path / "asked"
    silent = daemon(tmp_path, "", f"echo once >> {asked}\nexec sleep 600")
    assert silent.attached() == silent.rails() == silent.attached()
    assert isinstance(silent.away, Unseen)
    assert "did not answer within" in silent.away.why
    assert asked.read_text() == "once\n"


def test_its_own_words_are_told_where_it_fails(tmp_path: Path) -> None:
    found = daemon(tmp_path, "railwrightd: no railwrightd answers at /x; is it running", "exit 3").rails()
    assert isinstance(found, Unseen)
    assert found.why == "railwrightd status: exit status 3: no railwrightd answers at /x; is it running"
    assert isinstance(Railwrightd("/nowhere/railwrightd").attached(), Unseen)

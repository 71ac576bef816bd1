"""The recorded answers of `explain` to public outputs agree with its current ones, and the page explains every miss."""

from __future__ import annotations

import csv
import re
import sys
from pathlib import Path
from types import ModuleType

import msgspec
import pytest

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "scripts/measured/limits/hold-against-threads"
PAGE = (ROOT / "docs/explain-public-outputs.md").read_text(encoding="utf-8")
THREADS = ROOT / "testdata/external/threads"
PASTES = msgspec.toml.decode((THREADS / "threads.toml").read_text(encoding="utf-8"))["paste"]
ANSWERS = list(csv.reader((THREADS / "answers.csv").read_text(encoding="utf-8").splitlines()))
SOME = PASTES[3::16]
"""A few, since all of them take half a minute: scripts/measured/limits/hold-against-threads --write holds all."""


@pytest.fixture(scope="module")
def script() -> ModuleType:
    module = ModuleType("hold_against_threads")
    module.__file__ = str(SCRIPT)
    sys.modules[module.__name__] = module
    exec(compile(SCRIPT.read_text(encoding="utf-8"), str(SCRIPT), "exec"), module.__dict__)
    return module


@pytest.mark.parametrize("entry", SOME, ids=[entry["file"][:3] for entry in SOME])
def test_the_recorded_answer_is_the_current_one(script: ModuleType, entry: dict[str, object]) -> None:
    held = script.hold(msgspec.convert(entry, script.Paste))
    _, current = script.answers([held])
    assert current in ANSWERS


def test_a_likely_cause_is_named_for_half_of_the_slow_pastes_whose_thread_found_it() -> None:
    said = {
        name[:3]: (set(filter(None, likely.split(", "))), verdict) for name, _, verdict, _, likely, _ in ANSWERS[1:]
    }
    found = [
        (entry["cause"], said[entry["file"][:3]][0])
        for entry in PASTES
        if not entry["healthy"] and not entry["cause"].startswith("none") and entry["concluded_by"] != "unresolved"
        if not said[entry["file"][:3]][1].startswith("ok")
    ]
    named = [(cause, likely) for cause, likely in found if likely]
    assert 2 * len(named) >= len(found)
    assert 10 * sum(cause in likely for cause, likely in named) >= 9 * len(named)


def test_every_paste_has_its_answer_and_every_miss_its_reason() -> None:
    rows = [(name[:3], right) for name, *_, right in ANSWERS[1:]]
    assert [number for number, _ in rows] == [entry["file"][:3] for entry in PASTES]
    explained = re.findall(r"^- (\d{3}): (?!not explained)", PAGE, re.MULTILINE)
    assert explained == [number for number, right in rows if right == "no"]

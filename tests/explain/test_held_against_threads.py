"""docs/explain-held-against-threads.md agrees with the current output of `explain`, and explains every miss."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from types import ModuleType

import msgspec
import pytest

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "scripts/measured/limits/hold-against-threads"
PAGE = (ROOT / "docs/explain-held-against-threads.md").read_text(encoding="utf-8")
PASTES = msgspec.toml.decode((ROOT / "testdata/external/threads/threads.toml").read_text(encoding="utf-8"))["paste"]
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
def test_the_page_says_what_is_said_now(script: ModuleType, entry: dict[str, object]) -> None:
    held = script.hold(msgspec.convert(entry, script.Paste))
    (row,) = [line for line in PAGE.splitlines() if line.startswith(f"| {str(entry['file'])[:-4]} |")]
    assert row.endswith(f"| {'yes' if held.is_hit else 'no'} |")
    assert f"| {', '.join(held.causes[:3]) or '-'} |" in row


def test_every_paste_has_its_row_and_every_miss_its_reason() -> None:
    rows = re.findall(r"^\| (\d{3})-.*\| (yes|no) \|$", PAGE, re.MULTILINE)
    assert [number for number, _ in rows] == [entry["file"][:3] for entry in PASTES]
    explained = re.findall(r"^- (\d{3}): (?!not explained)", PAGE, re.MULTILINE)
    assert explained == [number for number, hit in rows if hit == "no"]

"""Pastes of every kind that people post, each with its right answer (testdata/explain/pastes)."""

from __future__ import annotations

import shlex
from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner

from railwright.main import run_command

FOLDER = Path(__file__).parents[2] / "testdata/explain/pastes"
PASTES = msgspec.toml.decode((FOLDER / "answers.toml").read_text(encoding="utf-8"))["paste"]


def explain(paste: dict) -> tuple[int, str]:
    files = [str(FOLDER / name) for name in (paste["file"], *paste.get("beside", []))]
    with CliRunner().isolation() as (out, err, _):
        status = run_command(["explain", *files, *shlex.split(paste.get("options", ""))])
        return status, out.getvalue().decode() + err.getvalue().decode()


@pytest.mark.parametrize("paste", PASTES, ids=lambda paste: f"{paste['file'][:2]} {paste.get('options', '')}")
def test_every_paste_is_answered(paste):
    status, answer = explain(paste)
    text = " ".join(answer.split())
    begin = " ".join(answer[:400].split())
    assert [words for words in paste.get("first", []) if words not in begin] == [], answer
    assert [words for words in paste.get("says", []) if words not in text] == [], answer
    assert [words for words in paste.get("never", []) if words in text] == [], answer
    assert status == paste["status"], answer


def test_every_paste_has_an_answer():
    assert {file.name for file in FOLDER.glob("*.txt")} == {
        name for paste in PASTES for name in (paste["file"], *paste.get("beside", []))
    }

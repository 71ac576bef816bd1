"""The rules of scripts/prose: each fails a page that breaks it, and passes what it excepts."""

from __future__ import annotations

import subprocess

import pytest
from tests.conftest import ROOT

pytestmark = pytest.mark.machine

BAD = {
    "SentenceLength": "The " + "very " * 29 + "end.",
    "Openings": "- Which flows it takes was not tested.",
    "PassiveChains": "It is read, was seen and will be told.",
    "PassiveInfinitives": "The link is known to be used.",
    "Words": "The peak is 3 GB/s.",
    "Cells": f"| head |\n|---|\n| {'a' * 121} |",
    "PageLength": "\n" * 200 + "Word.",
}
GOOD = f"""# What a page may hold

The {"very " * 28}end. One host is enough. Which of them?

- What is checked: it reads `the peak of {"many " * 30}words` and the peak memory. It is read, and was seen.

| Where |
|---|
| {"a" * 120} |

    That is code.

"""


def lint(folder, text: str) -> list[str]:
    (folder / "page.md").write_text(text, encoding="utf-8")
    argv = [ROOT / ".cache/vale", "--config", ROOT / "scripts/prose/vale.ini", "--output", "line", folder / "page.md"]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert done.stderr == ""
    assert done.returncode == bool(done.stdout)
    return [line.split(":")[3].removeprefix("Railwright.") for line in done.stdout.splitlines()]


@pytest.mark.parametrize("rule", BAD)
def test_a_page_that_breaks_a_rule_fails(tmp_path, rule):
    assert lint(tmp_path, BAD[rule]) == [rule]


def test_a_page_within_the_rules_passes(tmp_path):
    assert lint(tmp_path, GOOD + "The end.\n" * (200 - GOOD.count("\n"))) == []


def test_every_rule_is_tested():
    assert {path.stem for path in (ROOT / "scripts/prose/Railwright").iterdir()} == set(BAD)

"""Tables of two GPUs under one NCCL setting that the table does not show: `explain` names no wrong cause."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from railwright.main import cli

TABLES = sorted((Path(__file__).parents[2] / "testdata/explain/settings").glob("*.txt"))
CAUSES = {"p2p-off": "p2p_disabled", "1-channel": "few_channels"}
"""The fault that each setting is. The other settings are no fault that `explain` models."""
HARMLESS = {"healthy", "1-p2p-channel"}


@pytest.mark.parametrize("table", TABLES, ids=[table.stem for table in TABLES])
def test_a_likely_cause_is_the_right_one(table: Path) -> None:
    setting = table.stem.partition("-")[2]
    done = CliRunner().invoke(cli, ["explain", str(table), "--host", "hgx-h200", "gpus=2", "--json"])
    (answer,) = (json.loads(line) for line in done.stdout.splitlines())
    assert answer["verdict"]["state"] == ("ok" if setting in HARMLESS else "slow"), answer["verdict"]
    if answer["verdict"]["state"] == "slow" and not answer.get("cause_doubt") and len(answer["hypotheses"]) > 1:
        assert answer["hypotheses"][1]["fault"] == CAUSES.get(setting)


def test_each_setting_has_its_tables() -> None:
    assert len(TABLES) == 14

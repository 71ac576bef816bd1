"""Tables of two GPUs under one NCCL setting that the table does not show: `explain` names no wrong cause."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import ModuleType

import pytest
from click.testing import CliRunner

from railwright.main import cli
from railwright.results.readers import registry

ROOT = Path(__file__).parents[2]
TABLES = sorted((ROOT / "testdata/explain/settings").glob("*/*.txt"))
CAUSES = {"p2p-off": "p2p_disabled", "1-channel": "few_channels", "1-p2p-channel": "few_channels"}
"""The fault that each setting is. The other settings are no fault that `explain` models."""
HARMLESS = {
    "2xh200": {"all_reduce-1-p2p-channel", "broadcast-1-p2p-channel"},
    "2xh100": {
        *("all_gather-1-p2p-channel", "all_reduce-1-p2p-channel", "broadcast-1-p2p-channel"),
        *("all_to_all-proto-ll", "all_to_all-64-threads", "broadcast-64-threads"),
    },
}
"""The tables whose setting leaves the rate within the band. NCCL sends all_to_all by its own protocol and threads."""


@pytest.mark.parametrize("table", TABLES, ids=[f"{table.parent.name}-{table.stem}" for table in TABLES])
def test_a_likely_cause_is_the_right_one(table: Path) -> None:
    setting, machine = table.stem.partition("-")[2], table.parent.name
    shape = f"hgx-{machine.removeprefix('2x')}"
    done = CliRunner().invoke(cli, ["explain", str(table), "--host", shape, "gpus=2", "--json"])
    (answer,) = (json.loads(line) for line in done.stdout.splitlines())
    is_harmless = setting == "healthy" or table.stem in HARMLESS[machine]
    assert answer["verdict"]["state"] == ("ok" if is_harmless else "slow"), answer["verdict"]
    if answer["verdict"]["state"] == "slow" and not answer.get("cause_doubt") and len(answer["hypotheses"]) > 1:
        assert answer["hypotheses"][1]["fault"] == CAUSES.get(setting)


def test_each_setting_has_its_tables() -> None:
    assert len(TABLES) == 14 + 28


@pytest.fixture(scope="module")
def script() -> ModuleType:
    path = ROOT / "scripts/measured/gpus/measure-settings"
    sys.path.insert(0, str(path.parent))
    try:
        module = ModuleType("measure_settings")
        exec(compile(path.read_text(encoding="utf-8"), str(path), "exec"), module.__dict__)
    finally:
        sys.path.remove(str(path.parent))
    return module


@pytest.mark.parametrize("collective", ["all_reduce", "all_gather", "all_to_all", "broadcast"])
def test_the_table_of_a_collective_is_one_that_nccl_tests_would_print(script: ModuleType, collective: str) -> None:
    sizes, times_s = (2**20, 2**22, 2**24), (20.48e-6, 40.96e-6, 81.92e-6)
    values = {(size, "out of place"): [time] for size, time in zip(sizes, times_s, strict=True)}
    (file,) = registry.read(script.render_table(collective, sizes, values))
    assert (file.test, file.ranks, file.hosts) == (collective, script.GPUS, 1)
    rates = [size / time for size, time in zip(sizes, times_s, strict=True)]
    assert [one.samples[0] for one in file.results] == pytest.approx(rates)
    assert not file.notes

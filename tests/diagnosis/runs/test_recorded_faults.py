"""Tables recorded on a real machine with one injected fault each, which must be detected and named."""

from __future__ import annotations

from pathlib import Path

import pytest

from railwright.expected.machine import Machine
from railwright.explain.table import explain
from railwright.results.readers.registry import read
from railwright.topology.cluster import build_cluster
from railwright.topology.sources.load import load

RAW = sorted(Path("testdata/explain/2xh200").glob("*.txt"))
FAULT_OF = {"channels": "few_channels", "off": "p2p_disabled", "socket": "p2p_disabled"}
# docs/measured/2xh200/README.md gives the reason.
NOT_NAMED = {"broadcast-8-channels", "broadcast-p2p-off"}
SECOND = {"all_gather-8-channels", "all_reduce-1-channels", "alltoall-1-channels", "broadcast-4-channels",
          "alltoall-8-channels", "reduce_scatter-8-channels"}  # fmt: skip


def explained(path: Path):
    (file,) = read(path.read_text(encoding="utf-8"))
    return explain(file, Machine(cluster=build_cluster(load("hgx-h200"), 1)))


def names(paths):
    return [path.stem for path in paths]


HEALTHY = [path for path in RAW if path.stem.endswith("healthy")]
FAULTY = [path for path in RAW if path not in HEALTHY]


def test_all_recorded_tables_are_there():
    assert len(HEALTHY) == 5
    assert len(FAULTY) == 22


@pytest.mark.parametrize("path", HEALTHY, ids=names(HEALTHY))
def test_a_healthy_table_is_ok(path):
    found = explained(path)
    assert found.verdict.state == "ok", found.verdict.why
    assert found.hypotheses == ()


@pytest.mark.parametrize("path", FAULTY, ids=names(FAULTY))
def test_a_slowed_table_is_slow_and_its_fault_is_named(path):
    found = explained(path)
    assert found.verdict.state == "slow"
    healthy, *supposed = found.hypotheses
    assert healthy.fault == "healthy"
    right = FAULT_OF[path.stem.rpartition("-")[2]]
    named = [one.fault for one in supposed]
    if path.stem in NOT_NAMED:
        assert right not in named[:2]  # if this changes, update the page
        return
    assert right in named[: 2 if path.stem in SECOND else 1], named
    assert all(one.tell_apart for one in supposed)

"""Groups of a lab's hosts grow until a merge gains nothing, and the host behind a slow link is named."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
from tests.conftest import PATIENCE_S, Driver
from tests.stand_ins import build

from railwright.diagnosis.peers.growth import judge_merge, losing_merges, merges
from railwright.lab import build as lab_build
from railwright.lab import remove
from railwright.lab.faults.applied import apply
from railwright.lab.faults.registry import find_fault
from railwright.lab.plan import PlanOptions, plan
from railwright.lab.state import Lab
from railwright.topology.cluster import Fabric, Tier, build_cluster
from railwright.topology.sources.load import load

pytestmark = [pytest.mark.machine, pytest.mark.skipif(os.geteuid() != 0, reason="waived: a lab needs root")]

FLOP_PER_S = 2.4e6
"""The sleep of each rank: by design the slow link takes several times as long, even on busy cores."""


@pytest.fixture(scope="module")
def lab() -> Iterator[Lab]:
    """4 hosts below 2 leaves."""
    name = f"grow{os.getpid()}"
    tiers = (Tier(hosts=2), Tier(name="spine", hosts=4, switches=1))
    cluster = build_cluster(load("hgx-h100 nics=1"), 4, Fabric(tiers=tiers))
    yield lab_build.up(plan(cluster, PlanOptions(name=name, rate_bits_per_s=400e6)), settle_within_s=PATIENCE_S)
    remove.down(name)


def test_groups_1_and_2_merge_3_and_4_gain_nothing_and_the_fourth_is_named(railwright: Driver, lab, tmp_path) -> None:
    library = tmp_path / "libscalapack.so"
    build("scalapack.c", library)
    apply(lab, find_fault("link_slow"), ["host3", "leaf1", "rate=2Mb/s"])
    asked = ("-o", "n=128", "-o", "nb=16", "-o", "threads=1", "-o", f"library={library}", "--force")
    done = railwright(
        "run", "hpl", "--grow", "--lab", lab.name, "--hosts", "host0,host1,host2,host3", *asked,
        environment={"STANDIN_SCALAPACK_FLOP_PER_S": f"{FLOP_PER_S:g}"},
    )  # fmt: skip
    results = railwright.results("hpl")
    every = merges(results)
    states = {(*one.first.members, "+", *one.second.members): judge_merge(one, every) for one in every}
    assert states["host2", "+", "host3"] == "loses", done.out
    assert states["host0", "+", "host1"] == "gains", done.out
    (finding,) = losing_merges(results)
    assert finding.where == ("hosts host3",)
    assert done.status == 1
    assert "largest group that gains: 3 hosts, host[0-2]" in done.out
    assert all(one.verification.bytes_wrong == 0 for one in results)
    sizes = {one.hosts: one.parameters["n"] for one in results if "n" in one.parameters}
    assert sizes == {1: 128, 2: 176, 3: 224, 4: 256}
    railwright.expect_nothing_left()

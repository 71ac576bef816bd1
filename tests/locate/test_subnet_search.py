"""Real hosts below the switches of a subnet: a slow link is named by its port, over the paths of the tables."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest
from tests.conftest import Driver
from tests.launch.bridged import bridged

pytestmark = [pytest.mark.machine, pytest.mark.skipif(os.geteuid() != 0, reason="waived: network namespaces need root")]

SUBNETS = Path(__file__).parents[2] / "testdata/external/subnet"
BELOW_LEAVES = ("host0", "host4", "host8", "host12")


def test_a_slow_port_is_named_over_the_ways_of_the_tables(railwright: Driver, tmp_path: Path) -> None:
    with bridged(4, rate_mbits=100) as there:
        cables = (SUBNETS / "ftree.cables.txt").read_text(encoding="utf-8")
        for name, recorded in zip(there.names, BELOW_LEAVES, strict=True):
            cables = cables.replace(f'"{recorded}"', f'"{name} mlx5_0"')
        (tmp_path / "fabric.txt").write_text(cables)
        slow = there.names[2]
        shape = ["tc", "qdisc", "change", "dev", "net1", "root", "tbf", "rate", "40mbit", "burst", "20kb"]
        subprocess.run(["ip", "netns", "exec", slow, *shape, "latency", "20ms"], check=True)
        subnet = ("--cabling", tmp_path / "fabric.txt", "--forwarding", SUBNETS / "ftree.tables.txt")
        done = railwright("locate", "--hosts", there.words, *subnet, "--json", "--force")
    found = json.loads(done.out)
    assert (done.status, [(one["kind"], one["id"], one["direction"]) for one in found["suspects"]]) == (
        1,
        [("nic", f"{slow}:mlx5_0", "up")],
    ), done.err
    assert "6 switches by their tables" in found["fabric"]

"""Faults on hosts with FRR 10 and Open vSwitch, in an IPv6-only lab.

The traffic tests are those of test_faults.py in another lab; all nine faults are injected and healed.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.conftest import PATIENCE_S, ROOT, wait_until
from tests.lab.test_faults import (
    _healed_after,  # noqa: F401 - a fixture
    put,
    test_a_cursed_route_hits_one_pair_over_one_spine_in_one_direction,  # noqa: F401
    test_a_link_that_is_down_is_left_by_all_flows_and_taken_again,  # noqa: F401
    test_a_smaller_mtu_at_one_end_swallows_long_packets_without_a_word,  # noqa: F401
    test_every_fault_healed_leaves_every_port_as_it_was,  # noqa: F401
)

from railwright.lab import build, remove
from railwright.lab.faults import cpu
from railwright.lab.faults.applied import heal
from railwright.lab.frr_install import FRR10_VARIABLE
from railwright.lab.plan import PlanOptions, plan
from railwright.lab.state import Lab
from railwright.topology.cluster import build_cluster
from railwright.topology.sources.load import load

FRR10 = ROOT / ".cache/frr10"

pytestmark = [
    pytest.mark.machine,
    pytest.mark.skipif(os.geteuid() != 0, reason="waived: a lab needs root"),
    pytest.mark.skipif(not FRR10.exists(), reason="waived: FRR 10 is not unpacked (make test-deps)"),
    pytest.mark.skipif(not Path("/usr/sbin/ovs-vswitchd").exists(), reason="waived: Open vSwitch is not installed"),
]


@pytest.fixture(scope="module")
def lab() -> Iterator[Lab]:
    """4 hosts, 2 leaves, 2 spines, every link 100 Mb/s."""
    name = f"others{os.getpid()}"
    options = PlanOptions(name=name, rate_bits_per_s=1e8, frr="10", ovs=True, ipv6_only=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(FRR10_VARIABLE, str(FRR10))
        made = build.up(plan(build_cluster(load("hgx-h100 nics=1"), 4), options), settle_within_s=PATIENCE_S)
    yield made
    remove.down(name)


def commands_in(group: Path) -> set[str]:
    found = set()
    for pid in (group / "cgroup.procs").read_text().split():
        words = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()
        found |= {name for name in ("ovsdb-server", "ovs-vswitchd", "bgpd", "zebra", "mgmtd") if f"{name} " in words}
    return found


def test_all_daemons_of_a_slow_host_share_its_little_cpu(lab: Lab) -> None:
    put(lab, "host_slow host2 share=20%")
    group = cpu.cgroup_path(lab, "host2")
    every = {"ovsdb-server", "ovs-vswitchd", "bgpd", "zebra", "mgmtd"}
    wait_until(lambda: commands_in(group) == every, "a cgroup with all daemons")
    heal(lab)
    assert not group.exists()

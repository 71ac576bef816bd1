"""The loss from a fault is the difference between a machine's limits with and without it."""

import pytest
from tests.checks.machines import tuned, with_facts, with_links
from tests.checks.test_host_settings import AT_FAULT

from railwright.faults.every_check import EVERY_CHECK
from railwright.faults.slowed import find_slowed
from railwright.topology.expand import expand

OF = {check.name: check.mend for check in EVERY_CHECK if check.mend is not None}
LOSING = ("payload", "half of the lanes", "no GPUDirect", "a port that is down", "MTU", "NVLinks")


@pytest.mark.parametrize("name", LOSING)
def test_a_machine_with_the_fault_loses_and_never_gains(name):
    check, *_, machine = AT_FAULT[name]
    found = find_slowed(OF[check], machine)
    assert found
    assert all(0 < one.with_fault_bytes_per_s < one.without_bytes_per_s for one in found)
    shares = [one.with_fault_bytes_per_s / one.without_bytes_per_s for one in found]
    assert shares == sorted(shares)
    named = [what for one in found for what in one.what]
    assert len(named) == len(set(named))


def test_half_of_the_lanes_is_half_of_the_paths_over_them():
    machine = with_links(tuned(), "gpu3", gt_per_s=32.0, width=8, max_gt_per_s=32.0, max_width=16)
    (first, *_) = find_slowed(OF["pcie_below_maximum"], machine)
    assert first.what == ("gpu3>nic3", "gpu3>memory0")
    assert first.with_fault_bytes_per_s / first.without_bytes_per_s == pytest.approx(0.5)


@pytest.mark.parametrize("name", OF)
def test_a_healthy_machine_loses_nothing(name):
    now, without = OF[name](tuned())
    assert name == "gpudirect_off" or now == without


def test_what_has_no_limits_loses_nothing_that_is_told():
    """A laptop without a GPU and a NIC, and a port without a sibling."""
    laptop = expand("laptop", {})
    assert all(find_slowed(mend, laptop) == () for mend in OF.values())
    down = with_facts(tuned(), "nic", state="down")
    assert find_slowed(OF["nic_unused"], down) == ()

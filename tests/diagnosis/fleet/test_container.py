"""A container that lacks parts of its host is slow without failing; comparing it with its host shows the parts."""

from tests.checks.machines import tuned, with_facts

from railwright.checks.check import Facts
from railwright.diagnosis.fleet.container import Unlike, container_findings, find_differences
from railwright.diagnosis.fleet.settings import describe_host
from railwright.faults.every_check import EVERY_CHECK

HOST = tuned()
CONTAINER = with_facts(tuned(), "host", verbs_devices="none", dev_shm_bytes=64 * 2**20, memlock_bytes=65536)


def findings(machine, environment=()):
    facts = Facts(topology=machine, environment=dict(environment))
    return [finding for check in EVERY_CHECK for finding in check.look(facts)]


def test_missing_devices_are_a_fault_of_the_container_alone():
    found = container_findings(findings(HOST), findings(CONTAINER, {"NCCL_IB_DISABLE": "1"}))
    assert {one.fault for one in found} >= {
        "rdma_devices_missing",
        "shared_memory_small",
        "memlock_low",
        "tcp_fallback",
    }
    assert container_findings(findings(CONTAINER), findings(CONTAINER)) == ()


def test_what_both_have_is_no_fault_of_the_container():
    both = [with_facts(one, "host", numa_balancing=1) for one in (HOST, CONTAINER)]
    assert "numa_balancing_on" in {one.fault for one in findings(both[1])}
    assert "numa_balancing_on" not in {one.fault for one in container_findings(*map(findings, both))}


def test_each_thing_that_differs_is_told_once_with_both_values():
    assert set(find_differences(describe_host(HOST), describe_host(CONTAINER))) == {
        Unlike(what="host verbs_devices", host="8", container="none"),
        Unlike(what="host dev_shm_bytes", host="1024 GiB", container="64 MiB"),
        Unlike(what="host memlock_bytes", host="unlimited", container="65536"),
    }
    assert list(find_differences({"nic state": "up"}, {})) == [Unlike(what="nic state", host="up", container=None)]

"""Findings from runs of the RDMA benchmarks: counters that moved, and registrations of GPU memory."""

from __future__ import annotations

import pytest
from tests.checks.machines import tuned, with_facts

from railwright.checks import rdma_counters_moved
from railwright.checks.check import Facts
from railwright.faults import gpudirect_off
from railwright.results.records import Evidence, Result


def result(claim: str, value: str, seen: str = "node1 rank 0 mlx5_0:1 out_of_sequence +9") -> Result:
    evidence = (Evidence(claim=claim, value=value, seen=seen),)
    return Result(
        benchmark="rdma_write",
        quantity="bandwidth_bytes_per_s",
        path="memory0@0>memory0@1",
        evidence=evidence,
        hosts=2,
        ranks=2,
    )


def test_only_counters_that_moved_are_a_finding_with_the_path_and_the_count():
    def look(value: str):
        return rdma_counters_moved.CHECK.look(Facts(topology=tuned(), results=(result("rdma_counters", value),)))

    (found,) = look("moved")
    assert found.where == ("rdma_write", "memory0@0>memory0@1")
    assert found.says.endswith("during the measurement: node1 rank 0 mlx5_0:1 out_of_sequence +9")
    assert found.certainty == "likely"
    assert (look("clean"), look("unknown")) == ((), ())


@pytest.mark.parametrize(
    ("value", "says"), [("none", ["a NIC could not register GPU memory"]), ("dma-buf and peermem", [])]
)
def test_a_registration_of_gpu_memory_proves_more_than_modules(value, says):
    without = with_facts(tuned(), "host", 0, modules="ib_core")
    for number in range(8):
        without = with_facts(without, "gpu", number, dma_buf=False)
    assert gpudirect_off.FAULT.look(Facts(topology=without))
    tried = result("gpu_registration", value, "mlx5_0 with 0000:1b:00.0: dma-buf registered")
    found = gpudirect_off.FAULT.look(Facts(topology=without, results=(tried,)))
    assert [one.says.partition(":")[0] for one in found][: len(says)] == says
    assert bool(found) == bool(says)

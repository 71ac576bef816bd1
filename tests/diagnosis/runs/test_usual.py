"""Baselines at a tenth of those of their class are reported; healthy ones and those of unknown classes are not."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from railwright.benchmarks.registry import DECLARATIONS
from railwright.diagnosis.runs.usual import find_unusual
from railwright.results.records import Result
from railwright.results.statistics import summarise
from railwright.topology.expand import expand

MIB = 2**20


def machine(cpu="Intel(R) Xeon(R) Processor"):
    laptop = expand("laptop", {})
    return replace(
        laptop, devices=tuple(replace(one, name=cpu) if one.kind == "cpu" else one for one in laptop.devices)
    )


def copied(value, size=64 * MIB, path="memory0>memory0", **more):
    return Result(
        benchmark="memory_copy", quantity="bandwidth_bytes_per_s", path=path, samples=(value,),
        parameters={"size_bytes": size, "threads": 1}, summary=summarise([value]), **more,
    )  # fmt: skip


def line(value):
    return Result(benchmark="core_latency", quantity="latency_s", path="memory0>memory0", samples=(value,),
                  summary=summarise([value]))  # fmt: skip


@pytest.mark.parametrize(("slow", "fine"), [(copied(0.5e9), copied(0.6e9)), (line(0.9e-6), line(0.8e-6))])
def test_a_tenth_of_the_class_is_told_and_a_little_more_is_not(slow, fine):
    (finding,) = find_unusual([slow], DECLARATIONS, machine())
    assert (finding.fault, finding.certainty, finding.where) == ("far_from_its_class", "possible", (slow.benchmark,))
    assert find_unusual([fine], DECLARATIONS, machine()) == ()
    assert find_unusual([slow, fine], DECLARATIONS, machine()) == (), "the best launch decides"


def test_what_is_no_reference_of_the_class_says_nothing():
    for other in (copied(0.5e9, size=MIB), copied(0.5e9, path="memory0>memory1"), copied(0.5e9, outcome="failed")):
        assert find_unusual([other], DECLARATIONS, machine()) == ()
    for cpu in ("", "a stranger"):
        assert find_unusual([copied(0.5e9)], DECLARATIONS, machine(cpu)) == ()

"""Symmetric buffers without NVLS: certain if the run allows a comparison, otherwise only possible."""

from __future__ import annotations

import pytest
from msgspec.structs import replace
from tests.topology.machines import archive

from railwright.benchmarks.registry import DECLARATIONS
from railwright.checks.check import Facts
from railwright.checks.finding import Finding
from railwright.checks.symmetric_without_nvls import CHECK
from railwright.results.records import Result
from railwright.results.statistics import summarise
from railwright.topology.sources.load import load
from railwright.units import GIB, MIB

TOPOLOGY = load(str(archive("2xh200-probed-vm")))
MS = 1e-3


def result(seconds: float, buffers: str = "", benchmark: str = "nccl_all_reduce", size_bytes: int = 8 * GIB) -> Result:
    parameters = {"size_bytes": size_bytes, "placement": "in place"} | ({"buffers": buffers} if buffers else {})
    return Result(
        benchmark=benchmark, quantity="latency_s", path="gpu0>gpu1", parameters=parameters, ranks=2,
        settings={"nvls": "off (NCCL_NVLS_ENABLE=0)"}, samples=(seconds,), summary=summarise([seconds]),
    )  # fmt: skip


def look(*results: Result) -> tuple[Finding, ...]:
    return CHECK.look(Facts(declarations=DECLARATIONS, topology=TOPOLOGY, results=results))


@pytest.mark.parametrize(("buffers", "kind"), [("", "plain"), ("registered", "registered")])
def test_what_other_buffers_took_in_the_same_run_is_the_evidence(buffers: str, kind: str) -> None:
    elsewhere = replace(result(1 * MS), parameters={"size_bytes": 8 * GIB, "placement": "out of place"})
    (finding,) = look(elsewhere, result(33.2 * MS, "symmetric"), result(24.5 * MS, buffers))
    assert (finding.certainty, finding.where) == ("seen", ("nccl_all_reduce", "buffers symmetric"))
    assert finding.says == (
        f"all_reduce of 8 GiB takes 1.36 times as long with symmetric buffers, without NVLS, as with {kind} ones"
    )
    assert finding.evidence[0].value == f"33.2 ms and 24.5 ms (symmetric, {kind})"


def test_plain_buffers_are_compared_with_before_registered_ones() -> None:
    (finding,) = look(result(30 * MS, "symmetric"), result(29.9 * MS, "registered"), result(25 * MS))
    assert "as with plain ones" in finding.says


def test_the_worst_size_is_told() -> None:
    large, small = result(30 * MS, "symmetric"), result(1.1 * MS, "symmetric", size_bytes=256 * MIB)
    (finding,) = look(large, small, result(25 * MS), result(1 * MS, size_bytes=256 * MIB))
    assert "8 GiB takes 1.20" in finding.says


def test_without_a_comparison_it_is_possible() -> None:
    (finding,) = look(result(33.2 * MS, "symmetric"))
    assert (finding.certainty, finding.evidence) == ("possible", ())
    assert "measured on 2 H200" in finding.costs


@pytest.mark.parametrize(
    "one",
    [
        result(25.1 * MS, "symmetric"),  # as long as plain ones
        result(33 * MS, "registered"),
        result(33 * MS, "symmetric", "nccl_all_to_all"),
        result(33 * MS, "symmetric", size_bytes=32 * MIB),
        replace(result(33 * MS, "symmetric"), settings={}),  # NVLS may be used
        replace(result(33 * MS, "symmetric"), outcome="waived", summary=None),
    ],
)
def test_other_buffers_operations_sizes_and_nvls_say_nothing(one: Result) -> None:
    assert look(one, result(25 * MS), result(25 * MS, size_bytes=32 * MIB)) == ()


def test_a_time_of_zero_is_nothing_to_compare_with() -> None:
    (finding,) = look(result(33.2 * MS, "symmetric"), result(0.0), result(24.5 * MS, "registered"))
    assert "as with registered ones" in finding.says
    (alone,) = look(result(33.2 * MS, "symmetric"), result(0.0))
    assert alone.certainty == "possible"

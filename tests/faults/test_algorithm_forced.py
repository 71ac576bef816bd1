"""NVLS that is switched off: only possible in our collectives, a fault in tables of other tools."""

from __future__ import annotations

import pytest
from msgspec.structs import replace
from tests.topology.machines import archive

from railwright.benchmarks.registry import DECLARATIONS
from railwright.checks.check import Facts
from railwright.diagnosis.runs.diagnose import diagnose
from railwright.errors import EXIT_OK
from railwright.expected.nccl_collectives import nvls_is_off
from railwright.faults.algorithm_forced import FAULT
from railwright.results.records import Context, End, Result, ResultFile, Run, Verification
from railwright.results.statistics import summarise
from railwright.topology.devices import Topology
from railwright.topology.sources.load import load

OFF = {"NCCL_NVLS_ENABLE": "0"}


@pytest.fixture(scope="module")
def eight() -> Topology:
    return load(str(archive("8xh200-probed-vm")))


def result(benchmark: str = "nccl_all_reduce", ranks: int = 8, value: float = 367e9, **changed: object) -> Result:
    made = Result(
        benchmark=benchmark,
        quantity="bandwidth_bytes_per_s",
        path=f"gpu0>gpu{ranks - 1}",
        parameters={"size_bytes": 2**33, "placement": "in place", "rate": "busbw"},
        settings={"nccl": "2.28.9", "nvls": "off (NCCL_NVLS_ENABLE=0)"},
        ranks=ranks,
        samples=(value,),
        summary=summarise([value]),
        verification=Verification(method="m", bytes_checked=1, bytes_wrong=0),
    )
    return replace(made, **changed)


def test_it_is_said_once_as_waived_and_leaves_a_healthy_run_ok(eight: Topology) -> None:
    run = Run(
        railwright="0.1.0", started_at="2026-11-22T10:00:00+00:00", command=("railwright",), topology=eight,
        context=Context(host="vm", kernel="6.18", environment=OFF),
    )  # fmt: skip
    results = (result(), result("nccl_all_gather", value=359e9), result(value=366e9))
    found = diagnose(
        ResultFile(run=run, results=results, end=End(finished_at="2026-11-22T10:01:00+00:00")), DECLARATIONS
    )
    (finding,) = found.findings
    assert (finding.fault, finding.certainty) == ("algorithm_forced", "possible")
    assert "NVLS (NVLink SHARP) is switched off by NCCL_NVLS_ENABLE=0" in finding.says
    assert "unset" not in finding.remedy
    assert [path.verdict.state for path in found.paths] == ["ok", "ok"]
    assert found.exit_status == EXIT_OK


def test_the_evidence_is_what_ran_first_and_every_benchmark_once(eight: Topology) -> None:
    results = (result(), result("nccl_all_gather", ranks=4), result(ranks=4))
    (finding,) = FAULT.look(Facts(declarations=DECLARATIONS, topology=eight, results=results, environment=OFF))
    assert [one.seen for one in finding.evidence] == ["8 ranks, nccl_all_reduce, nccl_all_gather"]


@pytest.mark.parametrize(
    "results",
    [
        (result(ranks=2),),  # NCCL uses NVLS from three ranks on
        (result("gpu_copy", settings={}), result("kv_vram", ranks=2, settings={})),
        (result(outcome="waived", reason="NCCL cannot be loaded", settings={}, summary=None, samples=()),),
    ],
)
def test_a_run_in_which_nothing_could_have_used_it_is_told_nothing(
    eight: Topology, results: tuple[Result, ...]
) -> None:
    assert FAULT.look(Facts(declarations=DECLARATIONS, topology=eight, results=results, environment=OFF)) == ()
    assert (
        FAULT.look(
            Facts(declarations=DECLARATIONS, topology=eight, results=results, environment={"NCCL_CUMEM_ENABLE": "0"})
        )
        == ()
    )


def test_gpus_without_multicast_lose_nothing_by_it(eight: Topology) -> None:
    devices = tuple(
        replace(one, facts={**one.facts, "multicast": False}) if one.kind == "gpu" else one for one in eight.devices
    )
    without = replace(eight, devices=devices)
    assert FAULT.look(Facts(declarations=DECLARATIONS, topology=without, results=(result(),), environment=OFF)) == ()


def test_other_settings_keep_being_a_fault_of_collectives(eight: Topology) -> None:
    seen = FAULT.look(
        Facts(
            declarations=DECLARATIONS,
            topology=eight,
            results=(result(settings={"nccl": "2.28.9"}),),
            environment={"NCCL_ALGO": "Tree", "NCCL_CUMEM_ENABLE": "0"},
        )
    )
    assert {(one.certainty, one.evidence[0].value) for one in seen} == {
        ("seen", "NCCL_ALGO=Tree"),
        ("seen", "NCCL_CUMEM_ENABLE=0"),
    }


@pytest.mark.parametrize(
    ("settings", "environment", "off"),
    [
        ({"nvls": "off (NCCL_NVLS_ENABLE=0)"}, {}, True),
        ({}, OFF, True),
        ({}, {"NCCL_NVLS_ENABLE": "1"}, False),
        ({}, {"NCCL_NVLS_ENABLE": ""}, False),
        ({}, {}, False),
    ],
)
def test_it_is_off_as_the_result_or_the_run_says(settings: dict, environment: dict, off: bool) -> None:
    assert nvls_is_off(settings.get("nvls", ""), environment) is off

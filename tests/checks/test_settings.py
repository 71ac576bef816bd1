"""Settings that cause a fault are found where they were recorded, and truncated when shown."""

from __future__ import annotations

import pytest

from railwright.checks.check import Facts
from railwright.faults.every_check import EVERY_CHECK
from railwright.results.records import Result
from railwright.topology.expand import expand

MACHINE = expand("hgx-h100", {})

MAKING = [
    ("gpudirect_off", "NCCL_NET_GDR_LEVEL", "LOC"),
    ("gpudirect_off", "NCCL_NET_GDR_LEVEL", "0"),
    ("gpudirect_off", "NCCL_NET_GDR_READ", "0"),
    ("tcp_fallback", "NCCL_NET", "Socket"),
    ("tcp_fallback", "NCCL_IB_DISABLE", "1"),
    ("p2p_disabled", "NCCL_P2P_DISABLE", "1"),
    ("p2p_disabled", "NCCL_P2P_LEVEL", "LOC"),
    ("p2p_disabled", "NCCL_SHM_DISABLE", "1"),
    ("algorithm_forced", "NCCL_ALGO", "Ring"),
    ("algorithm_forced", "NCCL_NVLS_ENABLE", "0"),
    ("pxn_off", "NCCL_PXN_DISABLE", "1"),
    ("pxn_off", "NCCL_P2P_PXN_LEVEL", "0"),
    ("connection_ceiling", "NCCL_BUFFSIZE", "1048576"),
    ("connection_ceiling", "NCCL_P2P_NET_CHUNKSIZE", "65536"),
    ("few_channels", "NCCL_MAX_NCHANNELS", "1"),
    ("connection_ceiling", "NCCL_NCHANNELS_PER_NET_PEER", "1"),
]
HARMLESS = {
    "NCCL_NET_GDR_LEVEL": "PHB",
    "NCCL_NET_GDR_READ": "1",
    "NCCL_NET": "IB",
    "NCCL_IB_DISABLE": "0",
    "NCCL_P2P_DISABLE": "0",
    "NCCL_P2P_LEVEL": "SYS",
    "NCCL_ALGO": " ",
    "NCCL_NVLS_ENABLE": "1",
    "NCCL_PXN_DISABLE": "0",
    "NCCL_P2P_PXN_LEVEL": "2",
    "NCCL_BUFFSIZE": "8388608",
    "NCCL_P2P_NET_CHUNKSIZE": "524288",
    "NCCL_MAX_NCHANNELS": "32",
    "NCCL_DEBUG": "INFO",
    "UCX_TLS": "all",
}


def findings_of(facts: Facts) -> list[tuple[str, str, tuple[str, ...]]]:
    found = [finding for check in EVERY_CHECK for finding in check.look(facts)]
    return [(finding.fault, finding.evidence[0].value, finding.where) for finding in found]


@pytest.mark.parametrize(("fault", "name", "value"), MAKING)
def test_a_setting_of_the_run_is_seen_as_its_fault_and_no_other(fault: str, name: str, value: str) -> None:
    facts = Facts(topology=MACHINE, environment={name: value})
    assert findings_of(facts) == [(fault, f"{name}={value}", ("environment",))]


@pytest.mark.parametrize(("fault", "name", "value"), MAKING)
def test_a_setting_recorded_with_results_names_their_benchmark_once(fault: str, name: str, value: str) -> None:
    result = Result(
        benchmark="all_reduce", quantity="bandwidth_bytes_per_s", path="gpus", hosts=2, settings={name: value}
    )
    facts = Facts(topology=MACHINE, results=(result, result))
    assert findings_of(facts) == [(fault, f"{name}={value}", ("all_reduce",))]


def test_every_finding_of_a_setting_says_its_cost_with_a_source_and_a_remedy() -> None:
    facts = Facts(topology=MACHINE, environment={name: value for _, name, value in MAKING})
    found = [finding for check in EVERY_CHECK for finding in check.look(facts)]
    assert found
    for finding in found:
        assert finding.certainty == "seen"
        assert "nccl" in finding.costs.lower()
        assert "NCCL User Guide" in finding.remedy


def test_settings_that_cost_nothing_are_no_fault() -> None:
    assert findings_of(Facts(topology=MACHINE, environment=HARMLESS)) == []


@pytest.mark.parametrize("value", ["", "-1", "1e3", "0x10", "9" * 10_000, "\u0661", "LOC\n", "\x1b[31m" * 1000])
def test_hostile_values_are_bounded_and_break_nothing(value: str) -> None:
    environment = {name: value for _, name, _ in MAKING}
    for check in EVERY_CHECK:
        for finding in check.look(Facts(topology=MACHINE, environment=environment)):
            assert len(finding.says) < 300
            assert all(len(one.value) < 200 for one in finding.evidence)

"""PCIe machines compared with published tables: testdata/calibration/pcie.csv, whose systems are split before use.

Rows for calibration support the constants of `nccl`. The systems kept aside are only compared.
"""

from __future__ import annotations

import csv
from pathlib import Path

import pytest
from msgspec.structs import replace

from railwright.busbw import busbw_factor
from railwright.limits import nccl
from railwright.limits.case import Case
from railwright.limits.choice import choose_at_size
from railwright.limits.collectives import compute_algorithms
from railwright.topology.cluster import build_cluster
from railwright.topology.sources.load import load

ROWS = list(csv.DictReader(Path("testdata/calibration/pcie.csv").read_text(encoding="utf-8").splitlines()))
GEN5_PAYLOAD = 57.5


def with_cpu(topology, words):
    """Return the same machine with the processor of the row, named as in /proc/cpuinfo."""
    vendor, family, model = words.split()
    facts = {"vendor": vendor, "family": int(family), "model": int(model)}
    devices = tuple(
        replace(device, facts=device.facts | facts) if device.kind == "cpu" else device for device in topology.devices
    )  # fmt: skip
    return replace(topology, devices=devices)


def band_of(row):
    cluster = build_cluster(with_cpu(load(row["machine"]), row["cpu"]), int(row["hosts"]))
    found = compute_algorithms(Case(cluster=cluster), row["test"], explained=False)
    _, rate, _ = choose_at_size(cluster, row["test"], found, int(row["message_bytes"]))
    return rate.times(float(busbw_factor(row["test"], cluster.ranks)) / 1e9)


def values(use, **wanted):
    found = [row for row in ROWS if row["use"] == use and all(row[key] == value for key, value in wanted.items())]
    assert found
    return [float(row["value_gb_per_s"]) for row in found]


@pytest.mark.parametrize(
    "row", [row for row in ROWS if row["machine"]], ids=lambda row: f"{row['system']} {row['use']}"
)
def test_a_healthy_machine_is_inside_its_band(row):
    rate, value = band_of(row), float(row["value_gb_per_s"])
    assert rate.expected_low < value < rate.expected_high
    assert value <= rate.limit


def test_no_system_both_calibrates_and_tests():
    uses = {}
    for row in ROWS:
        uses.setdefault(row["system"], set()).add(row["use"])
    assert not [system for system, found in uses.items() if {"calibration", "holdout"} <= found]
    assert len(values("holdout")) >= 12


def test_the_constants_agree_with_the_rows():
    rome = values("calibration", cpu="AuthenticAMD 23 49", path="across sockets")
    assert nccl._SOCKETS["Zen 2"][1].value == pytest.approx(1.2 * max(rome) * 1e9, rel=0.01)
    for name, cpu in (("Zen 3 or 4", "AuthenticAMD 25 17"), ("AMD", "AuthenticAMD 26 2")):
        seen = values("calibration", cpu=cpu, path="across sockets")
        assert nccl._SOCKETS[name][1].value == pytest.approx(1.1 * max(seen) * 1e9, rel=0.01)
    without = [value / GEN5_PAYLOAD for value in values("calibration", peers="off")]
    low, high = (peer.value for peer in nccl._WITHOUT_PEERS)
    assert low < min(without)
    assert max(without) < high
    assert high / low < 1.5


def test_the_ramp_over_pcie_is_twice_that_of_the_table():
    table = {int(row["message_bytes"]): float(row["value_gb_per_s"]) for row in ROWS if "7955WX" in row["system"]}
    halvings = 4
    from_latency_and_ramp = 1 - table[2**26] / table[2**30]
    assert 0.01 * halvings > 2 * from_latency_and_ramp


@pytest.mark.parametrize(
    ("cpu", "name"),
    [("AuthenticAMD 23 1", "AMD"), ("AuthenticAMD 23 49", "Zen 2"), ("AuthenticAMD 25 1", "Zen 3 or 4"),
     ("AuthenticAMD 25 17", "Zen 3 or 4"), ("AuthenticAMD 26 2", "AMD"), ("GenuineIntel 6 143", "Sapphire Rapids")],
)  # fmt: skip
def test_a_processor_s_class_is_that_of_its_family_and_model(cpu, name):
    assert nccl._cpu_class(with_cpu(load("rtx-4090"), cpu).of_kind("cpu")[0]) == name


@pytest.mark.parametrize(
    ("shape", "known"), [("h100-pcie nics-at=cpu", False), ("h100-pcie", True), ("rtx-4090", False), ("mi250x", False)]
)
def test_the_cpu_carries_only_gpus_data_if_each_switch_has_a_nic(shape, known):
    assert nccl._every_gpu_has_a_nic_at_its_switch(load(shape)) is known

"""Linpack: TOP500 systems, each compared with the others alone, and known slow systems."""

from __future__ import annotations

import csv
from collections import defaultdict
from pathlib import Path

import pytest
from msgspec.structs import replace

from railwright.expected.linpack import expect_hpl
from railwright.limits.linpack import bytes_into_host
from railwright.topology.sources.load import load

MACHINES = {
    "A100 80": "hgx-a100", "A100 40": "aws-p4d", "GH200": "gh200", "H100 SXM": "hgx-h100", "H200": "hgx-h200",
    "H100 PCIe": "h100-pcie-8gpu", "V100": "dgx-1-v100", "MI250X": "mi250x", "MI300A": "mi300a",
}  # fmt: skip
DIES = {"MI250X": 2}
"""GPUs as the system shows them, for each accelerator of the list."""


def systems():
    found = defaultdict(list)
    text = Path("testdata/calibration/top500.csv").read_text(encoding="utf-8")
    for row in csv.DictReader(text.splitlines()):
        found[row["gpu"]].append((int(row["gpus"]), int(row["order"]), float(row["rmax_tflop_per_s"]) * 1e12))
    return found


SYSTEMS = systems()


def test_every_gpu_of_the_list_has_a_limit_and_a_band():
    for gpu, rows in SYSTEMS.items():
        host = load(MACHINES[gpu])
        answers = [expect_hpl(host, gpus * DIES.get(gpu, 1), order)[1] for gpus, order, _ in rows]
        assert sum(band is not None for band in answers) >= 0.95 * len(rows), gpu


def test_nine_of_ten_systems_are_inside_a_range_that_the_others_alone_give():
    """Each system is left out in turn: the range from the 5th to the 95th of 100 of the others, 5 % wider at both
    ends.
    """
    inside = total = 0
    for rows in SYSTEMS.values():
        rates = [flops / gpus for gpus, _, flops in rows]
        if len(rates) < 8:
            continue
        for place, rate in enumerate(rates):
            others = sorted(rates[:place] + rates[place + 1 :])
            low, high = others[int(0.05 * len(others))], others[min(len(others) - 1, int(0.95 * len(others)))]
            inside += low * 0.95 <= rate <= high * 1.05
            total += 1
    assert total > 200
    assert inside / total > 0.85


@pytest.mark.parametrize("gpu", MACHINES)
def test_no_system_is_above_its_limit(gpu):
    host = load(MACHINES[gpu])
    for gpus, order, flops in SYSTEMS[gpu]:
        limit, _ = expect_hpl(host, gpus * DIES.get(gpu, 1), order)
        if flops / gpus < 7e12 or gpu != "V100":  # one entry of the list counts its accelerators wrongly
            assert flops <= limit.value


def test_h100_on_pcie_is_not_compared_with_sxm():
    order = int((0.8 * 8 * 80e9 / 8) ** 0.5)
    pcie, sxm = (expect_hpl(load(name), 8, order)[1] for name in ("h100-pcie-8gpu", "hgx-h100"))
    assert pcie.low < 8 * 25e12 < sxm.low
    assert "H100 PCIe" in pcie.because


def test_a_matrix_beyond_the_memory_is_reported_and_a_tiny_one_has_no_peers():
    host = load("hgx-h100")
    order = int((1.5 * 8 * 85.9e9 / 8) ** 0.5)
    assert "times the GPUs' memory" in expect_hpl(host, 8, order)[0].because
    limit, band = expect_hpl(host, 8, 20_000)
    assert band is None
    assert "only an upper limit" in limit.because


def test_the_slow_cluster_of_a_report_is_slow_and_its_repair_is_not():
    """Lyapunov, 134 hosts with A100 40 GB: 8.82 TFLOP/s per GPU over bad routes, 11.95 after the repair."""
    _, band = expect_hpl(load("aws-p4d"), 1072, 2_315_808)
    assert 8.82e12 * 1072 < band.low < 11.95e12 * 1072 < band.high


def test_v100_has_its_rate_without_tensor_cores():
    limit, band = expect_hpl(load("dgx-1-v100"), 8, 170_000)
    assert limit.value == pytest.approx(8 * 7.8e12)
    assert band is not None


def test_a_gpu_of_unknown_memory_has_no_peers():
    host = load("hgx-h100")
    devices = tuple(
        replace(device, facts={key: value for key, value in device.facts.items() if key != "memory_bytes"})
        for device in host.devices
    )
    limit, band = expect_hpl(replace(host, devices=devices), 8, 200_000)
    assert band is None
    assert "memory" in limit.because


def test_a_host_receives_the_panels_and_rows_that_its_grid_lacks():
    elements = 1000**2 / 2
    assert bytes_into_host(1000, (2, 4), 8) == 0  # one host has everything
    assert bytes_into_host(1000, (2, 8), 8) == 8 * elements * (1 - 1 / 2)  # a row each: all columns, half of the rows
    assert bytes_into_host(1000, (1, 16), 8) == 8 * elements / 2  # all rows, so only panels cross
    assert bytes_into_host(1000, (2, 2), 1) == 8 * elements * (1 / 4 + 1 / 4)

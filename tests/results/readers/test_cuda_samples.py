"""The CUDA samples: the copy of each cell, halved sums, units, and skipped cells."""

from __future__ import annotations

import pytest
from tests.results.readers.recorded import THREADS

from railwright.errors import UsageError
from railwright.expected.machine import Machine
from railwright.explain.table import explain
from railwright.results.readers import cuda_samples, registry
from railwright.topology.cluster import build_cluster
from railwright.topology.sources.load import load

MATRICES = """\
[P2P (Peer-to-Peer) GPU Bandwidth Latency Test]
Device: 0, NVIDIA H100 80GB HBM3, pciBusID: 1b, pciDeviceID: 0, pciDomainID:0
Device: 1, NVIDIA H100 80GB HBM3, pciBusID: 43, pciDeviceID: 0, pciDomainID:0
P2P Connectivity Matrix
     D\\D     0     1
     0\t     1     1
     1\t     1     1
Unidirectional P2P=Disabled Bandwidth Matrix (GB/s)
   D\\D     0      1
     0 2488.54  36.50
     1  37.50 2492.10
Unidirectional P2P=Enabled Bandwidth (P2P Writes) Matrix (GB/s)
   D\\D     0      1
     0 2488.54 385.53
     1 386.11 2492.10
Bidirectional P2P=Enabled Bandwidth Matrix (GB/s)
   D\\D     0      1
     0 2503.69 760.00
     1 762.00 2505.01
P2P=Enabled Latency (P2P Writes) Matrix (us)
   GPU     0      1
     0   2.10   2.40
     1   2.41   2.13

   CPU     0      1
     0   1.90   1.30
     1   1.31   1.92
"""
ONE_GPU = """\
[CUDA Bandwidth Test] - Starting...
 Device 0: Tesla P100-PCIE-16GB
 Host to Device Bandwidth, 1 Device(s)
 PINNED Memory Transfers
   Transfer Size (Bytes)        Bandwidth(MB/s)
   33554432                     12150.7
 Device to Host Bandwidth, 1 Device(s)
 PAGEABLE Memory Transfers
   Transfer Size (Bytes)        Bandwidth(GB/s)
   32000000                     6.5
 Device to Device Bandwidth, 1 Device(s)
 PINNED Memory Transfers
   Transfer Size (Bytes)        Bandwidth(MB/s)
   33554432                     443837.7
Result = PASS
"""


def rows(text: str) -> list[tuple[object, str, float]]:
    (file,) = registry.read(text)
    return [(one.parameters["test"], one.path, one.summary.median) for one in file.results]


def test_each_cell_is_a_copy_and_both_directions_are_halved():
    assert rows(MATRICES) == [
        ("device_to_device_write_through_host", "gpu0>gpu1", 36.5e9),
        ("device_to_device_write_through_host", "gpu1>gpu0", 37.5e9),
        ("device_to_device_write", "gpu0>gpu1", 385.53e9),
        ("device_to_device_write", "gpu1>gpu0", 386.11e9),
        ("device_to_device_bidirectional_write", "gpu0>gpu1", 380e9),
        ("device_to_device_bidirectional_write", "gpu1>gpu0", 381e9),
    ]
    (file,) = registry.read("".join(f"> {line}\n" for line in MATRICES.splitlines()))
    assert (file.tool, file.test, len(file.results)) == ("CUDA samples", "p2pBandwidthLatencyTest", 6)
    assert file.gpus == ("NVIDIA H100 80GB HBM3",)


def test_old_versions_count_in_powers_of_two():
    assert rows(ONE_GPU) == [
        ("host_to_device", "memory0>gpu0", pytest.approx(12150.7 * 2**20)),
        ("device_to_host_pageable", "gpu0>memory0", 6.5e9),
    ]


def told(text: str, machine: str):
    (file,) = registry.read(text)
    return explain(file, Machine(cluster=build_cluster(load(machine), 1)))


def test_what_goes_out_of_pageable_memory_has_no_band_and_what_goes_through_the_host_one_of_its_own():
    states = {(row.parameters["test"], row.verdict.state) for row in told(MATRICES, "hgx-h100 gpus=2").rows}
    assert states == {
        ("device_to_device_write_through_host", "ok"),
        ("device_to_device_write", "ok"),
        ("device_to_device_bidirectional_write", "ok"),
    }
    states = [row.verdict.state for row in told(ONE_GPU, "a100-pcie-40gb-8gpu gpus=1 pcie=3").rows]
    assert states == ["unknown", "unknown"]
    two = told(ONE_GPU.replace("1 Device(s)", "2 Device(s)"), "a100-pcie-40gb-8gpu gpus=2 pcie=3")
    assert two.verdict.why == "no limit: the value is a sum over 2 GPUs"


def test_peers_that_are_slower_than_the_way_through_the_host_are_told_and_no_link_is_accused():
    text = (THREADS / "156-p2pBandwidthLatencyTest-6x4090.txt").read_text()
    found = told(text, "rtx-4090-8gpu gpus=6")
    assert found.verdict.state == "slow"
    assert any("10.2 and 22.4 GB/s at best" in note for note in found.notes)
    assert [one.fault for one in found.hypotheses] == ["healthy"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (MATRICES.replace("     1  37.50 2492.10", "     1  37.50"), "1 columns where the matrix has 2"),
        (MATRICES.replace("385.53", "3x5.53"), "'3x5.53'"),
        (MATRICES.replace("D\\D     0      1", "D\\D     0      x"), "column must be a GPU number"),
        ("P2P=Enabled Latency Matrix (us)\n   GPU     0      1\n     0   2.10   2.40\n", "must contain a value"),
    ],
)
def test_what_cannot_be_is_refused(text, said):
    with pytest.raises(UsageError, match=said):
        cuda_samples.read(text)


def test_a_matrix_that_the_end_cuts_off_gives_what_was_there():
    cut = MATRICES[: MATRICES.index("386.11 2492.10") + 6]
    assert rows(cut)[-1] == ("device_to_device_write", "gpu0>gpu1", 385.53e9)


def test_matrices_of_host_and_gpus_are_read_and_copies_at_once_have_no_path() -> None:
    heading = "Host/Device Bandwidth Matrix (GB/s), memory=Pinned\n   Dir\\D       0      1"
    text = f"{heading}\n   D2H     56.83  53.53\n   BiDir  101.26   9.71\n"
    text += f"Concurrent {heading} Total\n   H2D  44.61  25.47  70.08\n"
    (file,) = registry.read(text)
    assert file.test == "busGrind"
    assert [(one.path, one.samples[0] / 1e9) for one in file.results] == [
        ("gpu0>memory0", 56.83), ("gpu1>memory0", 53.53), ("memory0>gpu0", 50.63), ("memory0>gpu1", 4.855),
        ("", 44.61), ("", 25.47),
    ]  # fmt: skip

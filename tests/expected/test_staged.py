"""Copies between GPUs that may not access each other's memory, and copies in both directions at once."""

from __future__ import annotations

import pytest

from railwright.expected.expect import expect
from railwright.expected.machine import Machine
from railwright.limits.limit import Limit
from railwright.results.workload import Copy, Crossing, Message
from railwright.topology.cluster import build_cluster
from railwright.topology.expand import expand

MIB = 2**20


def machine(name: str, **changes: str) -> Machine:
    return Machine(cluster=build_cluster(expand(name, changes), 1))


@pytest.mark.parametrize(
    ("name", "slot", "measured"),
    # issue 51: 17.8 GB/s of 28.7 between A100, 29 to 35 of 57.5 between B300
    [("hgx-a100", 28.7e9, (17.8e9,)), ("hgx-b300", 57.5e9, (29e9, 35e9))],
)
def test_without_peer_access_a_path_is_half_to_all_of_a_copy_over_the_gpus_slot(name, slot, measured) -> None:
    limit, band = expect(Crossing(path="gpu0>gpu1"), machine(name, p2p="off"))
    assert limit.value == pytest.approx(slot, rel=0.01)
    assert band.low == pytest.approx(0.45 * limit.value)
    assert all(band.low <= value <= band.high for value in measured)
    assert band.high == pytest.approx(2 * band.low)


def test_a_copy_of_a_program_without_peer_access_leaves_nvlink() -> None:
    alone = Copy(path="gpu0>gpu1", peer_access=False)
    assert expect(alone, machine("hgx-a100"))[0].value < 29e9
    assert expect(Copy(path="gpu0>gpu1"), machine("hgx-a100"))[0].value == 300e9
    assert expect(alone, machine("hgx-a100")) == expect(alone, machine("hgx-a100", p2p="off"))
    both = expect(Copy(path="gpu0>gpu1", peer_access=False, direction="both"), machine("hgx-a100"))[1]
    assert both.doubtful_to == 0.0


def test_kernels_and_small_copies_without_peer_access_have_no_band() -> None:
    for copy in (Copy(engine="sm"), Copy(size_bytes=MIB)):
        given = {name: getattr(copy, name) for name in ("engine", "size_bytes")}
        limit, band = expect(Copy(path="gpu0>gpu1", peer_access=False, **given), machine("hgx-a100"))
        assert (limit.value < 29e9, band) == (True, None)


@pytest.mark.parametrize(
    ("name", "path", "is_doubtful_at_all"),
    [("hgx-h100", "gpu0>gpu1", False), ("h100-pcie-8gpu-nvlink", "gpu0>gpu1", False), ("gh200", "memory0>gpu0", True)],
)
def test_both_directions_at_once_are_doubtful_where_they_were_not_measured(name, path, is_doubtful_at_all) -> None:
    _, band = expect(Copy(path=path, direction="both"), machine(name))
    assert (band.doubtful_to == 0.0) == is_doubtful_at_all
    assert band.doubtful_to < band.low


@pytest.mark.parametrize(
    ("name", "path", "limit", "measured"),
    [  # nvbandwidth of issue 51: GH200 377 to 380 GB/s to the GPU, 297 back; a GPU of GB200 201 and 193
        ("gh200", "memory0>gpu0", 384e9, 378e9),  # the memory of 480 GB is slower than NVLink-C2C
        ("gh200", "gpu0>memory0", 384e9, 297e9),
        ("quad-gh200", "memory0>gpu0", 450e9, 378e9),
        ("gb200", "memory0>gpu0", 225e9, 201e9),
        ("gb200", "gpu0>memory0", 225e9, 193e9),
    ],
)
def test_copies_over_c2c_have_a_band_in_each_direction(name, path, limit, measured) -> None:
    found, band = expect(Copy(path=path), machine(name))
    assert found.value == limit
    assert band.low < measured < band.high


def test_gpus_whose_nvlinks_meet_in_a_third_gpu_copy_through_the_host() -> None:
    """A DGX-1 reports no peer access between such GPUs, and 11.6 GB/s both ways (UGache, CUDA samples)."""
    for path, is_joined in (("gpu0>gpu3", True), ("gpu0>gpu5", False)):
        for workload in (Copy(path=path), Message(path=path, size_bytes=2**28)):
            limit, band = expect(workload, machine("dgx-1-v100"))
            assert isinstance(limit, Limit)
            assert band is not None
            assert ("NVLink" in limit.because) == is_joined, path
            assert (band.low > 14e9) == is_joined  # no rate of PCIe 3.0

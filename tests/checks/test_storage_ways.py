"""Both ways of GPUDirect Storage, with their prerequisites."""

import pytest
from tests.checks.machines import tuned, with_facts

from railwright.checks.storage_ways import storage_ways
from railwright.topology.expand import expand

LOADED = "nvidia nvidia_fs mlx5_core"


def verdicts(machine):
    return {one.way: (one.verdict, one.because) for one in storage_ways(machine)}


def host(**facts):
    return with_facts(tuned(), "host", **facts)


@pytest.mark.parametrize(
    ("machine", "way", "verdict", "because"),
    [
        (tuned(), "nvidia-fs", "missing", "nvidia-fs is loaded"),
        (tuned(), "PCI P2PDMA", "possible", ""),
        (host(modules=LOADED), "nvidia-fs", "possible", ""),
        (host(modules=None), "nvidia-fs", "cannot be told", "nvidia-fs is loaded"),
        (with_facts(host(modules=LOADED), "drive", iommu_domain="DMA"), "nvidia-fs", "missing", "the IOMMU is off"),
        (with_facts(host(modules=LOADED), "gpu", iommu_domain="off"), "nvidia-fs", "possible", ""),
        (host(kernel="5.15.0-91"), "PCI P2PDMA", "missing", "Linux 6.2 or later"),
        (host(nvidia_module="proprietary"), "PCI P2PDMA", "missing", "NVIDIA's open kernel modules"),
        (host(nvme_multipath="Y"), "PCI P2PDMA", "missing", "NVMe multipathing is off"),
        (host(nvme_multipath="none"), "PCI P2PDMA", "possible", ""),
        (host(static_bar1=None), "PCI P2PDMA", "cannot be told", "NVIDIA's driver has a static BAR1"),
        (with_facts(tuned(), "gpu", compute_capability="7.5"), "PCI P2PDMA", "missing", "compute capability 8.0"),
        (with_facts(host(static_bar1=None), "cpu", architecture="arm64"), "PCI P2PDMA", "possible", ""),
    ],
)
def test_what_a_way_takes(machine, way, verdict, because):
    told, why = verdicts(machine)[way]
    assert told == verdict
    assert why.startswith(because)


def test_a_description_and_a_machine_without_drives_have_none():
    assert storage_ways(expand("hgx-h100", {})) == ()

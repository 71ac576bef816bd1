"""Google Cloud: A3 machine types that fill a whole machine."""

from __future__ import annotations

from msgspec.structs import replace

from railwright.topology.shapes import cpus, gpus, nics
from railwright.topology.shapes.parts import Layout, Shape

_A3_ULTRA = Shape(
    title="Google Cloud a3-ultragpu-8g: 8x H200, a PCIe switch and a NIC for each GPU",
    aliases=("a3-ultragpu-8g", "a3-ultra"),
    layout=Layout(gpus_per_switch=1, switch_name="PCIe 5.0 switch", nics=8, drives=0),
    layout_source="Google Cloud, Networking and GPU machines, A3 Ultra (each NIC is aligned with one GPU); a PCIe"
    " switch for the two assumed, as HGX H200 machines have. The local SSDs are left out: how they hang is not"
    " published",
    cpu=cpus.GCP_EMERALD_RAPIDS,
    gpu=gpus.H200,
    nvlink=gpus.NVLINK4,
    nic=nics.GCP_CONNECTX7,
)
_A3_MEGA = Shape(
    title="Google Cloud a3-megagpu-8g: 8x H100, two GPUs and two NICs of 200 Gb/s for each PCIe switch",
    aliases=("a3-megagpu-8g", "a3-mega"),
    layout=Layout(gpus_per_switch=2, switch_name="PCIe 5.0 switch", nics=8, drives=0),
    layout_source="Google Cloud, Networking and GPU machines, A3 Mega (one NIC of 200 Gb/s a GPU); switches of two"
    " GPUs assumed from the GPUs' PCI addresses, which come in pairs (nccl-tests output in"
    " lessizzmore/create-a3mega-ztan-fork). The local SSDs are left out: how they hang is not published",
    cpu=cpus.GCP_SAPPHIRE_RAPIDS,
    gpu=gpus.H100,
    nvlink=gpus.NVLINK4,
    nic=nics.GCP_GVNIC_200G,
)

SHAPES: dict[str, Shape] = {
    "gcp-a3-ultra": _A3_ULTRA,
    "gcp-a3-mega": _A3_MEGA,
    "gcp-a4": replace(
        _A3_ULTRA,
        title="Google Cloud a4-highgpu-8g: 8x B200, a PCIe switch and a NIC for each GPU",
        aliases=("a4-highgpu-8g", "a4-high", "a4"),
        layout_source="Google Cloud, Networking and GPU machines, A4 (eight ConnectX-7, each aligned with one GPU); a"
        " PCIe switch for the two assumed, as HGX B200 machines have. The local SSDs are left out",
        gpu=gpus.B200,
        nvlink=gpus.NVLINK5,
    ),
    "gcp-a3-high": replace(
        _A3_MEGA,
        title="Google Cloud a3-highgpu-8g: 8x H100, two GPUs and a NIC of 200 Gb/s for each PCIe switch",
        aliases=("a3-highgpu-8g", "a3-high"),
        layout=replace(_A3_MEGA.layout, nics=4),
        layout_source="Google Cloud, GPUDirect-TCPX, A3 High (four NICs of 200 Gb/s for eight GPUs), as"
        " stas00/ml-engineering quotes it; a switch for two GPUs and a NIC assumed. The local SSDs are left out",
        nic=nics.GCP_GVNIC_A3_HIGH,
    ),
}

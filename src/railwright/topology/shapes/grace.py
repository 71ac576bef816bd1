"""Grace Hopper and Grace Blackwell: GPUs that reach their CPU over NVLink-C2C, NICs on Grace's PCIe 5.0."""

from __future__ import annotations

from msgspec.structs import replace

from railwright.topology.shapes import cpus, drives, gpus, nics
from railwright.topology.shapes.parts import Layout, Shape

_GB200 = Shape(
    title="GB200 NVL72: one of 18 compute trays, two Grace and four Blackwell GPUs; NVLink reaches 72 GPUs",
    aliases=("gb200", "gb200-nvl", "dgx-gb200"),
    layout=Layout(gpus=4, gpus_per_switch=0, nics=4, drives=4),
    layout_source="NVIDIA DGX GB200 User Guide, Hardware (a compute tray: 2 Grace, 4 GPUs, 4 single-port"
    " ConnectX-7); two NICs per Grace: NVIDIA/NVSentinel pull request 1221 and Mellanox/ngc_multinode_perf pull"
    " request 129; four drives: NVIDIA NVL72 AI Factory reference architecture, compute tray",
    cpu=cpus.GRACE,
    gpu=gpus.GB200,
    nvlink=gpus.NVL72,
    nic=nics.GRACE_CONNECTX7,
    drive=drives.GRACE_3T84,
)

SHAPES: dict[str, Shape] = {
    "gh200": Shape(
        title="GH200: one Grace and one Hopper GPU, no NVLink to others",
        aliases=("grace-hopper",),
        layout=Layout(sockets=1, gpus=1, gpus_per_switch=0, nics=1, drives=2),
        layout_source="NVIDIA GH200 Grace Hopper Superchip datasheet (one CPU, one GPU, PCIe 5.0 x16 links); one NIC"
        " and two drives assumed, makers differ",
        cpu=cpus.GRACE,
        gpu=gpus.GH200,
        several=((4, "quad-gh200"),),
        nic=nics.GH200_CONNECTX7,
        drive=drives.GRACE_3T84,
    ),
    "gh200-nvl32": Shape(
        title="GH200 NVL32: one of 16 compute trays, two Grace and two Hopper GPUs; NVLink reaches 32 GPUs",
        layout=Layout(gpus=2, gpus_per_switch=0, nics=2, drives=4),
        layout_source="NVIDIA Technical Blog, One Giant Superchip for LLMs: NVIDIA GH200 NVL32 (16 dual Grace Hopper"
        " nodes); one NIC a superchip and four drives assumed",
        cpu=cpus.GRACE,
        gpu=gpus.GH200_144GB,
        nvlink=gpus.NVL32,
        nic=nics.GH200_CONNECTX7,
        drive=drives.GRACE_3T84,
    ),
    "gb200-nvl72": _GB200,
    "gb300-nvl72": replace(
        _GB200,
        title="GB300 NVL72: one of 18 compute trays, two Grace and four Blackwell Ultra GPUs; NVLink reaches 72 GPUs",
        aliases=("gb300", "gb300-nvl", "dgx-gb300"),
        layout_source="MLPerf Inference v5.1, NVIDIA, systems/GB300-NVL72_GB300-288GB_aarch64x72_TRT.json (2 Grace, 4"
        " GPUs, 4 ConnectX-8); two NICs per Grace and four drives assumed, as in GB200 trays",
        gpu=gpus.GB300,
        nic=nics.GB300_CONNECTX8,
    ),
    "quad-gh200": Shape(
        title="4x GH200 of one node, joined by NVLink, a Slingshot NIC of 200 Gb/s for each",
        aliases=("gh200-quad", "alps"),
        layout=Layout(sockets=4, gpus=4, gpus_per_switch=0, nics=4, drives=0),
        layout_source="CSCS documentation, Alps hardware, NVIDIA GH200 GPU Nodes (four GH200, four Slingshot NICs of"
        " 200 Gb/s, one each)",
        cpu=cpus.GRACE,
        gpu=gpus.GH200,
        nvlink=gpus.QUAD_GH200,
        nic=nics.SLINGSHOT,
    ),
    "dgx-spark": Shape(
        title="DGX Spark: one GB10, a ConnectX-7 of 200 Gb/s",
        aliases=("spark", "gb10"),
        layout=Layout(sockets=1, gpus=1, gpus_per_switch=0, nics=2, drives=1),
        layout_source="ServeTheHome, The NVIDIA GB10 ConnectX-7 200GbE Networking is Really Different (one ConnectX-7"
        " with two ports that share 200 Gb/s, over two PCIe links that Linux shows as NICs); one M.2 drive assumed",
        cpu=cpus.SPARK_ARM,
        gpu=gpus.GB10,
        nic=nics.SPARK_CONNECTX7,
        drive=drives.M2_1T,
    ),
}

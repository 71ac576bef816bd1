"""AMD Instinct."""

from __future__ import annotations

from railwright.topology.shapes import cpus, drives, gpus, nics
from railwright.topology.shapes.parts import Layout, Shape

SHAPES: dict[str, Shape] = {
    "mi300x": Shape(
        title="8x MI300X, every GPU joined to every other by Infinity Fabric, a PCIe switch and a NIC for each GPU",
        aliases=("mi300x-8gpu",),
        layout=Layout(gpus_per_switch=1, switch_name="PCIe 5.0 switch", nics=8, drives=8),
        layout_source="OCI compute shapes, BM.GPU.MI300X.8 (eight GPUs, eight NICs, 8x 3.84 TB); a PCIe switch for"
        " each GPU and its NIC assumed, as machines with one NIC a GPU have for GPUDirect RDMA; makers differ",
        cpu=cpus.GENOA_9374F,
        gpu=gpus.MI300X,
        xgmi=gpus.XGMI4,
        nic=nics.MI300X_NIC,
        drive=drives.U2_3T84,
    ),
}

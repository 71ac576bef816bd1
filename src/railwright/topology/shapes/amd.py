"""AMD Instinct."""

from __future__ import annotations

from msgspec.structs import replace

from railwright.topology.shapes import cpus, drives, gpus, nics
from railwright.topology.shapes.parts import Layout, Shape

_MI300X = Shape(
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
)

_MI355X = replace(
    _MI300X,
    title="8x MI355X, every GPU joined to every other by Infinity Fabric, a PCIe switch and a NIC for each GPU",
    aliases=("mi355x-8gpu",),
    layout_source="MLPerf Inference v5.1 and v6.0 (eight GPUs a host, XGMI, eight NICs of 400 Gb/s at Supermicro); the"
    " rest assumed to be as in MI300X machines, the same platform with newer GPUs",
    gpu=gpus.MI355X,
    xgmi=gpus.XGMI5,
)

SHAPES: dict[str, Shape] = {
    "mi300x": _MI300X,
    "mi325x": replace(
        _MI355X,
        title="8x MI325X, every GPU joined to every other by Infinity Fabric, a PCIe switch and a NIC for each GPU",
        aliases=("mi325x-8gpu",),
        gpu=gpus.MI325X,
        xgmi=gpus.XGMI4,
    ),
    "mi355x": _MI355X,
    "mi250x": Shape(
        title="4x MI250X, which are eight GPUs, a Slingshot NIC of 200 Gb/s for each pair, one EPYC",
        aliases=("frontier", "mi250x-8gpu"),
        layout=Layout(sockets=1, numa_per_socket=4, gpus_per_switch=0, nics=4, drives=2),
        layout_source="OLCF, Frontier User Guide (four MI250X, four NICs, four NUMA nodes, two drives). The NICs hang"
        " from the GPUs there and are shown on root ports of their NUMA node",
        cpu=cpus.TRENTO,
        gpu=gpus.MI250X,
        xgmi=gpus.XGMI_MI250X,
        nic=nics.SLINGSHOT,
        drive=drives.FRONTIER_1T92,
    ),
    "mi300a": Shape(
        title="4x MI300A, each its own CPU, a Slingshot NIC of 200 Gb/s for each",
        aliases=("mi300a-4gpu", "el-capitan"),
        layout=Layout(sockets=4, gpus=4, gpus_per_switch=0, nics=4, drives=0),
        layout_source="LLNL, El Capitan systems (a node: four MI300A, a NUMA node each); ROCm/rccl,"
        " tools/topo_expl/models/topo_4p_940.xml (a Slingshot NIC of 200 Gb/s for each)",
        cpu=cpus.MI300A_CORES,
        gpu=gpus.MI300A,
        xgmi=gpus.XGMI_MI300A,
        nic=nics.SLINGSHOT,
    ),
}

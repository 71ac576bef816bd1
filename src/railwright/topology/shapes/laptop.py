"""Machines without GPUs."""

from __future__ import annotations

from railwright.topology.shapes import cpus, drives, nics
from railwright.topology.shapes.parts import Layout, Shape

SHAPES: dict[str, Shape] = {
    "laptop": Shape(
        title="one CPU, one NVMe drive, one Ethernet port, no GPU",
        layout=Layout(sockets=1, gpus=0, gpus_per_switch=0, nics=1, drives=1),
        layout_source="assumed: what a laptop or small desktop of 2023 has",
        cpu=cpus.RAPTOR_LAKE_H,
        nic=nics.I226,
        drive=drives.M2_1T,
    ),
}

"""Commands that change a device until the next reboot, each with the command that undoes it."""

from __future__ import annotations

from railwright.checks.check import Command
from railwright.topology.devices import Device


def nvidia_smi(gpu: Device, option: str, value: str, before: str) -> Command:
    """Return the command that sets an option of a GPU, and its opposite."""
    on_gpu = ("nvidia-smi", "-i", gpu.address or gpu.id.removeprefix("gpu"), option)
    return Command(words=(*on_gpu, value), undo=(*on_gpu, before))


def set_pcie_control(device: Device, mask: int, value: int, before: int) -> Command:
    """Return the command that sets bits of a device's PCIe Device Control register, and its opposite."""
    words, undo = (("setpci", "-s", device.address, f"CAP_EXP+8.w={bits:04x}:{mask:04x}") for bits in (value, before))
    return Command(words=words, undo=undo)

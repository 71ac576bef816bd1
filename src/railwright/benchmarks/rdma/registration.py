"""Registrations of GPU memory, tried on every RDMA device by both ways: the proof that GPUDirect RDMA can work."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator

from railwright.errors import CannotJudge
from railwright.native.cuda import Device, DeviceBuffer
from railwright.native.verbs import Port, list_devices
from railwright.results.evidence import GPU_REGISTRATION
from railwright.results.records import Evidence
from railwright.units import MIB

_TRIED_BYTES = 2 * MIB


def try_registrations(device: Device) -> tuple[Evidence, ...]:
    """Return for every RDMA device the ways in which it registered memory of the GPU, with the errors of the others.

    The first port stands for the device, because regions belong to a device.
    """
    with DeviceBuffer(device, _TRIED_BYTES) as buffer:
        return tuple(_try_device(name, device, buffer) for name in list_devices())


def _try_device(name: str, device: Device, buffer: DeviceBuffer) -> Evidence:
    try:
        with Port(name, 1) as port:
            tried = list(_try_ways(port, buffer))
    except CannotJudge as error:
        return Evidence(claim=GPU_REGISTRATION, value="unknown", seen=f"{name}: {error.message}")
    value = " and ".join(way for way, error in tried if not error) or "none"
    seen = "; ".join(f"{way} {error or 'registered'}" for way, error in tried)
    return Evidence(claim=GPU_REGISTRATION, value=value, seen=f"{name} with {device.address}: {seen}")


def _try_ways(port: Port, buffer: DeviceBuffer) -> Iterator[tuple[str, str]]:
    """Yield each way with its error, or an empty string if the memory was registered."""

    def by_dmabuf() -> None:
        descriptor = buffer.export_dmabuf()
        try:
            port.register(buffer.address, buffer.size_bytes, dmabuf=descriptor)
        finally:
            os.close(descriptor)

    def by_address() -> None:
        port.register(buffer.address, buffer.size_bytes)

    ways: tuple[tuple[str, Callable[[], None]], ...] = (("dma-buf", by_dmabuf), ("peermem", by_address))
    for way, register in ways:
        try:
            register()
        except CannotJudge as error:
            yield way, error.message
        else:
            yield way, ""

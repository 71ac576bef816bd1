"""Drives: the block devices below PCI functions, by their kernel names. Partitions and virtual devices are left out."""

from __future__ import annotations

import re

import msgspec

from railwright.topology.sources import text
from railwright.topology.sources.root import Root

SECTOR_BYTES = 512
"""The unit of `size`, whatever the block size of the drive (Linux block/genhd.c)."""

_NAMESPACE = re.compile(r"(nvme\d{1,4})(?:c\d{1,4})?(n\d{1,4})")
_ON_THE_WAY = re.compile(r"nvme|nvme\d+|virtio\d+|ata\d+|host\d+|port-\d.*|end_device-\d.*|expander-\d.*|target[\d:]+"
                         r"|[\d:]{7,20}|mmc_host|mmc\d+.*|block|usb\d+|[\d.-]+(:[\d.]+)?")  # fmt: skip
_DEPTH = 12
_MAX_VISITED = 4096


class Drive(msgspec.Struct, frozen=True, kw_only=True):
    """A drive. Sizes in bytes."""

    kernel_name: str
    model: str
    size_bytes: int | None
    rotational: bool | None


def find_drives(root: Root, function_path: str, entries: frozenset[str]) -> tuple[Drive, ...]:
    """Return the drives below a PCI function or virtual bus device, by name."""
    found: dict[str, Drive] = {}
    _descend(root, function_path, tuple(sorted(entries)), _DEPTH, [_MAX_VISITED], found)
    return tuple(drive for _, drive in sorted(found.items()))


def _descend(
    root: Root, path: str, names: tuple[str, ...], depth: int, visits: list[int], found: dict[str, Drive]
) -> None:
    in_block = path.rpartition("/")[2] == "block"
    for name in names:
        below = f"{path}/{name}"
        namespace = _NAMESPACE.fullmatch(name)
        if in_block or namespace:
            # With multipath the namespace nvme0n1 is a virtual device; its path here is called nvme0c0n1.
            kernel_name = f"{namespace.group(1)}{namespace.group(2)}" if namespace else name
            drive = _read_drive(root, below, kernel_name)
            if drive is not None:
                found.setdefault(kernel_name, drive)
        elif depth > 0 and visits[0] > 0 and _ON_THE_WAY.fullmatch(name):
            visits[0] -= 1
            _descend(root, below, root.names(below), depth - 1, visits, found)


def _read_drive(root: Root, path: str, kernel_name: str) -> Drive | None:
    if not re.fullmatch(r"[A-Za-z0-9_-]{1,32}", kernel_name):
        return None
    sectors = text.number(root.read(f"{path}/size"))
    rotational = text.number(root.read(f"{path}/queue/rotational"))
    if sectors is None and rotational is None:
        return None  # not a block device: `nvme0` also has directories like `nvme0n1` of other kinds
    if kernel_name.startswith("vd"):
        rotational = None  # virtio has no such property; the kernel shows its default
    parent = path.rpartition("/")[0]
    model = text.word(root.read(f"{parent}/model"))  # NVMe: the controller's directory
    if not model and parent.endswith("/block"):
        model = text.word(root.read(f"{parent.removesuffix('/block')}/model"))  # SCSI and SATA
    return Drive(
        kernel_name=kernel_name,
        model=model,
        size_bytes=sectors * SECTOR_BYTES if sectors is not None and sectors >= 0 else None,
        rotational=None if rotational is None else bool(rotational),
    )

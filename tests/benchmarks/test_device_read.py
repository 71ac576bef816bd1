"""The raw device under a test's own file system: a loop device, the only block device that a test may create."""

from __future__ import annotations

import contextlib
import ctypes
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.conftest import Driver

FILE_BYTES = 16 * 2**20


@pytest.fixture
def own_file_system(tmp_path: Path) -> Iterator[Path]:
    """Return a mounted ext4 on a loop device. Skipped if the kernel provides no loop device."""
    image, folder = tmp_path / "image", tmp_path / "mounted"
    with image.open("wb") as file:
        file.truncate(8 * FILE_BYTES)
    folder.mkdir()
    found = subprocess.run(["losetup", "--find", "--show", str(image)], capture_output=True, text=True)
    if found.returncode:
        pytest.skip(f"waived: no loop device can be had here: {found.stderr.strip()}")
    device = found.stdout.strip()
    try:
        subprocess.run(["mkfs.ext4", "-q", "-F", device], check=True)
        subprocess.run(["mount", device, str(folder)], check=True)
        yield folder
    finally:
        with contextlib.suppress(subprocess.CalledProcessError):
            subprocess.run(["umount", str(folder)], check=True, capture_output=True)
        subprocess.run(["losetup", "--detach", device], check=False)


def test_the_blocks_of_a_file_are_read_from_its_device_and_verified(railwright: Driver, own_file_system: Path) -> None:
    options = [f"directory={own_file_system}", f"file-size={FILE_BYTES}", "sizes=4K,1M"]
    done = railwright(
        "run", "device_read", "file_read", "--force", *(word for text in options for word in ("-o", text))
    )
    assert done.status in (0, 1, 3), done.err
    for benchmark in ("device_read", "file_read"):
        results = railwright.results(benchmark)
        assert {(result.quantity, result.parameters["size_bytes"]) for result in results} == {
            ("operations_per_s", 4096),
            ("latency_s", 4096),
            ("bandwidth_bytes_per_s", 2**20),
            ("latency_s", 2**20),
        }
        for result in results:
            assert result.outcome == "measured", result.reason
            assert result.path.startswith("loop")
            assert result.verification is not None
            assert result.verification.bytes_checked >= FILE_BYTES // 2
            assert result.verification.bytes_wrong == 0
    assert list(own_file_system.glob(".railwright*")) == []


@pytest.mark.machine
def test_a_file_whose_device_bytes_were_changed_is_found_wrong(own_file_system: Path, tmp_path: Path) -> None:
    """Check that the data check reads the device, not the page cache."""
    from railwright.benchmarks.files.direct_file import SEED
    from railwright.benchmarks.files.direct_io import order_blocks
    from railwright.native import files
    from railwright.native.memory import Buffer

    path = own_file_system / "file"
    with Buffer(2**20) as buffer:
        buffer.fill(SEED)
        with path.open("wb") as file:
            file.write(ctypes.string_at(buffer.address, buffer.size_bytes))
    subprocess.run(["sync", str(path)], check=True)
    with path.open("rb") as file:
        extents = tuple(files.extents(file.fileno()))
    subprocess.run(["umount", str(own_file_system)], check=True)
    image = tmp_path / "image"
    subprocess.run(["sync"], check=True)
    with image.open("r+b") as raw:
        raw.seek(extents[0].physical + 12_345)
        byte = raw.read(1)
        raw.seek(-1, 1)
        raw.write(bytes([byte[0] ^ 0x10]))
    offsets, positions = order_blocks(extents, 4096, "random")
    with image.open("rb") as raw, Buffer(8 * 4096) as buffers:
        blocks = files.Blocks(raw.fileno(), "threads", offsets, positions, 4096, 8, buffers)
        checked = files.read_pass(blocks, seed=SEED, check=True)
    assert checked.wrong_bytes == 1

"""Reads at a depth by io_uring and by threads: verified data, every error by its name, extents that cover the file."""

from __future__ import annotations

import array
import ctypes
import errno
import fcntl
import itertools
import os
import random
import subprocess

import pytest

from railwright.benchmarks import direct_read
from railwright.benchmarks.base import Job, Variant
from railwright.errors import CannotJudge
from railwright.native import files
from railwright.native.library import NativeError
from railwright.native.memory import Buffer
from railwright.topology.expand import expand

SEED, BLOCK, BLOCKS = 5, 4096, 300


@pytest.fixture
def pattern(tmp_path):
    """A file of the pattern, open to read past the page cache."""
    path = tmp_path / "pattern"
    with Buffer(BLOCK * BLOCKS) as buffer:
        buffer.fill(SEED)
        path.write_bytes(ctypes.string_at(buffer.address, BLOCK * BLOCKS))
    with path.open("rb") as file:
        os.fsync(file.fileno())
    fd = os.open(path, os.O_RDONLY | os.O_DIRECT)
    yield fd
    os.close(fd)


def read(fd, engine, places, *, depth=4, size=BLOCK, means=None, check=True):
    offsets = array.array("q", places)
    positions = array.array("q", means if means is not None else places)
    with Buffer(size * depth) as buffers:
        return files.read_pass(fd, engine, offsets, positions, size, depth, buffers, seed=SEED, check=check)


def shuffled(size=BLOCK):
    places = list(range(0, BLOCK * BLOCKS, size))
    random.Random(1).shuffle(places)
    return places


engines = pytest.mark.parametrize("engine", ["io_uring", "threads"])


@engines
@pytest.mark.parametrize("depth", [1, 3, 32, 512])
def test_every_block_is_read_once_and_right(pattern, engine, depth):
    done = read(pattern, engine, shuffled(), depth=depth)
    assert done.wrong_bytes == 0
    assert len(done.latencies_s) == BLOCKS
    assert all(0 < latency <= done.elapsed_s for latency in done.latencies_s)


@engines
def test_a_block_from_the_wrong_place_is_found(pattern, engine):
    places = shuffled()
    means = places[1:] + places[:1]
    done = read(pattern, engine, places, means=means)
    assert done.wrong_bytes > 0.95 * BLOCK * BLOCKS
    assert read(pattern, engine, places, means=means, check=False).wrong_bytes == 0, "unchecked passes look at nothing"


@engines
def test_one_flipped_byte_on_the_disk_is_found(pattern, engine, tmp_path):
    with (tmp_path / "pattern").open("r+b") as file:
        file.seek(123_456)
        byte = file.read(1)[0]
        file.seek(123_456)
        file.write(bytes([byte ^ 4]))
        file.flush()
        os.fsync(file.fileno())
    assert read(pattern, engine, shuffled()).wrong_bytes == 1


@engines
@pytest.mark.parametrize(
    ("fd_kind", "place", "number"),
    [
        ("good", BLOCK * BLOCKS, errno.ENODATA),
        ("good", 100, errno.EINVAL),
        ("bad", 0, errno.EBADF),
        ("write-only", 0, errno.EBADF),
    ],
)
def test_a_read_that_cannot_be_is_an_error_by_its_name(pattern, engine, tmp_path, fd_kind, place, number):
    other = os.open(tmp_path / "other", os.O_WRONLY | os.O_CREAT)
    fd = {"good": pattern, "bad": 9999, "write-only": other}[fd_kind]
    with pytest.raises(NativeError, match=f"read with {engine}: {os.strerror(number)}") as caught:
        read(fd, engine, [0, place, BLOCK] if fd_kind == "good" else [place])
    assert caught.value.code == -number
    os.close(other)


def test_a_refused_io_uring_is_told_with_its_reason(pattern):
    with Buffer(BLOCK) as buffer:
        assert files.io_uring_works(pattern, buffer, BLOCK) == ""
        assert "Bad file descriptor" in files.io_uring_works(9999, buffer, BLOCK)


def test_extents_cover_the_file_and_hold_its_bytes_on_the_device(tmp_path):
    """On ext4 on a loop file whose every byte can be looked at, with holes between to force several extents."""
    image, mountpoint = tmp_path / "image", tmp_path / "mounted"
    with image.open("wb") as file:
        file.truncate(64 << 20)
    subprocess.run(["mkfs.ext4", "-q", "-F", str(image)], check=True)
    mountpoint.mkdir()
    mounted = subprocess.run(["mount", "-o", "loop", str(image), str(mountpoint)], capture_output=True, text=True)
    if mounted.returncode:
        pytest.skip(f"no loop devices here: {mounted.stderr.strip()}")
    try:
        size = 3 * BLOCK + 512
        path = mountpoint / "file"
        with Buffer(size) as buffer, path.open("wb") as file:
            buffer.fill(SEED)
            file.write(ctypes.string_at(buffer.address, size))
            file.flush()
            os.fsync(file.fileno())
        with path.open("rb") as file:
            found = files.extents(file.fileno())
            assert sum(extent.length for extent in found) == size
            data = path.read_bytes()
            subprocess.run(["sync", "-f", str(mountpoint)], check=True)
            with image.open("rb") as raw:
                for extent in found:
                    raw.seek(extent.physical)
                    assert raw.read(extent.length) == data[extent.logical : extent.logical + extent.length]
    finally:
        subprocess.run(["umount", str(mountpoint)], check=True)


def test_extents_cover_a_file_without_gap_or_overlap(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(os.urandom(5 * BLOCK + 100))
    with path.open("rb") as file:
        os.fsync(file.fileno())
        found = sorted(files.extents(file.fileno()))
    assert found[0].logical == 0
    for one, following in itertools.pairwise(found):
        assert one.logical + one.length == following.logical
    assert found[-1].logical + found[-1].length == 5 * BLOCK + 100


def test_extents_that_are_not_written_yet_are_refused(tmp_path):
    with (tmp_path / "file").open("wb") as file:
        os.posix_fallocate(file.fileno(), 0, 1 << 20)
        with pytest.raises(CannotJudge, match="no plain place on the device"):
            files.extents(file.fileno())


def test_a_file_system_that_cannot_say_where_a_file_lies_is_named(small_disk):
    with (small_disk("disk", "size=1m") / "file").open("wb") as file, pytest.raises(CannotJudge, match="FIEMAP"):
        files.extents(file.fileno())


def job(folder, **options):
    defaults = {option.name: option.default for option in direct_read.OPTIONS}
    return Job(
        benchmark="file_read",
        options=defaults | {"directory": str(folder), "file-size": "1M"} | options,
        variant=Variant(),
        launch=0,
        cpus=(0,),
        topology=expand("laptop", {}),
    )


def test_the_test_file_has_no_name_holds_the_pattern_and_is_direct(tmp_path):
    with direct_read.test_file(job(tmp_path)) as fd:
        assert list(tmp_path.iterdir()) == []
        assert fcntl.fcntl(fd, fcntl.F_GETFL) & os.O_DIRECT
        with Buffer(1 << 20) as buffer:
            places = array.array("q", [0])
            done = files.read_pass(fd, "threads", places, places, 1 << 20, 1, buffer, seed=direct_read.SEED, check=True)
        assert done.wrong_bytes == 0


def test_a_file_system_without_direct_access_is_refused_and_nothing_stays_behind(small_disk):
    """ramfs makes the file and then refuses O_DIRECT: its name must go again."""
    folder = small_disk("disk", kind="ramfs")
    with pytest.raises(CannotJudge, match="cannot make a direct test file"), direct_read.test_file(job(folder)):
        pass
    assert list(folder.iterdir()) == []


def test_a_full_disk_is_named_with_the_kernel_s_words(small_disk):
    folder = small_disk("disk", "size=512k")
    full = pytest.raises(CannotJudge, match=r"writing the test file in .*: No space left on device")
    with full, direct_read.test_file(job(folder)):
        pass
    assert list(folder.iterdir()) == []

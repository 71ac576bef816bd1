"""Reads and writes at a depth by both engines: verified data, named errors, and extents that cover the file."""

from __future__ import annotations

import array
import ctypes
import errno
import fcntl
import itertools
import os
import random
import resource
import subprocess
import threading
import time
from pathlib import Path

import pytest

from railwright.benchmarks.files import direct_file
from railwright.errors import CannotJudge
from railwright.native import files
from railwright.native.library import NativeError
from railwright.native.memory import Buffer

SEED, BLOCK, BLOCKS = 5, 4096, 300


@pytest.fixture
def pattern(tmp_path):
    """A file with the pattern, open for direct reads."""
    path = tmp_path / "pattern"
    with Buffer(BLOCK * BLOCKS) as buffer:
        buffer.fill(SEED)
        path.write_bytes(ctypes.string_at(buffer.address, BLOCK * BLOCKS))
    with path.open("rb") as file:
        os.fsync(file.fileno())
    fd = os.open(path, os.O_RDONLY | os.O_DIRECT)
    yield fd
    os.close(fd)


def read(fd, engine, places, *, depth=4, size=BLOCK, means=None, check=True, seed=SEED, **more):
    offsets = array.array("q", places)
    positions = array.array("q", means if means is not None else places)
    with Buffer(size * depth * max(len(more.get("cpus", ())), 1)) as buffers:
        blocks = files.Blocks(fd, engine, offsets, positions, size, depth, buffers)
        return files.read_pass(blocks, seed=seed, check=check, **more)


def write(fd, engine, places, *, depth=4, size=BLOCK, seed=SEED, sync=False, cpus=()):
    offsets = array.array("q", places)
    with Buffer(size * depth * max(len(cpus), 1)) as buffers:
        blocks = files.Blocks(fd, engine, offsets, offsets, size, depth, buffers)
        return files.write_pass(blocks, seed=seed, sync=sync, cpus=cpus)


@pytest.fixture
def blank(tmp_path):
    """A file of zeros, open for direct reads and writes."""
    path = tmp_path / "blank"
    path.write_bytes(bytes(BLOCK * BLOCKS))
    fd = os.open(path, os.O_RDWR | os.O_DIRECT)
    os.fsync(fd)
    yield fd
    os.close(fd)


def tasks():
    return {path.name for path in Path("/proc/self/task").iterdir()}


def any_cpus(count):
    """Return a CPU for each of `count` threads, cycling through the available ones."""
    return tuple(itertools.islice(itertools.cycle(sorted(os.sched_getaffinity(0))), count))


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
@pytest.mark.parametrize("threads", [2, 3, 7])
def test_threads_share_the_blocks_and_each_is_read_once(pattern, engine, threads):
    done = read(pattern, engine, shuffled(), cpus=any_cpus(threads))
    assert done.wrong_bytes == 0
    assert len(done.latencies_s) == BLOCKS
    assert all(0 < latency <= done.elapsed_s for latency in done.latencies_s)


@engines
def test_one_wrong_byte_is_found_whichever_thread_reads_it(pattern, engine, tmp_path):
    for place in (5, BLOCK * BLOCKS // 2 + 5, BLOCK * BLOCKS - 5):
        with (tmp_path / "pattern").open("r+b") as file:
            file.seek(place)
            byte = file.read(1)[0]
            file.seek(place)
            file.write(bytes([byte ^ 4]))
            os.fsync(file.fileno())
    assert read(pattern, engine, shuffled(), cpus=any_cpus(3)).wrong_bytes == 3


@engines
def test_each_thread_runs_on_the_cpu_that_it_was_given(pattern, engine):
    cpus, seen, deadline = any_cpus(2), set(), time.monotonic() + 300
    stop, before = threading.Event(), tasks()

    def read_on():
        while not stop.is_set():
            read(pattern, engine, shuffled() * 5, cpus=cpus)

    reading = threading.Thread(target=read_on)
    reading.start()
    while seen != set(cpus) and time.monotonic() < deadline:
        for task in tasks() - before - {str(reading.native_id)}:
            try:
                lines = Path("/proc/self/task", task, "status").read_text("utf-8").splitlines()
                allowed = next(line.split()[1] for line in lines if line.startswith("Cpus_allowed_list:"))
            except (OSError, StopIteration):
                continue
            if allowed.isdecimal():
                seen.add(int(allowed))
    stop.set()
    reading.join()
    assert seen == set(cpus)


@engines
@pytest.mark.parametrize(("depth", "threads"), [(1, 1), (32, 1), (3, 2), (512, 3)])
def test_every_block_is_written_once_and_right(blank, engine, depth, threads):
    done = write(blank, engine, shuffled(), depth=depth, cpus=any_cpus(threads))
    assert len(done.latencies_s) == BLOCKS
    assert all(0 < latency <= done.elapsed_s for latency in done.latencies_s)
    assert read(blank, engine, shuffled(), stamped=True).wrong_bytes == 0


@pytest.mark.parametrize("size", [512, 64 << 10])
def test_what_one_engine_writes_the_other_reads_at_any_size(blank, size):
    write(blank, "io_uring", shuffled(size)[: BLOCK * BLOCKS // size], size=size)
    assert read(blank, "threads", shuffled(size)[: BLOCK * BLOCKS // size], size=size, stamped=True).wrong_bytes == 0


def test_a_block_that_was_not_written_again_is_found(blank):
    places = shuffled()
    write(blank, "io_uring", places, seed=1)
    write(blank, "io_uring", places[1:], seed=2)
    assert 0.95 * BLOCK < read(blank, "threads", places, seed=2, stamped=True).wrong_bytes <= BLOCK


def test_two_sectors_that_changed_places_are_found(blank, tmp_path):
    """All but the first word of a sector is equal in every block, so only the stamps can reveal the swap."""
    write(blank, "threads", shuffled(), sync=True)
    with (tmp_path / "blank").open("r+b") as file:
        data = bytearray(file.read())
        one, other = slice(3 * 512, 4 * 512), slice(BLOCK + 3 * 512, BLOCK + 4 * 512)
        assert data[one][8:] == data[other][8:]
        data[one], data[other] = data[other], data[one]
        file.seek(0)
        file.write(data)
        os.fsync(file.fileno())
    assert 12 <= read(blank, "threads", shuffled(), stamped=True).wrong_bytes <= 16


def test_no_sector_of_a_file_is_like_another(blank, tmp_path):
    write(blank, "io_uring", shuffled(), sync=True)
    data = (tmp_path / "blank").read_bytes()
    assert len({data[at : at + 512] for at in range(0, len(data), 512)}) == len(data) // 512


def test_the_fsync_has_a_clock_of_its_own(blank):
    without, with_it = write(blank, "io_uring", shuffled()), write(blank, "io_uring", shuffled(), sync=True)
    assert without.sync_s == 0
    assert with_it.sync_s > 0


@engines
def test_cpu_seconds_are_those_of_the_process(pattern, engine):
    """The comparison of every byte keeps the threads busy, so that they use CPU time."""
    before = time.process_time()
    done = read(pattern, engine, shuffled() * 20, cpus=any_cpus(2))
    whole = time.process_time() - before
    assert 0.5 * whole < done.cpu_s <= whole + 0.02


def test_buffers_that_do_not_fit_never_reach_the_loop(pattern):
    places = array.array("q", [0])
    with Buffer(BLOCK) as buffers:
        blocks = files.Blocks(pattern, "threads", places, places, BLOCK, 1, buffers)
        with pytest.raises(ValueError, match="must fit the pass"):
            files.read_pass(blocks, seed=SEED, check=False, cpus=(0, 0))


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


@engines
@pytest.mark.parametrize(("flags", "number"), [(os.O_RDONLY, errno.EBADF), (os.O_RDWR | os.O_DIRECT, errno.EINVAL)])
def test_a_write_that_cannot_be_is_an_error_by_its_name(tmp_path, blank, engine, flags, number):
    fd = os.open(tmp_path / "blank", flags)
    with pytest.raises(NativeError, match=f"write with {engine}: {os.strerror(number)}"):
        write(fd, engine, [0, 100, BLOCK], cpus=any_cpus(2))
    os.close(fd)


@engines
def test_a_disk_that_is_full_in_the_middle_of_a_pass_is_named(small_disk, engine):
    fd = os.open(small_disk("disk", "size=512k") / "file", os.O_RDWR | os.O_CREAT)
    with pytest.raises(NativeError, match=f"write with {engine}: No space left on device") as caught:
        write(fd, engine, shuffled(), cpus=any_cpus(2))
    assert caught.value.code == -errno.ENOSPC
    os.close(fd)


def test_a_write_of_which_only_a_part_was_taken_is_an_error(tmp_path):
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    fd = os.open(tmp_path / "file", os.O_RDWR | os.O_CREAT)
    resource.setrlimit(resource.RLIMIT_FSIZE, (3 * BLOCK + 100, hard))
    try:
        with pytest.raises(NativeError, match="accepted only part of a write"):
            write(fd, "threads", range(0, 4 * BLOCK, BLOCK))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        os.close(fd)


@engines
def test_more_threads_than_the_system_gives_are_an_error_and_none_stays(pattern, engine, tmp_path):
    """The limit of the address space has room for only a few stacks."""
    before = tasks()
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    used = int(Path("/proc/self/statm").read_text("utf-8").split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + (256 << 20), hard))
    try:
        with pytest.raises(NativeError, match=r"no further thread|out of memory|Cannot allocate memory"):
            read(pattern, engine, shuffled(), depth=2, cpus=any_cpus(256))
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
    assert tasks() == before


def test_a_refused_io_uring_is_told_with_its_reason(pattern):
    with Buffer(BLOCK) as buffer:
        assert files.io_uring_works(pattern, buffer, BLOCK) == ""
        assert "Bad file descriptor" in files.io_uring_works(9999, buffer, BLOCK)


@pytest.mark.machine
def test_extents_cover_the_file_and_hold_its_bytes_on_the_device(tmp_path):
    """The file is on ext4 in a loop file, whose bytes can be read directly. Holes force several extents."""
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
        with pytest.raises(CannotJudge, match="no plain location on the device"):
            files.extents(file.fileno())


def test_a_file_system_that_cannot_say_where_a_file_lies_is_named(small_disk):
    with (small_disk("disk", "size=1m") / "file").open("wb") as file, pytest.raises(CannotJudge, match="FIEMAP"):
        files.extents(file.fileno())


def test_the_test_file_has_no_name_holds_the_pattern_and_is_direct(tmp_path):
    with direct_file.test_file(str(tmp_path), 1 << 20) as fd:
        assert list(tmp_path.iterdir()) == []
        assert fcntl.fcntl(fd, fcntl.F_GETFL) & os.O_DIRECT
        with Buffer(1 << 20) as buffer:
            places = array.array("q", [0])
            blocks = files.Blocks(fd, "threads", places, places, 1 << 20, 1, buffer)
            done = files.read_pass(blocks, seed=direct_file.SEED, check=True)
        assert done.wrong_bytes == 0


def test_a_file_system_without_direct_access_is_refused_and_nothing_stays_behind(small_disk):
    """ramfs creates the file and then refuses O_DIRECT, so its name must be removed again."""
    folder = small_disk("disk", kind="ramfs")
    with (
        pytest.raises(CannotJudge, match="cannot create a test file with O_DIRECT"),
        direct_file.test_file(str(folder), 1 << 20),
    ):
        pass
    assert list(folder.iterdir()) == []


def test_a_full_disk_is_named_with_the_kernel_s_words(small_disk):
    folder = small_disk("disk", "size=512k")
    full = pytest.raises(CannotJudge, match=r"writing the test file in .*: No space left on device")
    with full, direct_file.test_file(str(folder), 1 << 20):
        pass
    assert list(folder.iterdir()) == []

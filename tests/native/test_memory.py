"""The data check finds every kind of wrong transfer; copies move all bytes and return a time per sample."""

from __future__ import annotations

import ctypes
import os

import pytest

from railwright.errors import CannotJudge
from railwright.native import memory
from railwright.native.library import NativeError
from railwright.native.memory import Buffer

SEED = 77
SIZES = [1, 7, 8, 9, 63, 64, 65, 511, 4095, 4096, 4097, 65536, 100_003]


def view(buffer: Buffer) -> memoryview:
    return memoryview((ctypes.c_ubyte * buffer.size_bytes).from_address(buffer.address)).cast("B")


def splitmix64(seed: int, index: int) -> int:
    """splitmix64 as published by Steele, Lea and Flood (2014), written again to compare the C version with."""
    mask = 2**64 - 1
    z = (seed + (index + 1) * 0x9E3779B97F4A7C15) & mask
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & mask
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & mask
    return z ^ (z >> 31)


@pytest.mark.parametrize("size", SIZES)
def test_the_pattern_is_splitmix64_of_the_position(size):
    with Buffer(size) as buffer:
        buffer.fill(SEED)
        words = b"".join(splitmix64(SEED, index).to_bytes(8, "little") for index in range(-(-size // 8)))
        assert bytes(view(buffer)) == words[:size]
        assert buffer.count_wrong(SEED) == 0


def test_the_first_word_is_that_of_the_reference_implementation():
    """The value is that of Vigna's splitmix64.c for seed 1234567, as in the test vectors of several libraries."""
    with Buffer(8) as buffer:
        buffer.fill(1234567)
        assert int.from_bytes(view(buffer), "little") == 6457827717110365317


@pytest.mark.parametrize("size", SIZES)
def test_every_single_flipped_bit_is_found_wherever_it_is(size):
    with Buffer(size) as buffer:
        buffer.fill(SEED)
        bytes_ = view(buffer)
        for place in {0, size // 3, size // 2, size - 1}:
            for bit in (0, 7):
                bytes_[place] ^= 1 << bit
                assert buffer.count_wrong(SEED) == 1
                bytes_[place] ^= 1 << bit
        assert buffer.count_wrong(SEED) == 0


@pytest.mark.parametrize("shift", [1, 3, 8, 64, 512, 4096])
def test_data_that_is_shifted_is_wrong_nearly_everywhere(shift):
    with Buffer(16384) as buffer:
        buffer.fill(SEED)
        bytes_ = view(buffer)
        bytes_[shift:] = bytes(bytes_[:-shift])
        assert buffer.count_wrong(SEED) > 0.98 * (16384 - shift)


def test_a_stale_a_zeroed_and_a_repeated_block_are_counted():
    block, size = 512, 8192
    with Buffer(size) as buffer:
        bytes_ = view(buffer)
        for spoil in ("stale", "zeroed", "repeated"):
            buffer.fill(SEED - 1)
            before = bytes(bytes_[block : 2 * block])
            buffer.fill(SEED)
            other = {"stale": before, "zeroed": bytes(block), "repeated": bytes(bytes_[:block])}[spoil]
            really_wrong = sum(a != b for a, b in zip(bytes_[block : 2 * block], other, strict=True))
            bytes_[block : 2 * block] = other
            assert buffer.count_wrong(SEED) == really_wrong > 0.95 * block, spoil


def test_a_part_can_be_checked_at_its_position_in_the_whole():
    with Buffer(4096) as whole, Buffer(1024) as part:
        whole.fill(SEED)
        part.fill(SEED, position=2048)
        assert bytes(view(part)) == bytes(view(whole)[2048:3072])
        assert part.count_wrong(SEED, position=2048) == 0
        assert part.count_wrong(SEED, position=1024) > 1000


def test_the_verification_says_how_much_was_compared_and_how_much_is_wrong():
    with Buffer(4096) as buffer:
        buffer.fill(SEED)
        view(buffer)[100] ^= 0xFF
        check = buffer.verify(SEED, 1000)
        assert (check.bytes_checked, check.bytes_wrong) == (1000, 1)
        assert buffer.verify(SEED, 100).bytes_wrong == 0


def test_memory_that_is_not_there_is_a_named_error():
    with pytest.raises(CannotJudge, match="cannot allocate 4096 TiB of memory"):
        Buffer(2**52)


@pytest.mark.parametrize("size", [1, 4097, 1 << 20])
def test_a_copy_copies_and_gives_one_time_for_each_sample(size):
    with Buffer(size) as source, Buffer(size) as target:
        source.fill(SEED)
        seconds = memory.copy(target, source, size, inner=3, warm=1, samples=5)
        assert len(seconds) == 5
        assert all(second > 0 for second in seconds)
        assert target.count_wrong(SEED) == 0


def test_copies_on_all_cpus_are_checked_on_all_of_them():
    cpus = sorted(os.sched_getaffinity(0))
    seconds, check = memory.copy_threads(cpus, 100_000, inner=2, samples=4)
    assert len(seconds) == 4
    assert all(second > 0 for second in seconds)
    assert (check.bytes_checked, check.bytes_wrong) == (100_000 * len(cpus), 0)


def test_a_cpu_that_does_not_exist_is_a_named_error():
    with pytest.raises(NativeError, match="bind to CPU 1000"):
        memory.pin(1000)
    with pytest.raises(NativeError, match="memory copy on 1 threads"):
        memory.copy_threads([1000], 4096, inner=1, samples=1)


def test_pages_lie_on_the_node_that_was_asked_for_and_are_counted_there():
    """The machine may have only node 0, so the test places memory there and expects none on node 1."""
    for size in (1, 4096, 4097, 3 << 20):
        with Buffer(size, node=0) as buffer:
            assert buffer.pages == -(-size // 4096)
            assert (buffer.pages_on(0), buffer.pages_on(1)) == (buffer.pages, 0)


def test_pages_that_a_process_gave_back_are_on_no_node():
    with Buffer(1 << 20, huge=False) as buffer:
        here = buffer.pages_on(0)
        libc = ctypes.CDLL(None, use_errno=True)
        assert libc.madvise(ctypes.c_void_p(buffer.address), ctypes.c_size_t(1 << 19), 4) == 0  # MADV_DONTNEED
        assert buffer.pages_on(0) == here - 128


@pytest.mark.parametrize("node", [63, 1023, 1024, 2**31 - 1, -2])
def test_a_node_that_does_not_exist_is_a_named_error(node):
    with pytest.raises(CannotJudge, match=rf"cannot place memory on NUMA node {node}: Invalid argument \(the kernel"):
        Buffer(4096, node=node)

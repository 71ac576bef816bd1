"""The counts of cuFile, nvidia-fs and the kernel for a pass are read, and inconsistent ones are rejected."""

from __future__ import annotations

import os
import struct
from pathlib import Path

import pytest

from railwright.native import cufile_watch
from railwright.native.cufile_watch import PathCounts, read_counters

# As recorded from libcufile 1.15.1.6 and 1.20.0.107 after three writes and three reads of 64 KiB in compatibility
# mode: (byte, value). Read and write operations, their bytes, GPUs, and the first GPU's bytes, totals and POSIX.
OF_1_15 = {0: 6, 16: 6, 96: 196608, 104: 196608, 144: 3, 152: 3, 160: 858, 168: 1261, 552: 3, 808: 3, 1024: 1,
           1032: 506381209866536711, 1040: 506381209866536711, 1048: 196608, 1072: 851, 1080: 3, 1104: 3,
           1152: 196608, 1160: 9, 1176: 228, 1184: 3, 1208: 3}  # fmt: skip
OF_1_20 = {0: 3, 16: 3, 96: 196608, 104: 196608, 128: 350, 136: 1301, 144: 3, 152: 3, 160: 1124, 168: 4400, 664: 3,
           920: 3, 1136: 1, 1144: 506381209866536711, 1152: 506381209866536711, 1160: 196608, 1184: 986, 1192: 3,
           1216: 3, 1264: 196608, 1288: 4394, 1296: 3, 1320: 3}  # fmt: skip
# NIXL's GDS backend on 1.15.1.6: a batch of two writes of 4 KiB. And GDS_MT: 256 writes of 4 KiB from host memory.
BATCH_OF_1_15 = {176: 1, 192: 1, 352: 2, 400: 2, 424: 8192, 464: 1, 472: 1, 480: 610, 488: 759, 776: 2, 1024: 2}
HOST_MEMORY = {16: 512, 104: 1048576, 120: 199163, 136: 623, 152: 8, 168: 42269, 776: 256, 1024: 2}

# The format of nvidia-fs in NVIDIA's GPUDirect Storage troubleshooting guide, section 16, with other numbers.
STATS = """GDS Version: 1.0.0.71
NVFS statistics(ver: 4.0)
NVFS Driver(version: 2:7:47)
Mellanox PeerDirect Supported: True
IO stats: Enabled, peer IO stats: Enabled
Logging level: info

Active Shadow-Buffer (MiB): 0
Active Process: 0
Reads                           : n=70 ok=64 err=6 readMiB=64 io_state_err=0
Reads                           : Bandwidth(MiB/s)=0 Avg-Latency(usec)=0
Sparse Reads : n=6 io=0 holes=0 pages=0
Writes                          : n=33 ok=32 err=1 writeMiB=32 io_state_err=0
        pg-cache=0 pg-cache-fail=0 pg-cache-eio=0
Ops : Read=0 Write=0
"""
NOT_COUNTING = (
    "IO stats: Disabled, peer IO stats: Disabled\nReads : err=0 io_state_err=0\nWrites : err=0 io_state_err=0\n"
)


NOTHING = bytes(65536)


def laid(values: dict[int, int]) -> bytes:
    room = bytearray(65536)
    for at, value in values.items():
        struct.pack_into("<Q", room, at, value)
    return bytes(room)


@pytest.mark.parametrize("write", [False, True])
@pytest.mark.parametrize("values", [OF_1_15, OF_1_20])
def test_counters_of_the_real_library_are_read_though_1_15_counts_each_operation_twice(values, write):
    assert read_counters(NOTHING, laid(values), write=write) == PathCounts(3, 0, 0, 3)


def test_a_batch_is_read_and_belongs_to_the_direction_in_which_all_of_it_went():
    assert read_counters(NOTHING, laid(BATCH_OF_1_15), write=True) == PathCounts(2, 0, 0, 2)
    assert read_counters(NOTHING, laid(BATCH_OF_1_15), write=False) is None
    both_ways = BATCH_OF_1_15 | {416: 4096}
    assert read_counters(NOTHING, laid(both_ways), write=True) is None


def test_single_operations_and_batches_are_added():
    assert read_counters(NOTHING, laid(OF_1_15 | {320: 4, 384: 1, 400: 5, 424: 8192}), write=True) == PathCounts(
        8, 0, 4, 3, 1
    )


@pytest.mark.parametrize("write", [False, True])
@pytest.mark.parametrize("values", [OF_1_15, OF_1_20])
def test_what_was_counted_before_the_look_is_no_part_of_it(values, write):
    at = 1024 if values is OF_1_15 else 1136
    kept = {at, at + 8, at + 16}  # the number of GPUs, and their ids
    twice = {place: value if place in kept else 2 * value for place, value in values.items()}
    assert read_counters(laid(values), laid(twice), write=write) == PathCounts(3, 0, 0, 3)
    assert read_counters(laid(twice), laid(twice), write=write) is None


def test_host_memory_belongs_to_no_gpu():
    assert read_counters(NOTHING, laid(HOST_MEMORY), write=True) is None


@pytest.mark.parametrize("wrong", [{1048: 196607}, {1152: 0}, {1024: 4_000_000_000}, {1024: 0}, {96: 0}])
def test_counters_that_do_not_add_up_are_not_believed(wrong):
    assert read_counters(NOTHING, laid(OF_1_15 | wrong), write=False) is None


def test_nothing_counted_is_no_way():
    assert read_counters(NOTHING, laid({}), write=False) is None
    assert read_counters(NOTHING, b"\xff" * 65536, write=True) is None


def test_nvidia_fs_counts_what_ended_well(monkeypatch, tmp_path):
    stats = tmp_path / "stats"
    monkeypatch.setattr(cufile_watch, "_DRIVER", stats)
    assert cufile_watch.driver_operations(write=False) is None, "it is not loaded"
    stats.write_text(STATS)
    assert (cufile_watch.driver_operations(write=False), cufile_watch.driver_operations(write=True)) == (64, 32)
    stats.write_text(NOT_COUNTING)
    assert cufile_watch.driver_operations(write=False) is None


@pytest.mark.parametrize("write", [False, True])
def test_the_kernel_counts_what_this_process_reads_and_writes_directly(tmp_path, write):
    fd = os.open(tmp_path / "file", os.O_RDWR | os.O_CREAT)
    os.pwrite(fd, bytes(1 << 20), 0)
    before = cufile_watch.called_bytes(write=write)
    if before is None:
        pytest.skip("this kernel has no /proc/self/io")
    moved = os.pwrite(fd, bytes(1 << 20), 0) if write else len(os.pread(fd, 1 << 20, 0))
    after = cufile_watch.called_bytes(write=write)
    os.close(fd)
    assert moved <= after - before < moved + 4096


def test_where_the_kernel_does_not_count_nothing_is_said(monkeypatch):
    monkeypatch.setattr(Path, "read_text", lambda *_arguments, **_names: "rchar: many\n")
    assert cufile_watch.called_bytes(write=False) is None
    assert cufile_watch.called_bytes(write=True) is None

"""Our side of the read comparison: `--write PATH BYTES` creates the file, `PATH SIZE DEPTH PASSES [THREADS]` reads it.

Reading prints the total seconds of all passes, since fio reports the rate of the whole run.
"""

from __future__ import annotations

import ctypes
import os
import sys

from railwright.benchmarks.files.direct_file import SEED
from railwright.benchmarks.files.direct_io import order_blocks
from railwright.native.files import Blocks, Extent, read_pass
from railwright.native.memory import Buffer, pin

CHUNK = 4 * 2**20


def write(path: str, size: int) -> None:
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_DIRECT, 0o600)
    with Buffer(CHUNK) as buffer:
        for position in range(0, size, CHUNK):
            buffer.fill(SEED, position=position)
            os.pwrite(fd, (ctypes.c_char * CHUNK).from_address(buffer.address), position)
    os.fsync(fd)
    os.close(fd)


def read(path: str, size: int, depth: int, passes: int, threads: int = 1) -> None:
    pin(0)
    fd = os.open(path, os.O_RDONLY | os.O_DIRECT)
    offsets, positions = order_blocks((Extent(0, 0, os.fstat(fd).st_size),), size, "random")
    cpus = tuple(range(threads))
    with Buffer(size * depth * threads, huge=True) as buffers:
        work = Blocks(fd, "io_uring", offsets, positions, size, depth, buffers)
        elapsed = sum(read_pass(work, seed=SEED, check=False, cpus=cpus).elapsed_s for _ in range(passes))
    print(elapsed)


if sys.argv[1] == "--write":
    write(sys.argv[2], int(sys.argv[3]))
else:
    read(sys.argv[1], *map(int, sys.argv[2:6]))

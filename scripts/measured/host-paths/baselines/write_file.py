"""Our side of the write comparison: `PATH SIZE DEPTH PASSES` overwrites an existing file.

Prints the total seconds of all passes, since fio reports the rate of the whole run.
"""

from __future__ import annotations

import os
import sys

from railwright.benchmarks.files.direct_file import SEED
from railwright.benchmarks.files.direct_io import order_blocks
from railwright.native.files import Blocks, Extent, write_pass
from railwright.native.memory import Buffer, pin


def write(path: str, size: int, depth: int, passes: int) -> None:
    pin(0)
    fd = os.open(path, os.O_RDWR | os.O_DIRECT)
    offsets, positions = order_blocks((Extent(0, 0, os.fstat(fd).st_size),), size, "random")
    with Buffer(size * depth, huge=True) as buffers:
        work = Blocks(fd, "io_uring", offsets, positions, size, depth, buffers)
        elapsed = sum(write_pass(work, seed=SEED + one, sync=False).elapsed_s for one in range(passes))
    print(elapsed)


write(sys.argv[1], *map(int, sys.argv[2:5]))

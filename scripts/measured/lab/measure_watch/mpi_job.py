"""Computes and reduces over MPI in iterations, without knowledge of railwright, and records its own times.

mpirun ... python mpi_job.py FOLDER ITERATIONS BYTES SECONDS,SECONDS
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

from mpi4py import MPI

folder, iterations, size_bytes, computes = sys.argv[1:]
rank = MPI.COMM_WORLD.rank
compute_s = float(computes.split(",")[rank])
ours, theirs = bytearray(int(size_bytes)), bytearray(int(size_bytes))
told = []
for _ in range(int(iterations)):
    begun = time.monotonic()
    until = time.process_time() + compute_s
    while time.process_time() < until:
        sum(range(20_000))
    computed = time.monotonic()
    MPI.COMM_WORLD.Allreduce([ours, MPI.BYTE], [theirs, MPI.BYTE], MPI.MAX)
    told.append((begun, computed, time.monotonic()))
Path(folder, f"{rank}.json").write_text(json.dumps(told), encoding="ascii")

"""MPI all_reduce over the ranks of one host: the sum of all ranks' floats, on every rank."""

from __future__ import annotations

from railwright.benchmarks import mpi_collective

BENCHMARK = mpi_collective.benchmark("all_reduce", "MPI all_reduce: the sum of all ranks' floats, on every rank")

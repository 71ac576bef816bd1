"""MPI all_gather over the ranks of one host: the share of every rank, on every rank."""

from __future__ import annotations

from railwright.benchmarks import mpi_collective

BENCHMARK = mpi_collective.benchmark("all_gather", "MPI all_gather: the share of every rank, on every rank")

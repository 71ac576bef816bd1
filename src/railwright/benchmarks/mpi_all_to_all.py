"""MPI all_to_all over the ranks of one host: a share of every rank for each of the others."""

from __future__ import annotations

from railwright.benchmarks import mpi_collective

BENCHMARK = mpi_collective.benchmark("all_to_all", "MPI all_to_all: a share of every rank for each of the others")

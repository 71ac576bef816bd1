"""MPI reduce_scatter over the ranks of one host: the sum of all ranks' floats, one share of it on each."""

from __future__ import annotations

from railwright.benchmarks import mpi_collective

BENCHMARK = mpi_collective.benchmark("reduce_scatter", "MPI reduce_scatter: the sum of all ranks' floats, shared out")

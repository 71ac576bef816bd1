"""The probes of a fabric search: each sends between given pairs of hosts.

They stay out of the registry so that their ranks load nothing else, not even each other: a search starts a rank on
every host again and again, and loading all benchmarks takes three times as long.
"""

from __future__ import annotations

from importlib import import_module

from railwright.benchmarks.benchmark import AnyBenchmark

_MODULES = {
    "pinned_flows": "railwright.benchmarks.sockets.pinned_flows",
    "mpi_flows": "railwright.benchmarks.mpi.flows",
    "nccl_flows": "railwright.benchmarks.nccl.flows",
    "rdma_flows": "railwright.benchmarks.rdma.flows",
}


def find_probe(name: str) -> AnyBenchmark | None:
    """Return the probe with that name, or None if there is none."""
    module = _MODULES.get(name)
    if module is None:
        return None
    found: AnyBenchmark = import_module(module).BENCHMARK
    return found


def list_probes() -> tuple[AnyBenchmark, ...]:
    """Return all probes."""
    return tuple(probe for probe in map(find_probe, _MODULES) if probe is not None)

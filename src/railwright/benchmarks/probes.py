"""What a search of a fabric launches: each sends between pairs of hosts that it is told.

They are apart from the registry so that their ranks load nothing else, not even each other: a search starts a rank on
every host again and again, and all benchmarks together take three times as long to load.
"""

from __future__ import annotations

from importlib import import_module

from railwright.benchmarks.benchmark import AnyBenchmark

_MODULES = {
    "pinned_flows": "railwright.benchmarks.sockets.pinned_flows",
    "mpi_flows": "railwright.benchmarks.mpi.flows",
    "nccl_flows": "railwright.benchmarks.nccl.flows",
}


def probe_named(name: str) -> AnyBenchmark | None:
    """The probe of that name; None where it is no probe's."""
    module = _MODULES.get(name)
    if module is None:
        return None
    found: AnyBenchmark = import_module(module).BENCHMARK
    return found


def probes() -> tuple[AnyBenchmark, ...]:
    """All of them."""
    return tuple(one for one in map(probe_named, _MODULES) if one is not None)

"""What a search of a fabric launches: each sends between pairs of hosts that it is told.

They are apart from the registry so that their ranks load nothing else: a search starts a rank on every host again and
again, and all benchmarks together take three times as long to load.
"""

from __future__ import annotations

from railwright.benchmarks.benchmark import AnyBenchmark
from railwright.benchmarks.sockets import pinned_flows

PROBES: tuple[AnyBenchmark, ...] = (pinned_flows.BENCHMARK,)


def probe_named(name: str) -> AnyBenchmark | None:
    """The probe of that name; None where it is no probe's."""
    return next((one for one in PROBES if one.name == name), None)

"""The limits of single points, for tests that query them one at a time."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from railwright.benchmarks.registry import DECLARATIONS
from railwright.diagnosis.runs.own_runs import LimitFinder
from railwright.limits.limit import Bounds, Quantity
from railwright.results.records import Result
from railwright.topology.devices import Path, Scalar, Topology


class Finder:
    """A `LimitFinder` with the declarations of today's benchmarks, queried by the parts of a point."""

    def __init__(
        self, topology: Topology, results: Iterable[Result] = (), environment: Mapping[str, str] | None = None
    ) -> None:
        self._finder = LimitFinder(topology, tuple(results), DECLARATIONS, environment)

    def find(
        self,
        benchmark: str,
        quantity: Quantity,
        path: str,
        parameters: dict[str, Scalar],
        settings: dict[str, Scalar] | None = None,
    ) -> Bounds:
        """Return the limit and the band of a point."""
        point = Result(
            benchmark=benchmark, quantity=quantity, path=path, parameters=parameters, settings=settings or {}
        )
        return self._finder.find(point)

    def path(self, path: str) -> Path | None:
        """Return the path over the topology."""
        return self._finder.path(path)

"""What a launch leaves to be done when a library crashed in one of its cases."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from railwright.benchmarks.benchmark import AnyJob
from railwright.results.records import Result


def cases_behind(job: AnyJob, results: Sequence[Result], steps: Sequence[str], keys: Sequence[str]) -> AnyJob | None:
    """The cases behind the one that crashed; None where it was none of them, or the last one.

    `steps` are what the rank calls its cases, in their order, and `keys` the parameters that tell one from another.
    """
    ended = {tuple(one.parameters.get(key) for key in keys) for one in results if keys[0] in one.parameters}
    crashed = job.first_case + len(ended)
    was_in_it = crashed < len(steps) and any(repr(steps[crashed]) in one.reason for one in results)
    return replace(job, first_case=crashed + 1) if was_in_it and crashed + 1 < len(steps) else None

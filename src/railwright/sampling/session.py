"""A sampling session: opens the sources, reads costly ones less often, and records rows each second."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

from railwright.diagnosis.iterations.aliases import SPREAD
from railwright.errors import CannotJudge
from railwright.native.sampler import Costs, Sampler
from railwright.sampling.gpu_found import GPU_MEMORY
from railwright.sampling.late import GpuNumbers, LateSamples
from railwright.sampling.recording import Recorded, Recording, new_about
from railwright.sampling.sources import Found, Source

INTERVAL_S = 0.01
BATCH_S = 1.0
_MAX_FILE_COST_S = 10e-6
"""The maximum mean time per tick for a file: a slower file is read at fewer ticks. A tick has 50 us in all."""
_MAX_TICKS = 100
_SELDOM_S = 1.0
_LATE_S, _LATE_POLL_S = 1.5, 0.05
"""The time that the last rows wait for late samples, and the interval of polls."""


class Session:
    """A context manager that samples while it is open. The caller calls `fetch` each second."""

    def __init__(
        self,
        found: Found,
        file: Path | int | None,
        command: Sequence[str] = (),
        interval_s: float = INTERVAL_S,
        gpus: GpuNumbers | None = None,
    ) -> None:
        """Open the sources. `gpus` holds the numbers of GPU sources. Raises CannotJudge if no source can be read."""
        self._sampler = Sampler()
        self._interval_s = interval_s
        self._gpus = gpus
        missing = dict(found.missing)
        sources = self._open_sources(found.sources, missing)
        if not sources:
            self._sampler.end()
            raise CannotJudge(
                "no counter of this machine can be sampled", hint="check that /proc and /sys are mounted and readable"
            )
        self._late = LateSamples(sources, gpus.samples if gpus is not None else dict)
        self.recording = Recording(new_about(sources, missing, found.scope, interval_s, command), file)

    def _open_sources(self, sources: Sequence[Source], missing: dict[str, str]) -> list[Source]:
        """Return the sources that could be opened and read, in the order of the sampler's values."""
        opened: list[Source] = []
        files: dict[tuple[bool, str], int | None] = {}
        # A file is read once for all its values; sources read seldom come last, as they share a column.
        for source in sorted(sources, key=lambda source: (source.seldom, source.path)):
            place = (source.seldom, source.path)
            if place not in files:
                files[place] = self._open_place(source, missing)
            number = files[place]
            if number is not None:
                self._sampler.value(number, source.key, source.field)
                opened.append(source)
        return opened

    def _open_place(self, source: Source, missing: dict[str, str]) -> int | None:
        if source.path != GPU_MEMORY or self._gpus is None:
            return self._open_file(source, missing)
        number = self._sampler.memory(self._gpus.address, once=source.seldom)
        self._sampler.every(number, max(1, round(_SELDOM_S / self._interval_s)) if source.seldom else 1)
        return number

    def _open_file(self, source: Source, missing: dict[str, str]) -> int | None:
        try:
            number = self._sampler.file(source.path)
        except OSError as error:
            missing[source.name] = f"{source.path} {(error.strerror or 'cannot be opened').lower()}"
            return None
        cost_s = self._sampler.cost_s(number)
        if cost_s is None:
            missing[source.name] = f"{source.path} cannot be read"
            return None
        self._sampler.every(number, min(_MAX_TICKS, max(1, round(cost_s / _MAX_FILE_COST_S))))
        return number

    def __enter__(self) -> Session:
        self.recording.__enter__()
        try:
            self._sampler.start(self._interval_s, SPREAD)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._sampler.end()
        self.recording.__exit__()

    def fetch(self) -> None:
        """Record the rows since the last call, except those that wait for late samples."""
        self._late.add(self._sampler.fetch())
        self.recording.add(self._late.ready())

    def costs(self) -> Costs:
        """Return the cost of sampling so far."""
        return self._sampler.costs()

    def finish(self) -> tuple[Recorded, Costs]:
        """Record the remaining rows. Returns the recording and the cost of sampling."""
        costs = self.costs()
        self.fetch()
        until_s = time.monotonic() + _LATE_S
        while not self._late.is_complete and time.monotonic() < until_s:
            time.sleep(_LATE_POLL_S)
            self._late.add(())
        self.recording.add(self._late.ready(all_of_them=True))
        return self.recording.recorded(), costs

"""A host watched from this machine: it sends its recording as an Arrow stream, and its clock is polled.

Two programs run there: `railwright watch --record -` and `railwright.watch.clock`. Both exit when their streams close.
"""

from __future__ import annotations

import contextlib
import math
import time
from array import array
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from railwright.errors import CannotJudge, RailwrightError
from railwright.process import Child
from railwright.sampling.offset import CLOCK, Offset, estimate_offset
from railwright.sampling.recording import MAX_ROWS, Recorded, Recording, RecordingMetadata, open_recording, read_rows
from railwright.sampling.sources import Source
from railwright.watch.clock import boot_id

_FIRST, _AGAIN = 32, 8
"""The exchanges with a host's clock, first and later; the shortest counts."""
_AGAIN_S = 5.0
_MAX_CLOCK_BYTES = 100
_LONGEST_REASON = 200
_ENDS_S = 5.0
_GAUGE = Source(name=CLOCK, kind="clock", unit="s", scale=1.0, path="", gauge=True, seldom=True)


class WatchedHost:
    """A watched host. `run` blocks until the host's stream ends or another thread calls `end`."""

    def __init__(self, host: str, clock: Sequence[str], watch: Sequence[str], file: Path | None) -> None:
        """`clock` and `watch` are the command lines that start the two programs there; `file` is for the recording."""
        self.host = host
        self.trouble = ""
        """The reason why there is no recording, or why it ends early."""
        self.heard_s = time.monotonic()
        """The monotonic time of the last batch."""
        self._clock_argv, self._watch_argv, self._file = clock, watch, file
        self._children: list[Child] = []
        self._is_over = False
        self._recording: Recording | None = None
        self.is_done = False
        """Whether the stream has ended."""

    def recorded(self) -> Recorded | None:
        """Return the recording so far."""
        return self._recording.recorded() if self._recording is not None else None

    def end(self, why: str = "") -> None:
        """End the programs and keep the rows received. `why` is the reason if the host is given up."""
        self._is_over = True
        self.trouble = self.trouble or why
        for child in self._children:
            child.stop(grace_s=0.5)

    def run(self) -> None:
        """Record until the end; `trouble` holds the reason of a failure."""
        try:
            with self._child(self._clock_argv) as clock:
                offset = self._first_offset(clock)
                with self._child(self._watch_argv) as child:
                    self._record(child, clock, offset)
        except (RailwrightError, OSError) as error:
            if not self._is_over:
                self.trouble = (error.message if isinstance(error, RailwrightError) else str(error))[:_LONGEST_REASON]
        finally:
            self.is_done = True

    @contextlib.contextmanager
    def _child(self, argv: Sequence[str]) -> Iterator[Child]:
        with Child(argv, by_caller=True) as child:
            self._children.append(child)
            if self._is_over:
                raise CannotJudge("the watch ended before it began")
            yield child

    def _first_offset(self, clock: Child) -> Offset:
        seconds, half_width_s, boot = _measure_offset(clock, _FIRST)
        return Offset(seconds=seconds, half_width_s=half_width_s, boot=boot, to_boot=boot_id())

    def _record(self, child: Child, clock: Child, offset: Offset) -> None:
        try:
            arrays, about = open_recording(child.answers, self.host)
        except RailwrightError:
            raise CannotJudge(_exit_reason(child)) from None
        sources = (*(source for source in about.sources if source.name != CLOCK), _GAUGE)
        self._recording = Recording(replace(about, sources=sources, host=self.host, offset=offset), self._file)
        asked_s = time.monotonic()
        with self._recording:
            for times_s, moved in _batches(arrays, about):
                self.heard_s = time.monotonic()
                changes = array("f", [math.nan]) * len(times_s)
                if self.heard_s - asked_s > _AGAIN_S and times_s:
                    asked_s = self.heard_s
                    changes[-1] = _measure_offset(clock, _AGAIN)[0] - offset.seconds
                self._recording.take(times_s, [*moved, changes])
                if len(self._recording.times_s) > MAX_ROWS:
                    raise CannotJudge(f"a recording must have at most {MAX_ROWS} rows, the host sent more")
        if child.wait(_ENDS_S).returncode and not self._is_over:
            raise CannotJudge(_exit_reason(child))


def _batches(arrays: Any, about: RecordingMetadata) -> Iterator[tuple[list[float], list[array[float]]]]:  # noqa: ANN401
    """Yield batches until the stream ends or is cut off."""
    try:
        for batch in arrays:
            yield read_rows(batch, about)
    except (ValueError, RuntimeError, TypeError):
        return  # the program's exit status or message gives the reason


def _measure_offset(clock: Child, times: int) -> tuple[float, float, str]:
    """Measure the offset of a host's clock, its half width, and the boot id of its kernel. Raises CannotJudge."""
    found, boot = [], ""
    for _ in range(times):
        try:
            before_s = time.monotonic()
            clock.asked.write(b"\n")
            clock.asked.flush()
            words = clock.answers.readline(_MAX_CLOCK_BYTES).decode("ascii").split()
            found.append((before_s, float(words[0]), time.monotonic()))
            boot = words[1]
        except (OSError, ValueError, IndexError):
            raise CannotJudge(_exit_reason(clock)) from None
    return *estimate_offset(found), boot


def _exit_reason(child: Child) -> str:
    """Return a program's own error message, or a description of its exit if it printed none."""
    finished = child.wait(_ENDS_S)
    lines = [line.strip() for line in child.complaints if line.strip()]
    own_message = next((line.removeprefix("railwright: ") for line in lines if line.startswith("railwright: ")), "")
    return (own_message or (lines[-1] if lines else finished.describe()))[:_LONGEST_REASON]


Tell = Callable[[Sequence[WatchedHost]], None]

"""Screening: a railwright process on every host of a run measures that host and sends its records.

A host that dies, hangs or cannot be reached does not affect the others, and is reported with the cause.
"""

from __future__ import annotations

import itertools
import shlex
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from railwright.errors import RailwrightError
from railwright.installation import PYTHON
from railwright.launch.frames import FrameReader
from railwright.launch.hosts import PlannedHosts
from railwright.launch.scratch import scratch_folder
from railwright.process import Child, ChildResult
from railwright.results.store import load
from railwright.run.screened import RESULTS, parse_step
from railwright.units import format_count
from railwright.writing import append, record_mode

FOLDER = "hosts"
_AT_ONCE = 64
_TICK_S = 0.1
_ENDS_S = 10.0
_MAX_REASON_CHARACTERS = 200


@dataclass
class HostScreen:
    """The screening of hosts. `words` are railwright's arguments on each host, beginning with the verb."""

    hosts: PlannedHosts
    words: Sequence[str]
    output: Path
    silence_s: float
    """The silence after which a host is abandoned. A host reports every few seconds."""
    limit_s: float
    """The time limit for each host."""
    tell: Callable[[str], None] = field(default=lambda _line: None)
    keep: bool = False
    """Whether to skip hosts whose records are complete from an earlier run."""
    _ended: bool = field(default=False, init=False)
    _pending: int = field(default=0, init=False)
    _counted: Iterator[int] = field(default_factory=lambda: itertools.count(1), init=False)
    """Counts the hosts that are done, in whatever thread."""

    @property
    def at_once(self) -> int:
        """The number of hosts that measure at the same time. Hosts that share CPUs measure one after the other."""
        return 1 if self.hosts.reach.shares_cpus else min(_AT_ONCE, len(self.hosts.names))

    def host_folder(self, host: str) -> Path:
        """Return the folder of a host's records and report."""
        return self.output / FOLDER / host.replace("/", "_").replace(":", "_")

    def run(self, agent: Callable[[Path], list[str]]) -> dict[str, str]:
        """Measure all hosts through an agent. Returns the failure of each host, which is empty if it succeeded."""
        kept = {host for host in self.hosts.names if self.keep and self._is_complete(host)}
        pending = [host for host in self.hosts.names if host not in kept]
        self._pending = len(pending)
        for host in pending:  # a host that sends nothing must not be judged by its old records
            (self.host_folder(host) / RESULTS).unlink(missing_ok=True)
        with scratch_folder() as scratch, ThreadPoolExecutor(self.at_once) as executor:
            reached_by = agent(scratch)
            line = shlex.join([*PYTHON, "-m", "railwright.run.screened", *self.words])
            try:
                found = executor.map(lambda host: self._measure_host(host, [*reached_by, host, line]), pending)
                return dict.fromkeys(self.hosts.names, "") | dict(zip(pending, found, strict=True))
            except BaseException:
                executor.shutdown(wait=False, cancel_futures=True)
                self._ended = True
                raise

    def _is_complete(self, host: str) -> bool:
        try:
            end = load(self.host_folder(host) / RESULTS).end
        except RailwrightError:
            return False
        return end is not None and not end.interrupted

    def _measure_host(self, host: str, argv: Sequence[str]) -> str:
        output = _HostOutput(self.host_folder(host))
        with Child(argv, answer_alone=True, output=deque()) as child:
            why = self._follow(output, child)
            if why:
                child.stop()
            finished = child.wait(_ENDS_S)
        output.take(finished.output)
        trouble = why or output.trouble(finished)
        self.tell(f"{host}: {trouble or 'done'} ({next(self._counted)} of {format_count(self._pending, 'host')})")
        return trouble

    def _follow(self, output: _HostOutput, child: Child) -> str:
        """Write records until the host ends. Returns why it was abandoned, or an empty string if it ended."""
        begun = last = time.monotonic()
        while child.poll() is None:
            time.sleep(_TICK_S)
            now = time.monotonic()
            if child.output:
                output.take([child.output.popleft() for _ in range(len(child.output))])
                last = now
            if self._ended:
                return "interrupted"
            where = f", at {output.step[:80]!r}" * bool(output.step)
            if now - last > self.silence_s:
                return f"silent for {now - last:.0f} s{where}"
            if now - begun > self.limit_s:
                return f"not done after {now - begun:.0f} s{where}"
        return ""


class _HostOutput:
    """The output of a host so far."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._reader = FrameReader()
        self._last_line = ""
        self.step = ""
        """The last step that the host reported."""

    def take(self, lines: Iterable[str]) -> None:
        """Process more lines, and write the records that are complete."""
        for line in lines:
            if self._reader.read(line) or not line.strip():
                continue
            step = parse_step(line)
            self.step = step or self.step
            self._last_line = line.strip() if step is None else self._last_line
        records = b"".join(record + b"\n" for _, record in self._reader.records())
        if records:
            self._folder.mkdir(parents=True, exist_ok=True)
            append(self._folder / RESULTS, records, record_mode())

    def trouble(self, finished: ChildResult) -> str:
        """Return why the records are incomplete, or an empty string. The last line of a failed host is the reason."""
        reader = self._reader
        if reader.is_complete:
            return ""
        trouble = "it sent no records" if reader.is_empty else "its records are truncated"
        if reader.has_gaps:
            trouble = "its records are damaged"
        if finished.returncode and self._last_line:
            return f"{trouble}: " * (not reader.is_empty) + self._last_line[:_MAX_REASON_CHARACTERS]
        return trouble + f" ({finished.describe()})" * bool(finished.returncode)

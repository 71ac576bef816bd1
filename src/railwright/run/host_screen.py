"""Every host of a run proves itself, by a railwright of its own there: what it sends is kept as it comes.

A host that dies, hangs or cannot be reached costs itself alone, and is named with its cause.
"""

from __future__ import annotations

import shlex
import sys
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from railwright.errors import RailwrightError
from railwright.launch.frames import FrameReader
from railwright.launch.hosts import PlannedHosts
from railwright.launch.scratch import scratch_folder
from railwright.process import Child, Finished
from railwright.results.store import load
from railwright.run.screened import RESULTS, parse_step

FOLDER = "hosts"
_AT_ONCE = 64
_TICK_S = 0.1
_ENDS_S = 10.0
_LONGEST_REASON = 200


@dataclass
class HostScreen:
    """`words` are those of railwright on each host, the verb first."""

    hosts: PlannedHosts
    words: Sequence[str]
    output: Path
    silence_s: float
    """A host that says nothing for so long is given up; it speaks every few seconds."""
    longest_s: float
    """How long a host may take in all."""
    tell: Callable[[str], None] = field(default=lambda _line: None)
    keep: bool = False
    """Whether hosts whose records are whole from an earlier run are not measured again."""
    _ended: bool = field(default=False, init=False)

    @property
    def at_once(self) -> int:
        """How many hosts measure at the same time: those that share CPUs one after the other."""
        return 1 if self.hosts.reach.shares_cpus else min(_AT_ONCE, len(self.hosts.names))

    def host_folder(self, host: str) -> Path:
        """Where a host's records and its report are."""
        return self.output / FOLDER / host.replace("/", "_").replace(":", "_")

    def run(self, agent: Callable[[Path], list[str]]) -> dict[str, str]:
        """Measure all hosts, reached by an agent; each host's trouble, empty for one whose records are whole."""
        there = {host for host in self.hosts.names if self.keep and self._is_whole(host)}
        asked = [host for host in self.hosts.names if host not in there]
        for host in asked:  # a host that sends nothing now must not be judged by what it sent once
            (self.host_folder(host) / RESULTS).unlink(missing_ok=True)
        with scratch_folder() as scratch, ThreadPoolExecutor(self.at_once) as executor:
            reached_by = agent(scratch)
            line = shlex.join([sys.executable, "-P", "-m", "railwright.run.screened", *self.words])
            try:
                found = executor.map(lambda host: self._one(host, [*reached_by, host, line]), asked)
                return dict.fromkeys(self.hosts.names, "") | dict(zip(asked, found, strict=True))
            except BaseException:
                executor.shutdown(wait=False, cancel_futures=True)
                self._ended = True
                raise

    def _is_whole(self, host: str) -> bool:
        try:
            end = load(self.host_folder(host) / RESULTS).end
        except RailwrightError:
            return False
        return end is not None and not end.interrupted

    def _one(self, host: str, argv: Sequence[str]) -> str:
        heard = _Heard(self.host_folder(host))
        with Child(argv, answer_alone=True, output=deque()) as child:
            why = self._follow(heard, child)
            if why:
                child.stop()
            finished = child.wait(_ENDS_S)
        heard.take(finished.output)
        trouble = why or heard.trouble(finished)
        self.tell(f"{host}: {trouble or 'done'}")
        return trouble

    def _follow(self, heard: _Heard, child: Child) -> str:
        """Wait for its end, and write what comes; why it is given up, empty where it ended."""
        begun = last = time.monotonic()
        while child.poll() is None:
            time.sleep(_TICK_S)
            now = time.monotonic()
            if child.output:
                heard.take([child.output.popleft() for _ in range(len(child.output))])
                last = now
            if self._ended:
                return "interrupted"
            where = f", at {heard.step[:80]!r}" * bool(heard.step)
            if now - last > self.silence_s:
                return f"silent for {now - last:.0f} s{where}"
            if now - begun > self.longest_s:
                return f"not done after {now - begun:.0f} s{where}"
        return ""


class _Heard:
    """What a host has sent until now."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._reader = FrameReader()
        self._said = ""
        self.step = ""
        """Where it says that it is."""

    def take(self, lines: Iterable[str]) -> None:
        """Take more lines, and write the records that are whole by now."""
        for line in lines:
            if self._reader.read(line) or not line.strip():
                continue
            self.step = parse_step(line) or self.step
            self._said = self._said if parse_step(line) else line.strip()
        records = b"".join(record + b"\n" for _, record in self._reader.records())
        if records:
            self._folder.mkdir(parents=True, exist_ok=True)
            with (self._folder / RESULTS).open("ab") as file:
                file.write(records)

    def trouble(self, finished: Finished) -> str:
        """Why the records are not whole; empty where they are. A host that failed says why in its last words."""
        reader = self._reader
        if reader.is_complete:
            return ""
        trouble = "it sent no records" if reader.is_empty else "its records were cut off"
        if reader.has_gaps:
            trouble = "its records are damaged"
        if finished.returncode and self._said:
            return f"{trouble}: " * (not reader.is_empty) + self._said[:_LONGEST_REASON]
        return trouble + f" ({finished.describe()})" * bool(finished.returncode)

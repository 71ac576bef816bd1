"""Every host of a run proves itself, by a railwright of its own there: what it sends is kept as it comes.

A host that dies, hangs or cannot be reached costs itself alone, and is named with its cause.
"""

from __future__ import annotations

import shlex
import sys
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from railwright.errors import RailwrightError
from railwright.launch.hosts import PlannedHosts
from railwright.launch.scratch import scratch_folder
from railwright.process import Child, Finished
from railwright.results.store import load
from railwright.run.screened import MOST_LINES, RESULTS, Sent, is_of_records, records_of, step_of

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

    def folder_of(self, host: str) -> Path:
        """Where a host's records and its report are."""
        return self.output / FOLDER / host.replace("/", "_").replace(":", "_")

    def run(self, agent: Callable[[Path], list[str]]) -> dict[str, str]:
        """Measure all hosts, reached by an agent; each host's trouble, empty for one whose records are whole."""
        there = {host for host in self.hosts.names if self.keep and self._is_whole(host)}
        asked = [host for host in self.hosts.names if host not in there]
        for host in asked:  # a host that sends nothing now must not be judged by what it sent once
            (self.folder_of(host) / RESULTS).unlink(missing_ok=True)
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
            end = load(self.folder_of(host) / RESULTS).end
        except RailwrightError:
            return False
        return end is not None and not end.interrupted

    def _one(self, host: str, argv: Sequence[str]) -> str:
        with Child(argv, answer_alone=True, output=deque(maxlen=MOST_LINES)) as child:
            why = self._follow(host, child)
            if why:
                child.stop()
            finished = child.wait(_ENDS_S)
        kept = self._keep(host, finished)
        trouble = why or kept
        self.tell(f"{host}: {trouble or 'done'}")
        return trouble

    def _follow(self, host: str, child: Child) -> str:
        """Wait for its end, and write what comes; why it is given up, empty where it ended."""
        begun = heard = time.monotonic()
        seen, last = 0, ""
        while child.poll() is None:
            time.sleep(_TICK_S)
            now = time.monotonic()
            if len(child.output) != seen:
                lines = list(child.output)
                came, seen, heard = lines[seen:], len(lines), now
                if any(map(is_of_records, came)):  # steps come every few seconds, and all records are unpacked anew
                    self._write(host, records_of(lines))
                last = next((step for line in lines[-3:] if (step := step_of(line))), last)
            if self._ended:
                return "interrupted"
            where = f", at {last[:80]!r}" * bool(last)
            if now - heard > self.silence_s:
                return f"silent for {now - heard:.0f} s{where}"
            if now - begun > self.longest_s:
                return f"not done after {now - begun:.0f} s{where}"
        return ""

    def _keep(self, host: str, finished: Finished) -> str:
        """Write what came of a host's records; why they are not whole."""
        sent = records_of(finished.output)
        self._write(host, sent)
        if not sent.trouble:
            return ""
        said = [line.strip() for line in finished.output if line.strip() and not step_of(line)]
        if finished.returncode and said and not said[-1].startswith("railwright-"):
            return f"{sent.trouble}: " * bool(sent.records) + said[-1][:_LONGEST_REASON]
        return sent.trouble + f" ({finished.describe()})" * bool(finished.returncode)

    def _write(self, host: str, sent: Sent) -> None:
        if sent.records:
            folder = self.folder_of(host)
            folder.mkdir(parents=True, exist_ok=True)
            (folder / RESULTS).write_bytes(sent.records)

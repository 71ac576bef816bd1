"""Reader of the log that NCCL writes with `NCCL_DEBUG=INFO`.

`NCCL_DEBUG_SUBSYS=INIT,GRAPH,ENV,TUNING,NET,COLL` adds more. The formats of versions 2.4 to 2.30 come from NCCL's
sources; `docs/explain-formats.md` lists the messages that are read and those that are not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from operator import attrgetter
from typing import Any

import msgspec

from railwright.errors import UsageError
from railwright.results.readers.nccl_log import graph as nccl_log_graph
from railwright.results.readers.nccl_log import messages as nccl_log_messages
from railwright.results.readers.nccl_log import model
from railwright.results.readers.nccl_log.drafts import Drafts
from railwright.results.readers.nccl_log.lines import Message, read_messages
from railwright.results.readers.nccl_log.messages import CommunicatorFact, Driver, Fact, Init

MAX_FACTS = 200_000
MAX_EXCERPTS = 20_000
_MAX_EXCERPT = 300
_MAX_TORN = 100
_COMPLETE = "Init COMPLETE"
_HINT = "run with NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=INIT,GRAPH,ENV,TUNING,NET,COLL and give its output"
_SAME: dict[type, tuple[str, Callable[[Any], object]]] = {
    model.Version: ("versions", attrgetter("nccl", "cuda", "host")),
    model.Nic: ("nics", attrgetter("host", "network", "index")),
    model.Network: ("networks", attrgetter("host", "name", "state")),
    model.GdrCheck: ("gdr", attrgetter("host", "nic", "gpu", "enabled")),
    model.QueuePair: ("queue_pairs", attrgetter("host", "nic", "port", "mtu", "gid_index", "lid")),
    model.Setting: ("settings", attrgetter("host", "pid", "name", "value")),
    model.Choice: ("choices", attrgetter("operation", "size_bytes", "algorithm", "protocol", "channels")),
}
"""The facts that belong to no communicator: their field in the log, and the attributes that identify a fact.

The first of several equal facts is kept.
"""


def recognises(text: str) -> bool:
    """Report whether the text has at least one line that NCCL wrote."""
    return any(mark in text for mark in model.MARKS)


def read(text: str) -> model.NcclLog:
    """Read the facts in the log. Raises UsageError if it has no NCCL line, or if lines contradict each other."""
    if not recognises(text):
        raise UsageError(
            f"the text must contain an NCCL INFO line, got none in {text.count(chr(10)) + 1} lines", hint=_HINT
        )
    return read_lines(enumerate(text.split("\n"), 1))


def read_lines(lines: Iterable[tuple[int, str]]) -> model.NcclLog:
    """Read the facts in numbered lines without holding any of them. Raises the same errors as `read`."""
    reader = _Reader()
    for message in read_messages(reader.count_lines(lines)):
        reader.take(message)
    return reader.finish()


class _Reader:
    """The state of a log while it is read."""

    def __init__(self) -> None:
        self.drafts = Drafts()
        self.driver: int | None = None
        self.kept: dict[str, dict[object, Any]] = {name: {} for name, _ in _SAME.values()}
        self.systems: dict[str, nccl_log_graph.SystemTable] = {}
        self.tuning = nccl_log_graph.TuningTable()
        self.warnings: list[model.LoggedWarning] = []
        self.excerpts: dict[int, str] = {}
        self.torn: dict[int, str] = {}
        self.lines = self.messages = 0
        self.completes = self.ended_at = 0

    def count_lines(self, lines: Iterable[tuple[int, str]]) -> Iterator[tuple[int, str]]:
        """Yield the lines and keep the number of the last one."""
        for self.lines, line in lines:
            if _COMPLETE in line:
                self.completes += line.count(_COMPLETE)
            elif not self.ended_at and _tells_an_end(line):
                self.ended_at = self.lines
            yield self.lines, line

    def take(self, message: Message) -> None:
        """Read a message. Unknown messages are ignored."""
        self.messages += 1
        plain = message._replace(text=message.text.lstrip()) if message.text[:1].isspace() else message
        if message.warn:
            if len(self.warnings) < MAX_FACTS:
                warning = model.LoggedWarning(
                    host=message.host, says=plain.text, line=message.line, pid=message.pid, cuda_dev=message.device
                )
                self.warnings.append(warning)
            return
        found = nccl_log_messages.parse_facts(plain)
        kept = [self._keep(fact, plain) for fact in found] if found else [self._take_row(message)]
        if any(kept) and len(self.excerpts) < MAX_EXCERPTS:
            self.excerpts.setdefault(message.line, plain.text.strip()[:_MAX_EXCERPT])

    def finish(self) -> model.NcclLog:
        """Return the log. Raises UsageError if no fact was found."""
        communicators = self.drafts.finish()
        tables = (self.systems, self.tuning.estimates, self.warnings)
        if not communicators and not any(self.kept.values()) and not any(tables):
            raise UsageError(
                f"none of the {self.messages} NCCL messages describes the machine or a communicator", hint=_HINT
            )
        return model.NcclLog(
            lines=self.lines,
            messages=self.messages,
            communicators=communicators,
            driver=self.driver,
            systems=tuple(table.system() for table in self.systems.values()),
            tuning=tuple(self.tuning.estimates),
            warnings=tuple(self.warnings),
            excerpts=self.excerpts,
            torn=self.torn,
            unread_completes=max(0, self.completes),
            ended_at=self.ended_at,
            **{name: tuple(kept.values()) for name, kept in self.kept.items()},
        )

    def _keep(self, fact: Fact, message: Message) -> bool:
        """Store a fact. Returns False if it belongs to no known communicator."""
        if isinstance(fact, Driver):
            self.driver = self.driver or fact.version
            return True
        if isinstance(fact, Init):
            self.completes -= fact.complete
            if fact.is_torn and len(self.torn) < _MAX_TORN:
                self.torn[message.line] = f"rank {fact.rank}'s Init {'COMPLETE' if fact.complete else 'START'}"
        if isinstance(fact, CommunicatorFact):
            return self.drafts.take(fact, message)
        name, same = _SAME[type(fact)]
        kept, key = self.kept[name], same(fact)
        if isinstance(fact, model.Choice) and key in kept:
            kept[key] = msgspec.structs.replace(kept[key], times=kept[key].times + 1)
        elif len(kept) < MAX_FACTS:
            kept.setdefault(key, fact)
        return True

    def _take_row(self, message: Message) -> bool:
        """Read a header or a row of a table. Returns False for other messages.

        Indentation matters in the tree of the machine.
        """
        table = nccl_log_graph.begin_system(message)
        if table is not None:
            if len(self.systems) < MAX_FACTS:
                self.systems.setdefault(message.host, table)
            return True
        system = self.systems.get(message.host)
        return (system is not None and system.take(message)) or self.tuning.take(message)


def _tells_an_end(line: str) -> bool:
    """Report whether by this line a program or NCCL ends a run that does not progress."""
    return "bort" in line or "imeout" in line or "imed out" in line or "atchdog" in line

"""Reads the log that NCCL writes with `NCCL_DEBUG=INFO`; more with `NCCL_DEBUG_SUBSYS=INIT,GRAPH,ENV,TUNING,NET,COLL`.

Versions 2.4 to 2.30 were looked up in NCCL's sources; `docs/nccl-log.md` says what is read and what is not.
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
from railwright.results.readers.nccl_log.lines import Message, messages_of
from railwright.results.readers.nccl_log.messages import Driver, Fact, OfCommunicator

MAX_FACTS = 200_000
MAX_EXCERPTS = 20_000
_MAX_EXCERPT = 300
_HINT = "run with NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=INIT,GRAPH,ENV,TUNING,NET,COLL and give its output"
_SAME: dict[type, tuple[str, Callable[[Any], object]]] = {
    model.Version: ("versions", attrgetter("nccl", "cuda", "host")),
    model.Nic: ("nics", attrgetter("host", "network", "index")),
    model.Network: ("networks", attrgetter("host", "name", "state")),
    model.GdrCheck: ("gdr", attrgetter("host", "nic", "gpu", "enabled")),
    model.Setting: ("settings", attrgetter("host", "pid", "name", "value")),
    model.Choice: ("choices", attrgetter("operation", "size_bytes", "algorithm", "protocol", "channels")),
}
"""Facts that belong to no communicator: their field in the log, and the attributes that make two facts the same.

The first of those that are the same is kept.
"""


def recognises(text: str) -> bool:
    """Whether the text has at least one line that NCCL wrote."""
    return any(mark in text for mark in model.MARKS)


def read(text: str) -> model.NcclLog:
    """The facts in the log. Raises UsageError when no NCCL line is found or when lines contradict each other."""
    if not recognises(text):
        raise UsageError(f"no NCCL INFO line in {text.count(chr(10)) + 1} lines", hint=_HINT)
    return read_lines(enumerate(text.split("\n"), 1))


def read_lines(lines: Iterable[tuple[int, str]]) -> model.NcclLog:
    """The facts in lines with their numbers, of which none is held. Raises as `read` does."""
    reader = _Reader()
    for message in messages_of(reader.counted(lines)):
        reader.take(message)
    return reader.finish()


class _Reader:
    """All that was read so far."""

    def __init__(self) -> None:
        self.drafts = Drafts()
        self.driver: int | None = None
        self.kept: dict[str, dict[object, Any]] = {name: {} for name, _ in _SAME.values()}
        self.systems: dict[str, nccl_log_graph.SystemTable] = {}
        self.tuning = nccl_log_graph.TuningTable()
        self.warnings: list[model.LoggedWarning] = []
        self.excerpts: dict[int, str] = {}
        self.lines = self.messages = 0

    def counted(self, lines: Iterable[tuple[int, str]]) -> Iterator[tuple[int, str]]:
        """The lines, of which the last one's number is kept."""
        for self.lines, line in lines:
            yield self.lines, line

    def take(self, message: Message) -> None:
        """Reads one message. Unknown messages are left out."""
        self.messages += 1
        plain = message._replace(text=message.text.lstrip()) if message.text[:1].isspace() else message
        if message.warn:
            if len(self.warnings) < MAX_FACTS:
                self.warnings.append(model.LoggedWarning(host=message.host, says=plain.text, line=message.line))
            return
        found = nccl_log_messages.facts(plain)
        kept = [self._keep(fact, plain) for fact in found] if found else [self._take_row(message)]
        if any(kept) and len(self.excerpts) < MAX_EXCERPTS:
            self.excerpts.setdefault(message.line, plain.text.strip()[:_MAX_EXCERPT])

    def finish(self) -> model.NcclLog:
        """The log. Raises UsageError when no fact was found."""
        communicators = self.drafts.finish()
        tables = (self.systems, self.tuning.estimates, self.warnings)
        if not communicators and not any(self.kept.values()) and not any(tables):
            raise UsageError(f"none of the {self.messages} NCCL messages says what NCCL saw or built", hint=_HINT)
        return model.NcclLog(
            lines=self.lines,
            messages=self.messages,
            communicators=communicators,
            driver=self.driver,
            systems=tuple(table.system() for table in self.systems.values()),
            tuning=tuple(self.tuning.estimates),
            warnings=tuple(self.warnings),
            excerpts=self.excerpts,
            **{name: tuple(kept.values()) for name, kept in self.kept.items()},
        )

    def _keep(self, fact: Fact, message: Message) -> bool:
        """Whether the fact has a place in the log."""
        if isinstance(fact, Driver):
            self.driver = self.driver or fact.version
            return True
        if isinstance(fact, OfCommunicator):
            return self.drafts.take(fact, message)
        name, same = _SAME[type(fact)]
        kept, key = self.kept[name], same(fact)
        if isinstance(fact, model.Choice) and key in kept:
            kept[key] = msgspec.structs.replace(kept[key], times=kept[key].times + 1)
        elif len(kept) < MAX_FACTS:
            kept.setdefault(key, fact)
        return True

    def _take_row(self, message: Message) -> bool:
        """Whether the message is a heading or a row of a table. Indentation counts in the tree of the machine."""
        table = nccl_log_graph.begin(message)
        if table is not None:
            if len(self.systems) < MAX_FACTS:
                self.systems.setdefault(message.host, table)
            return True
        system = self.systems.get(message.host)
        return (system is not None and system.take(message)) or self.tuning.take(message)

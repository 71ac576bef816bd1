"""Evidence for findings about NCCL's log: its lines, and faults that could not be checked for."""

from __future__ import annotations

from collections.abc import Iterable

from railwright.checks.finding import Finding, LogPlace
from railwright.results.readers.nccl_log.model import NcclLog
from railwright.results.records import Evidence

MAX_SHOWN = 4
MAX_WHERE = 16
LOG_MORE = "run with NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=INIT,GRAPH,ENV,TUNING,NET,COLL on all ranks"


def log_lines(log: NcclLog, lines: Iterable[int]) -> tuple[Evidence, ...]:
    """Return the first few of the lines as evidence, without repeated text."""
    first_lines: dict[str, int] = {}
    for line in lines:
        if line:
            first_lines.setdefault(log.excerpts.get(line, ""), line)
    return tuple(
        Evidence(claim="log", value=value, seen=f"line {line} of the log")
        for value, line in list(first_lines.items())[:MAX_SHOWN]
    )


def log_places(words: Iterable[str]) -> tuple[LogPlace, ...]:
    """Return the names as places in the log, without duplicates."""
    return tuple(map(LogPlace, dict.fromkeys(words)))


def could_not_look(fault: str, why: str, remedy: str = LOG_MORE) -> Finding:
    """Return a finding for a fault that the log is not sufficient to check for."""
    return Finding(fault=fault, where=log_places(["log"]), certainty="could not look", says=why, remedy=remedy)

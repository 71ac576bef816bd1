"""How a finding about NCCL's log shows its lines, and how it says that it could not look."""

from __future__ import annotations

from collections.abc import Iterable

from railwright.checks.finding import Finding, OfLog
from railwright.results.readers.nccl_log.model import NcclLog
from railwright.results.records import Evidence

MAX_SHOWN = 4
MAX_WHERE = 16
LOG_MORE = "run with NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=INIT,GRAPH,ENV,TUNING,NET,COLL on all ranks"


def log_lines(log: NcclLog, lines: Iterable[int]) -> tuple[Evidence, ...]:
    """The first few of these lines; of lines that say the same, the first."""
    told: dict[str, int] = {}
    for line in lines:
        if line:
            told.setdefault(log.excerpts.get(line, ""), line)
    return tuple(
        Evidence(claim="log", value=value, seen=f"line {line} of the log")
        for value, line in list(told.items())[:MAX_SHOWN]
    )


def named(words: Iterable[str]) -> tuple[OfLog, ...]:
    """What a finding points at in the log, each once."""
    return tuple(map(OfLog, dict.fromkeys(words)))


def could_not_look(fault: str, why: str, remedy: str = LOG_MORE) -> Finding:
    """A fault that the log does not let us look for."""
    return Finding(fault=fault, where=named(["log"]), certainty="could not look", says=why, remedy=remedy)

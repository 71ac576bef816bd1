"""NCCL's choice of algorithm, from its own log of an untimed operation (NCCL_DEBUG_SUBSYS=TUNING)."""

from __future__ import annotations

from railwright.results.readers.nccl_log import lines as nccl_log_lines
from railwright.results.readers.nccl_log import messages as nccl_log_messages
from railwright.results.records import Evidence

CLAIM = "algorithm"
UNKNOWN = "unknown"
SENDS = "send/recv"

_MOST_CHARACTERS = 200


def algorithm_evidence(log: str, *, sends_only: bool, problem: str = "") -> Evidence:
    """Return `Ring/LL` with its source, or `unknown` with the reason."""
    if problem:
        return Evidence(claim=CLAIM, value=UNKNOWN, seen=problem)
    found: dict[str, str] = {}
    for message in nccl_log_lines.split(log):
        chosen = nccl_log_messages.parse_choice(message)
        way = nccl_log_messages.parse_method(message.text)
        if chosen is not None:
            found.setdefault(f"{chosen.algorithm}/{chosen.protocol}", message.text)
        elif way is not None:
            found.setdefault(f"{way[0].lower()}/{way[1]}", message.text)
    if found:
        seen = "NCCL's log of an untimed operation: " + "; ".join(found.values())
        return Evidence(claim=CLAIM, value=" and ".join(found), seen=seen[:_MOST_CHARACTERS])
    if sends_only:
        seen = "NCCL chooses no algorithm for sends and receives, and its log names none"
        return Evidence(claim=CLAIM, value=SENDS, seen=seen)
    return Evidence(claim=CLAIM, value=UNKNOWN, seen="NCCL's log of an untimed operation names no algorithm")


def contradiction(seen: Evidence, algorithm: str, protocol: str) -> str:
    """Return the difference between NCCL's choice and the forced one, or an empty string if none is known.

    `free` allows any.
    """
    if seen.claim != CLAIM or seen.value in (UNKNOWN, SENDS):
        return ""
    requested = "/".join(part for part in (algorithm, protocol) if part != "free")
    for choice in seen.value.split(" and "):
        chosen = choice.split("/")
        if (algorithm not in ("free", chosen[0])) or (protocol not in ("free", chosen[-1])):
            return f"NCCL ran {choice}, but {requested} was requested"
    return ""
